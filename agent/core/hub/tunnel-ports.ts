/**
 * Between the tunnel (`agent/tunnel`), which speaks to a hub, and what the node keeps (`agent/store`, `agent/sources`).
 */
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type {
  Cursor,
  EventItem,
  MirrorItem,
  NodeReportContent,
  ObjectHash,
  ObjectKey,
} from "@picolet/protocol/tunnel/messages.ts";
import type { IncomingStream, StreamKind } from "@picolet/protocol/tunnel/stream.ts";
import type { RemoteChange, Sequenced } from "../store/store-ports.ts";
import type { OutgoingTelemetry, SampleSource } from "./outgoing-telemetry.ts";

/**
 * The API server's objects for this node, kept in SQLite across restarts, and the desired pods of source `api` that
 * follow from them. Pods and cursor change in one transaction.
 */
export interface RemoteObjects {
  /** Position of the set on disk; an empty epoch, revision 0 and the digest of the empty set before the first change. */
  readonly cursor: Cursor;
  inventory(): Iterable<{ readonly key: ObjectKey; readonly hash: ObjectHash }>;
  /** `digestOf` the set as it would be after `change`, without changing anything. */
  digestAfter(change: Omit<RemoteChange, "cursor">): Uint8Array;
  /**
   * On disk (fsync) before it returns and before it shows in `desired`. An empty change only moves the cursor, without
   * an fsync. A pod that cannot be run (invalid here) is kept as an object and gets a status and an event, nothing else
   * of the change is held up by it.
   * @throws `resource_exhausted` when the disk is full or a limit is reached; nothing has changed then.
   */
  apply(change: RemoteChange): void;
  /** Undefined: `apply` can be called at once; else when it can be. */
  ready(change: RemoteChange): Promise<void> | undefined;
  /** The hub has confirmed that what is here is what is wanted: source `api` counts as synced. */
  confirm(cursor: Cursor): void;
  /** @returns an object that pods of this node reference (see `ClusterObjects`); undefined: the node does not have it */
  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined;
  readonly changes: Watch<number>;
}

/** An unsent status of one pod. */
export interface OutgoingStatus {
  readonly namespace: string;
  readonly name: string;
  /** As the API server (or the mirror set) knows it; not the node's own after an adoption. */
  readonly uid: string;
  readonly status: Readonly<Record<string, unknown>>;
  /** Nothing is left of a pod whose deletion was asked for. */
  readonly gone: boolean;
}

/** The latest of each pod, in the order of change, until it is acknowledged; survives power cuts. */
export interface OutgoingStatuses {
  /** Sequences only grow, also over restarts. A newer status of a pod replaces the older under a new sequence. */
  pending(limit: number): readonly Sequenced<OutgoingStatus>[];
  pendingCount(): number;
  /** @param except UIDs that stay pending */
  ack(sequence: number, except: ReadonlySet<string>): void;
  /** Sends the acknowledged statuses of these pods again: the API server may have lost them. */
  repeat(uids: ReadonlySet<string>): void;
  /**
   * The same of all pods that are gone and that the API server still seems to have. To be called when a session begins.
   */
  repeatGone(): void;
  /** The highest sequence there is. */
  readonly latest: Watch<number>;
}

/** Bounded: the oldest that were not sent are dropped at the event store's own limit, and the loss is an event. */
export interface OutgoingEvents {
  pending(limit: number): readonly Sequenced<EventItem>[];
  ack(sequence: number): void;
  readonly latest: Watch<number>;
}

/** The fleet of the node's pods; kept across restarts. */
export interface KnownFleet {
  /** "" while the node has met none, and after it has joined again. */
  readonly id: string;
  set(id: string): void;
}

export interface MirrorSet {
  readonly current: readonly MirrorItem[];
  /** 8 bytes over namespace, name and uid of each; see protocol/tunnel/digest.ts. */
  readonly digest: Uint8Array;
}

/** All ports of the tunnel to the rest of the agent, joined by `main`. */
export interface TunnelPorts {
  readonly objects: RemoteObjects;
  readonly fleet: KnownFleet;
  readonly statuses: OutgoingStatuses;
  readonly events: OutgoingEvents;
  readonly mirrors: Watch<MirrorSet>;
  readonly report: Watch<NodeReportContent>;
  /** Undefined: there is none to be sent. */
  readonly telemetry?: OutgoingTelemetry;
  /** Undefined: this node has none for a hub. */
  readonly samples?: SampleSource;
}

/** Answers what the hub opens. Rejects with a StreamError; one that fails later resets its stream. Never throws. */
export type StreamHandler = (stream: IncomingStream) => void;
export type StreamHandlers = Readonly<Partial<Record<StreamKind, StreamHandler>>>;
