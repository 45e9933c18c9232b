/** Data that survives reboots and power cuts. `agent/store` implements it on SQLite. */

import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { Cursor, ObjectHash, ObjectKey, RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { ChosenRuntime, DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";

/** A change of the API server's objects for this node. */
export interface RemoteChange {
  readonly cursor: Cursor;
  readonly upserts: readonly RemoteObject[];
  readonly deletes: readonly ObjectKey[];
}

export interface DesiredSnapshot {
  /**
   * With what they are run as, and the resources that the node has granted them: their source's, unless it wants others
   * than before.
   */
  readonly pods: ReadonlyMap<PodUid, DesiredPod>;
  /** Pods whose source wants other resources than they were granted, as their source wants them. */
  readonly requested: ReadonlyMap<PodUid, DesiredPod>;
  /**
   * No longer wanted, but not yet known to be gone; kept until `forget`, across restarts, so that each is ended
   * properly.
   */
  readonly removed: ReadonlyMap<PodUid, DesiredPod>;
  /** Sources that have spoken since this process started. What an unsynced source once wanted stays wanted. */
  readonly synced: ReadonlySet<SourceId>;
}

export interface DesiredStore {
  readonly desired: Watch<DesiredSnapshot>;
  /** The highest revision accepted from `source`, 0 for none. */
  revision(source: SourceId): number;
  /**
   * Everything `source` wants now. On disk (fsync) before it shows in `desired`. The same content under the same
   * revision is `accepted` and writes nothing; an older revision is `stale`, the same one with another content
   * `conflict`.
   * @param unreadable origins of which the source cannot tell now what they want (a broken file): what is adopted of
   * them later is wanted. Kept in memory until the next call that is accepted.
   * @throws `resource_exhausted` when the disk is full; nothing has changed then.
   */
  replace(
    source: SourceId,
    revision: number,
    pods: readonly DesiredPod[],
    unreadable?: ReadonlySet<string>,
  ): "accepted" | "stale" | "conflict";
  /**
   * From now on the pod has the resources that are wanted of it. On disk (fsync) before it shows in `desired`.
   * @throws `resource_exhausted` when the disk is full; nothing has changed then.
   */
  grant(uid: PodUid): void;
  /**
   * From now on the pod is run as that, until it goes. On disk (fsync) before it shows in `desired`.
   * @throws `resource_exhausted` when the disk is full; nothing has changed then.
   */
  choose(uid: PodUid, runtime: ChosenRuntime): void;
  /** A removed pod of which the runtime and the disk hold nothing any more. One that is wanted again stays. */
  forget(uid: PodUid): void;
  /**
   * Pods found running that the store does not know (it was lost): wanted by their source until it speaks of them.
   * @param isFree whether nothing on this node belongs to the pod of that uid yet: what runs may be taken for it then
   *   (see `canAdoptPod`).
   */
  adopt(pods: readonly DesiredPod[], isFree?: (uid: PodUid) => boolean): void;
}

/** All pods of source `api`. */
export interface ApiPods {
  readonly wanted: readonly DesiredPod[];
  /** To be ended, each until `forget`. */
  readonly removed: readonly DesiredPod[];
}

/** The API server's objects on disk. They change in one transaction with the pods that follow from them. */
export interface ObjectStore {
  /** Position of the set on disk; an empty epoch and revision 0 when the set may be incomplete. */
  readonly cursor: Cursor;
  inventory(): Iterable<{ readonly key: ObjectKey; readonly hash: ObjectHash }>;
  digestAfter(change: Omit<RemoteChange, "cursor">): Uint8Array;
  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined;
  /**
   * Source `api` counts as synced from then on. On disk (fsync) before it returns, unless only the cursor moves.
   * @throws `resource_exhausted` when the disk is full or a limit is reached, `corrupt` when the file turned out
   * damaged: the objects are lost then and the cursor is empty. Nothing else has changed.
   */
  apply(change: RemoteChange, pods: ApiPods): void;
}

export interface PodStatusRecord {
  /** The node's own. */
  readonly uid: PodUid;
  /** Its UID in the API server, or in the mirror set: see `apiUidOf`. */
  readonly apiUid: string;
  readonly namespace: string;
  readonly name: string;
  readonly status: PodStatus;
}

export interface Sequenced<T> {
  readonly sequence: number;
  readonly value: T;
}

/** The latest status of each pod. `OutgoingStatuses` has those that must be sent. */
export interface StatusOutbox {
  /** Batched: on disk with the next tick. Equal to the stored one: nothing happens. */
  put(record: PodStatusRecord): void;
  /** Writes all statuses to the disk now, if it works: the agent may be killed after that. */
  flush(): void;
  /** Not of a pod of which nothing is left. */
  get(uid: PodUid): PodStatusRecord | undefined;
  /** @returns whether `get` returns a record */
  has(uid: PodUid): boolean;
  /**
   * Sends the status on disk again: an agent that died may have sent a newer one that it had not written yet. Does
   * nothing if no status of the pod was ever sent.
   */
  resend(uid: PodUid): void;
  /** Nothing is left of this pod. It goes out as `gone` if the API server waits for that; else it is forgotten. */
  finish(record: PodStatusRecord): void;
  /**
   * Pods of which nothing is left and the API server has still to hear, or to draw the consequence: `apiUid` by uid.
   */
  readonly gone: ReadonlyMap<PodUid, string>;
  delete(uid: PodUid): void;
}

export interface ObjectReference {
  readonly kind: "Pod" | "Node";
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** `spec.containers{app}` for a container's event, else "". */
  readonly fieldPath: string;
}

/** The node itself; it is its own UID, as with the kubelet. */
export const nodeReference = (name: string): ObjectReference => ({
  kind: "Node",
  namespace: "",
  name,
  uid: name,
  fieldPath: "",
});

export interface EventInput {
  readonly regarding: ObjectReference;
  readonly type: "Normal" | "Warning";
  /** CamelCase, the kubelet's own where it has one. */
  readonly reason: string;
  /** At most MAX_EVENT_MESSAGE_LENGTH characters; longer ones are cut. */
  readonly message: string;
}

export interface EventRecord extends EventInput {
  readonly sequence: number;
  /** How often the same event came; equal events (all of EventInput), each within an hour of the last, are one. */
  readonly count: number;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
}

/** Kubernetes' own limit for an event's message. */
export const MAX_EVENT_MESSAGE_LENGTH = 1024;

export interface EventRecorder {
  /** Never throws, never blocks; batched to disk. */
  record(event: EventInput): void;
}

export interface EventStore extends EventRecorder {
  /** The newest `limit` of those that match, oldest first. `namespace` and `name` filter the object concerned. */
  list(filter: { readonly namespace?: string; readonly name?: string; readonly limit: number }): readonly EventRecord[];
  readonly latest: Watch<number>;
}
