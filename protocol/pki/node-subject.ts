/** How Kubernetes names a node in a certificate (its NodeAuthorizer, and the signer kube-apiserver-client-kubelet). */
import { PicoletError } from "../errors.ts";
import { nodeNameProblems } from "../kubernetes/name-rules.ts";
import type { NameAttribute } from "./distinguished-name.ts";

export const NODES_GROUP = "system:nodes";
export const NODE_USER_PREFIX = "system:node:";

export const nodeSubject = (node: string): NameAttribute[] => [
  { type: "O", value: NODES_GROUP },
  { type: "CN", value: `${NODE_USER_PREFIX}${node}` },
];

/**
 * @returns the node's name
 * @throws `permission_denied` unless the subject is `O=system:nodes, CN=system:node:NAME`, in any order, and nothing
 * else
 */
export function nodeOfSubject(subject: readonly NameAttribute[]): string {
  const refuse = (why: string): never => {
    throw new PicoletError("permission_denied", `the subject is not that of a node: ${why}`);
  };
  const [group, ...otherGroups] = subject.filter(({ type }) => type === "O");
  const [user, ...otherUsers] = subject.filter(({ type }) => type === "CN");
  if (group?.value !== NODES_GROUP || otherGroups.length > 0) return refuse(`O has to be ${NODES_GROUP} alone`);
  if (user === undefined || otherUsers.length > 0 || !user.value.startsWith(NODE_USER_PREFIX)) {
    return refuse(`CN has to be ${NODE_USER_PREFIX}NAME`);
  }
  const name = user.value.slice(NODE_USER_PREFIX.length);
  return nodeNameProblems(name).length > 0 ? refuse("the name is not one that a node can have") : name;
}

/**
 * The node that an authenticated user is; undefined: none. A malformed name is no node's, so that nothing belongs to
 * it.
 */
export function nodeOfUser({
  name,
  groups,
}: {
  readonly name: string;
  readonly groups: readonly string[];
}): string | undefined {
  if (!groups.includes(NODES_GROUP) || !name.startsWith(NODE_USER_PREFIX)) return undefined;
  const node = name.slice(NODE_USER_PREFIX.length);
  return nodeNameProblems(node).length === 0 ? node : undefined;
}
