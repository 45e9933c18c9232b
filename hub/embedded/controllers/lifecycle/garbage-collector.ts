import type { DeleteOptions, KubeMetadata, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { OwnerReference } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";
import {
  DependencyGraph,
  FOREGROUND,
  type GraphNode,
  graphNodeOf,
  isSameInGraph,
  ORPHAN,
  orphansDependents,
  waitsForDependents,
} from "./dependency-graph.ts";

/** How often an owner of an unknown kind is read again: the next version of the hub may know the kind. */
const UNKNOWN_KIND_RETRY = seconds(300);

type Propagation = NonNullable<DeleteOptions["propagationPolicy"]>;

interface Owners {
  readonly solid: readonly OwnerReference[];
  readonly waiting: readonly OwnerReference[];
  readonly gone: readonly OwnerReference[];
  readonly unknown: readonly OwnerReference[];
}

/**
 * Deletes what has lost its last owner; holds an owner deleted in the foreground until those that block it are gone;
 * sets free what an owner leaves behind as orphans (pkg/controller/garbagecollector of Kubernetes 1.34).
 */
export class GarbageCollector extends Controller {
  readonly #ports: ControllerPorts;
  readonly #graph = new DependencyGraph();
  readonly #types: readonly ResourceType[];

  /** @param components.caches of every resource that may own or be owned; metadata is enough */
  constructor({ caches, ...ports }: ControllerPorts & { readonly caches: readonly ObjectCache[] }) {
    super(ports, { name: "garbage collector", needs: caches });
    this.#ports = ports;
    this.#types = caches.map(({ type }) => type);
    for (const cache of caches) {
      cache.onChange(({ before, after }) => {
        const old = before === undefined ? undefined : graphNodeOf(cache.type, before);
        const node = after === undefined ? undefined : graphNodeOf(cache.type, after);
        if (old !== undefined && old.uid !== node?.uid) this.#removed(old);
        if (node !== undefined) this.#changed(old, node);
      });
    }
  }

  #changed(old: GraphNode | undefined, node: GraphNode): void {
    if (old !== undefined && isSameInGraph(old, node)) {
      this.#graph.renew(node);
      return;
    }
    this.#graph.put(node);
    if (node.owners.length > 0 || waitsForDependents(node) || orphansDependents(node)) this.loop.add(node.uid);
    const isFirstSeenGoing = node.isGoing && old?.isGoing !== true;
    if (isFirstSeenGoing) for (const each of this.#graph.dependentsOf(node.uid)) this.loop.add(each.uid);
    // An owner that waited for a reference which is gone.
    for (const { uid } of old?.owners ?? []) if (!node.owners.some((owner) => owner.uid === uid)) this.loop.add(uid);
  }

  #removed(node: GraphNode): void {
    const dependents = this.#graph.dependentsOf(node.uid);
    this.#graph.remove(node.uid);
    for (const { uid } of [...dependents, ...node.owners]) this.loop.add(uid);
  }

  protected async reconcile(uid: string, signal: AbortSignal): Promise<Millis | undefined> {
    const node = this.#graph.get(uid);
    if (node === undefined) return undefined;
    if (orphansDependents(node)) {
      for (const each of this.#graph.dependentsOf(uid)) await this.#dropOwners(each, [uid], signal);
      await this.#dropFinalizer(node, ORPHAN, signal);
      return undefined;
    }
    if (waitsForDependents(node)) {
      await this.#advanceForeground(node, signal);
      return undefined;
    }
    if (node.isGoing || node.owners.length === 0) return undefined;
    const owners = await this.#classify(node, signal);
    if (owners.unknown.length > 0) return UNKNOWN_KIND_RETRY;
    const lost = [...owners.gone, ...owners.waiting].map((owner) => owner.uid);
    if (owners.solid.length > 0) {
      if (lost.length > 0) await this.#dropOwners(node, lost, signal);
    } else if (lost.length > 0) await this.#delete(node, this.#propagationFor(node, owners), signal);
    return undefined;
  }

  /** Dependents are deleted by their own rounds; those that block are waited for. */
  async #advanceForeground(node: GraphNode, signal: AbortSignal): Promise<void> {
    const dependents = this.#graph.dependentsOf(node.uid);
    for (const each of dependents) if (!each.isGoing) this.loop.add(each.uid);
    const isBlocked = dependents.some(({ owners }) =>
      owners.some((owner) => owner.uid === node.uid && owner.blockOwnerDeletion === true),
    );
    if (!isBlocked) await this.#dropFinalizer(node, FOREGROUND, signal);
  }

  #propagationFor(node: GraphNode, { waiting }: Owners): Propagation {
    if (waiting.length > 0 && this.#graph.dependentsOf(node.uid).length > 0) return "Foreground";
    if (node.finalizers.includes(ORPHAN)) return "Orphan";
    return node.finalizers.includes(FOREGROUND) ? "Foreground" : "Background";
  }

  async #classify(node: GraphNode, signal: AbortSignal): Promise<Owners> {
    const owners: Record<keyof Owners, OwnerReference[]> = { solid: [], waiting: [], gone: [], unknown: [] };
    for (const owner of node.owners) {
      owners[await this.#stateOf(node, owner, signal)].push(owner);
    }
    return owners;
  }

  /** An owner that is missing in the graph may not have been seen yet: the API server is asked. */
  async #stateOf(node: GraphNode, owner: OwnerReference, signal: AbortSignal): Promise<keyof Owners> {
    const known = this.#graph.get(owner.uid);
    if (known !== undefined) return waitsForDependents(known) ? "waiting" : "solid";
    const group = owner.apiVersion.includes("/") ? owner.apiVersion.slice(0, owner.apiVersion.indexOf("/")) : "";
    const type = this.#types.find((each) => each.kind === owner.kind && each.group === group);
    if (type === undefined) return "unknown";
    // A cluster-scoped object cannot belong to a namespaced one: such a reference is ignored.
    if (type.namespaced && node.namespace === "") return "solid";
    try {
      const ref = { namespace: type.namespaced ? node.namespace : "", name: owner.name };
      const live = await this.#ports.client.get(type, ref, signal);
      return live.metadata.uid === owner.uid ? "solid" : "gone";
    } catch (error) {
      if (isPicoletError(error, "not_found")) return "gone";
      throw error;
    }
  }

  async #delete(node: GraphNode, propagationPolicy: Propagation, signal: AbortSignal): Promise<void> {
    const { type, namespace, name, uid, resourceVersion } = node;
    try {
      // The version too: it may have been adopted in the meantime.
      const options = { uid, resourceVersion, propagationPolicy };
      await this.#ports.client.delete(type, { namespace, name }, options, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  async #dropOwners(node: GraphNode, uids: readonly string[], signal: AbortSignal): Promise<void> {
    const ownerReferences = node.owners.filter(({ uid }) => !uids.includes(uid));
    await this.#patchMetadata(node, { ownerReferences }, signal);
  }

  async #dropFinalizer(node: GraphNode, finalizer: string, signal: AbortSignal): Promise<void> {
    await this.#patchMetadata(node, { finalizers: node.finalizers.filter((each) => each !== finalizer) }, signal);
  }

  async #patchMetadata(node: GraphNode, fields: Partial<KubeMetadata>, signal: AbortSignal): Promise<void> {
    const { type, namespace, name, uid, resourceVersion } = node;
    const patch = { metadata: { ...fields, uid, resourceVersion } };
    try {
      await this.#ports.client.patch(type, { namespace, name }, "merge", patch, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }
}
