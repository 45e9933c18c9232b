/** Owners and dependents of all objects, from metadata alone. */
import { isDeepStrictEqual } from "node:util";
import type { KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { OwnerReference } from "../../api/typed-objects.ts";

export const FOREGROUND = "foregroundDeletion";
export const ORPHAN = "orphan";

export interface GraphNode {
  readonly uid: string;
  readonly type: ResourceType;
  readonly namespace: string;
  readonly name: string;
  readonly resourceVersion: string;
  readonly owners: readonly OwnerReference[];
  readonly finalizers: readonly string[];
  readonly isGoing: boolean;
}

export function graphNodeOf(type: ResourceType, { metadata }: KubeObject): GraphNode {
  return {
    uid: metadata.uid ?? "",
    type,
    namespace: metadata.namespace ?? "",
    name: metadata.name,
    resourceVersion: metadata.resourceVersion ?? "",
    owners: metadata.ownerReferences ?? [],
    finalizers: metadata.finalizers ?? [],
    isGoing: metadata.deletionTimestamp !== undefined,
  };
}

/** True when it waits for its dependents. */
export const waitsForDependents = (node: GraphNode): boolean => node.isGoing && node.finalizers.includes(FOREGROUND);
export const orphansDependents = (node: GraphNode): boolean => node.isGoing && node.finalizers.includes(ORPHAN);

/** True when nothing but its version differs, as with each renewal of a Lease. */
export const isSameInGraph = (old: GraphNode, node: GraphNode): boolean =>
  old.uid === node.uid &&
  old.isGoing === node.isGoing &&
  isDeepStrictEqual([old.owners, old.finalizers], [node.owners, node.finalizers]);

export class DependencyGraph {
  readonly #nodes = new Map<string, GraphNode>();
  readonly #dependents = new Map<string, Set<string>>();

  get(uid: string): GraphNode | undefined {
    return this.#nodes.get(uid);
  }

  dependentsOf(uid: string): readonly GraphNode[] {
    return [...(this.#dependents.get(uid) ?? [])].flatMap((each) => this.#nodes.get(each) ?? []);
  }

  put(node: GraphNode): void {
    this.remove(node.uid);
    this.#nodes.set(node.uid, node);
    for (const { uid } of node.owners) {
      const dependents = this.#dependents.get(uid);
      if (dependents === undefined) this.#dependents.set(uid, new Set([node.uid]));
      else dependents.add(node.uid);
    }
  }

  /** Another version of one that is there, with the same owners. */
  renew(node: GraphNode): void {
    this.#nodes.set(node.uid, node);
  }

  remove(uid: string): void {
    for (const owner of this.#nodes.get(uid)?.owners ?? []) {
      const dependents = this.#dependents.get(owner.uid);
      dependents?.delete(uid);
      if (dependents?.size === 0) this.#dependents.delete(owner.uid);
    }
    this.#nodes.delete(uid);
  }
}
