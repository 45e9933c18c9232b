import type { NodePodStatus } from "@picolet/hub-core/fleet.ts";
import { type KubeObject, type ObjectRef, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isOlder } from "@picolet/hub-core/kube-client/reflector.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { nodePodStatus } from "@picolet/protocol/pod/node-pod-status.ts";
import {
  forEachConcurrently,
  MAX_CONCURRENT_WRITES,
  type NodeConnection,
  retryableRefusal,
  undefinedOn,
} from "./node-connection.ts";
import { podStatusPatch } from "./pod-status-patch.ts";
import { conditionsOf, type Fields, fieldsAt, mirroredUid, SCHEDULED } from "./remote-object.ts";
import { nodeOf } from "./stored-objects.ts";

/** Bounds attempts against another writer of the same status; each attempt takes the latest version as its base. */
const MAX_CONFLICTS = 5;

/**
 * Statuses of static pods that came before their mirror pods; as many as a node may have pods. The oldest goes first.
 */
const MAX_UNPLACED = 256;

/** A pod as it was last seen, which a patch starts from. */
interface Base {
  readonly uid: string;
  readonly mirrorOf: string | undefined;
  readonly node: string;
  readonly status: Fields;
}

interface Written {
  readonly resourceVersion: string;
  readonly status: Fields;
}

/** Brings statuses of one node's pods into the API server, and ends those pods of which nothing is left. */
export class PodStatusWriter {
  readonly #connection: NodeConnection;
  /** By UID. */
  #unplaced: Map<string, NodePodStatus> | undefined;
  /** By UID, until the watch has brought it: the next patch starts from it, or what it took away would come back. */
  #written: Map<string, Written> | undefined;

  constructor(connection: NodeConnection) {
    this.#connection = connection;
  }

