/** Kubernetes' rules for paths in a Pod. Each returns its problems; none for a valid path. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";

export const backstepProblems = (path: string): string[] =>
  path.split("/").includes("..") ? ["must not contain '..'"] : [];

/** A path below a given folder: a subPath, a seccomp profile. */
export const descendingPathProblems = (path: string): string[] => [
  ...(path.startsWith("/") ? ["must be a relative path"] : []),
  ...backstepProblems(path),
];

/** A file that the agent writes into a volume; names that begin with two dots are the agent's own. */
export function validateVolumeFile(file: string, path: string, problems: FieldProblems): void {
  if (file === "") problems.required(path);
  else problems.invalidAll(path, file, volumeFileProblems(file));
}

const volumeFileProblems = (path: string): string[] => [
  ...descendingPathProblems(path),
  ...(path.startsWith("..") && !path.startsWith("../") ? ["must not start with '..'"] : []),
];
