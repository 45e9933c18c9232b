/** What the agent keeps across reboots and power cuts. `agent/store` implements it on SQLite. */

import type { Watch } from "../../protocol/async/watch.ts";
import type { PodStatus } from "../../protocol/pod.ts";
import type { PodUid } from "../../protocol/ports.ts";
import type { DesiredPod, SourceId } from "../../runtime-adapters/contract/runtime-adapter.ts";

export interface DesiredSnapshot {
  readonly pods: ReadonlyMap<PodUid, DesiredPod>;
  /** No longer wanted, but not yet known to be gone; kept until `forget`, across restarts, so that each is ended properly. */
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
   * revision is `accepted` and writes nothing; an older revision is `stale`, the same one with another content `conflict`.
   * @param unreadable origins of which the source cannot tell now what they want (a broken file): what is adopted of them
   *   later is wanted. Kept in memory until the next call that is accepted.
   * @throws `resource_exhausted` when the disk is full; nothing has changed then.
   */
  replace(
    source: SourceId,
    revision: number,
    pods: readonly DesiredPod[],
    unreadable?: ReadonlySet<string>,
  ): "accepted" | "stale" | "conflict";
  /** A removed pod of which the runtime and the disk hold nothing any more. One that is wanted again stays. */
  forget(uid: PodUid): void;
  /** Pods found running that the store does not know (it was lost): wanted by their source until it speaks of them. */
  adopt(pods: readonly DesiredPod[]): void;
}

export interface PodStatusRecord {
  readonly uid: PodUid;
  readonly namespace: string;
  readonly name: string;
  readonly status: PodStatus;
}

export interface Sequenced<T> {
  readonly sequence: number;
  readonly value: T;
}

/** The latest status of each pod, in the order of change. One row a pod: a newer status replaces the older. */
export interface StatusOutbox {
  /** Batched: on disk with the next tick. Equal to the stored one: nothing happens. */
  put(record: PodStatusRecord): void;
  get(uid: PodUid): PodStatusRecord | undefined;
  /** Not yet acknowledged, oldest change first. */
  pending(limit: number): readonly Sequenced<PodStatusRecord>[];
  ack(sequence: number): void;
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
  /** How often the same event came; equal events (all of EventInput) within 10 minutes are one. */
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