  putAll(statuses: readonly NodePodStatus[], signal: AbortSignal): Promise<void> {
    return forEachConcurrently(statuses, MAX_CONCURRENT_WRITES, (status) => this.#put(status, signal));
  }

  /** A mirror pod begins with `status` when it is created, unless a later status is waiting for it. */
  expect({ namespace, name, uid }: Pick<NodePodStatus, "namespace" | "name" | "uid">, status: Fields): void {
    if (this.#unplaced?.has(uid) !== true) this.#keepUnplaced({ namespace, name, uid, status, gone: false });
  }

  /**
   * The mirror pod of `uid` is there: it gets the status that is waiting for it.
   * @param made as the API server has it, where that is known
   */
  async place(uid: string, made: KubeObject | undefined, signal: AbortSignal): Promise<void> {
    const waiting = this.#unplaced?.get(uid);
    if (waiting !== undefined) await this.#put(waiting, signal, made === undefined ? undefined : baseOf(made));
  }

  /**
   * Sets Ready as a whole: to True where it is False for no reason of the pod's own (see `isReadyLost`), to False,
   * without a reason, while the node is away, so that services leave the pod out.
   */
  async setReady(path: string, uid: string, isReady: boolean, signal: AbortSignal): Promise<void> {
    const [namespace = "", name = ""] = path.split("/");
    const at = kubeTime(this.#connection.clock.wall());
    const ready = {
      type: "Ready",
      status: isReady ? "True" : "False",
      reason: null,
      message: null,
      lastTransitionTime: at,
    };
    const patch = { metadata: { uid }, status: { conditions: [ready] } };
    const { client } = this.#connection;
    const write = client.patch(PODS, { namespace, name }, "strategic", patch, { subresource: "status" }, signal);
    await undefinedOn(["not_found", "conflict"], write);
  }

  /** Called when the cache has what was written of this pod, or the pod is gone. */
  seen(uid: string, resourceVersion: string | undefined): void {
    const written = this.#written?.get(uid);
    if (written === undefined || (resourceVersion !== undefined && isOlder(resourceVersion, written.resourceVersion)))
      return;
    this.#written?.delete(uid);
    if (this.#written?.size === 0) this.#written = undefined;
  }

  async #put(item: NodePodStatus, signal: AbortSignal, known?: Base): Promise<void> {
    const { namespace, name, uid, status, gone } = item;
    const ref = { namespace, name };
    const waiting = this.#unplaced?.get(uid);
    const base = known ?? this.#cachedBase(`${namespace}/${name}`, uid) ?? (await this.#readBase(ref, signal));
    if (base === undefined || (base.uid !== uid && base.mirrorOf !== uid)) {
      if (!gone) this.#keepUnplaced(item);
      return;
    }
    if (base.node !== this.#connection.node) return;
    const last = await this.#patch(ref, base, status, signal);
    if (waiting !== undefined && this.#unplaced?.get(uid) === waiting) this.#unplaced.delete(uid);
    // A pod whose deletion no client requested stays, even if its node reports it as gone.
    if (gone && last !== undefined && (last.metadata.deletionTimestamp !== undefined || base.mirrorOf !== undefined)) {
      await this.remove(ref, base.uid, signal);
    }
  }

  #cachedBase(path: string, uid: string): Base | undefined {
    const { cache, node } = this.#connection;
    const pod = cache.pod(node, path);
    if (pod === undefined || (pod.uid !== uid && pod.mirrorOf !== uid)) return undefined;
    const written = this.#written?.get(pod.uid);
    const isBehind = written !== undefined && isOlder(pod.resourceVersion, written.resourceVersion);
    const own = isBehind ? written.status : (JSON.parse(pod.status) as Fields);
    const isScheduled = isBehind || pod.isScheduled;
    const status = isScheduled
      ? { ...own, conditions: [...conditionsOf(own), { type: SCHEDULED, status: "True" }] }
      : own;
    return { uid: pod.uid, mirrorOf: pod.mirrorOf, node, status };
  }

  async #readBase(ref: ObjectRef, signal: AbortSignal): Promise<Base | undefined> {
    const pod = await undefinedOn(["not_found"], this.#connection.hubClient.get(PODS, ref, signal));
    return pod === undefined ? undefined : baseOf(pod);
  }

  /**
   * A pod that may come yet: a static pod's mirror that has not been made. Any other UID is that of a pod of the past.
   */
  #keepUnplaced(item: NodePodStatus): void {
    this.#unplaced ??= new Map();
    this.#unplaced.delete(item.uid);
    this.#unplaced.set(item.uid, item);
    if (this.#unplaced.size <= MAX_UNPLACED) return;
    const [oldest] = this.#unplaced.keys();
    if (oldest !== undefined) this.#unplaced.delete(oldest);
  }

  /** @returns the pod as it is then; undefined when it is another one by now, gone, or does not take this status */
  async #patch(ref: ObjectRef, base: Base, next: Fields, signal: AbortSignal): Promise<KubeObject | undefined> {
    const { client, log } = this.#connection;
    const what = `write the status of pod ${ref.namespace}/${ref.name}`;
    let current: Base | undefined = base;
    for (let round = 1; current !== undefined && current.uid === base.uid; round += 1) {
      const isMirror = base.mirrorOf !== undefined;
      const patch = podStatusPatch({ uid: base.uid, current: current.status, next, isMirror });
      try {
        const pod = await client.patch(PODS, ref, "strategic", patch, { subresource: "status" }, signal);
        this.#written ??= new Map();
        this.#written.set(base.uid, {
          resourceVersion: pod.metadata.resourceVersion ?? "",
          status: nodePodStatus(next),
        });
        return pod;
      } catch (error) {
        if (isPicoletError(error, "not_found")) return undefined;
        // One that is too large stays so however often it is written.
        if (isPicoletError(error, "invalid") || isPicoletError(error, "resource_exhausted")) {
          log.warn("the API server does not take a status", { pod: ref.name, error: describeError(error) });
          return undefined;
        }
        // This node's pod: what is refused now is a matter of rights, and those are mended.
        if (isPicoletError(error, "permission_denied")) throw retryableRefusal(error, what);
        if (!isPicoletError(error, "conflict")) throw error;
        if (round >= MAX_CONFLICTS) throw retryableRefusal(error, what);
        current = await this.#readBase(ref, signal);
      }
    }
    return undefined;
  }

  /** At once, and no other pod of the name. */
  async remove(ref: ObjectRef, uid: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#connection;
    try {
      await client.delete(PODS, ref, { gracePeriodSeconds: 0, uid }, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found") || isPicoletError(error, "conflict")) return;
      if (isPicoletError(error, "permission_denied")) throw retryableRefusal(error, `delete pod ${ref.name}`);
      throw error;
    }
  }
}

const baseOf = (pod: KubeObject): Base => ({
  uid: pod.metadata.uid ?? "",
  mirrorOf: mirroredUid(pod.metadata),
  node: nodeOf(pod),
  status: fieldsAt(pod, "status"),
});
