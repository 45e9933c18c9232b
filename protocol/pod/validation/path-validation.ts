/** Kubernetes' rules for paths in a Pod. Each returns what is wrong; nothing when all is well. */

export const backstepProblems = (path: string): string[] =>
  path.split("/").includes("..") ? ["must not contain '..'"] : [];

/** Below some folder: of a subPath, of a seccomp profile. */
export const descendingPathProblems = (path: string): string[] => [
  ...(path.startsWith("/") ? ["must be a relative path"] : []),
  ...backstepProblems(path),
];

/**
 * @returns the problems of the path of a file in a volume that the agent writes; names that begin with two dots are the
 * agent's own
 */
export const volumeFileProblems = (path: string): string[] => [
  ...descendingPathProblems(path),
  ...(path.startsWith("..") && !path.startsWith("../") ? ["must not start with '..'"] : []),
];
