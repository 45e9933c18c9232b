/**
 * The messages of the tunnel's two ends, besides streams. One message is one CBOR frame of the mux (`mux.ts`);
 * `message-codec.ts` gives each its compact form on the wire, checks what comes in, and names the limits. PROTOCOL.md
 * beside this file is the specification.
 */
import type { Lane } from "./stream.ts";

/** WebSocket subprotocol. A hub that does not know the version asked for answers 426 with those it knows. */
export const TUNNEL_SUBPROTOCOL = "picolet.tunnel.v1";
/** The WebSocket's path below the hub's address. */
export const TUNNEL_PATH = "/v1/tunnel";

/**
 * `Pod/default/web`, `Secret/default/db`, `ConfigMap/…`, `Node//name`. One object each; a pod's UID is in its content.
 */
export type ObjectKey = string;

export const objectKey = (kind: string, namespace: string, name: string): ObjectKey => `${kind}/${namespace}/${name}`;

/** 16 bytes: of the object's content as the hub sends it; opaque to the agent, equal at every replica of a hub. */
export type ObjectHash = Uint8Array;

/**
 * An object as Kubernetes has it, cut down by the hub to what a node needs: no `status` (but a pod's conditions that
 * others set), no `managedFields`, no `resourceVersion`.
 */
export interface RemoteObject {
  readonly key: ObjectKey;
  readonly hash: ObjectHash;
  readonly object: Readonly<Record<string, unknown>>;
}

/** Where the two ends stand. `digest` (16 bytes) is `digestOf` all keys and hashes: equal digests are equal sets. */
export interface Cursor {
  /** 8 random bytes of one life of one hub; empty before the first welcome. Revisions count within it. */
  readonly epoch: Uint8Array;
  readonly revision: number;
  readonly digest: Uint8Array;
}

/** Agent, first of all. Nothing else is sent before the welcome. */
export interface Hello {
  readonly kind: "hello";
  readonly agentVersion: string;
  readonly cursor: Cursor;
  /** 8 bytes of `digestOf` the mirror set (see `Mirrors`). */
  readonly mirrorsDigest: Uint8Array;
  /** 8 bytes: hash of the node report that was acknowledged last; empty: none. */
  readonly nodeHash: Uint8Array;
  /** The agent's wall clock, milliseconds since the epoch; it may be wrong, which is what the hub finds out by it. */
  readonly timeMs: number;
  /** Statuses to send. One that was acknowledged in an earlier session does not count. */
  readonly pendingStatuses: number;
}

/** Hub, in answer. */
export interface Welcome {
  readonly kind: "welcome";
  readonly hubVersion: string;
  readonly epoch: Uint8Array;
  readonly revision: number;
  readonly timeMs: number;
  /**
   * `current`: the digests agree, nothing follows. `delta`: the journal reaches back, `desired` follows with what
   * changed. `inventory`: the agent is to send its inventory, then `desired` follows with what differs.
   */
  readonly desired: "current" | "delta" | "inventory";
  /** The hub asks for the whole mirror set, and for the whole node report. */
  readonly wantsMirrors: boolean;
  readonly wantsNode: boolean;
  /** Streams of kind `telemetry` may be opened; older hubs do not know them. */
  readonly takesTelemetry: boolean;
  /** The fleet of the pods; undefined: an older hub, or one that cannot read it. */
  readonly fleet?: FleetIdentity | undefined;
  /** Statuses may be sent in the compact form (`compact-status.ts`); older hubs do not know it. Only with `fleet`. */
  readonly takesCompactStatuses?: boolean | undefined;
  /**
   * How often the hub wants a sample of the board's usage (`telemetry/usage-sample.ts`), in a stream of kind `samples`;
   * undefined: never. Only with `fleet`. A board takes one less often than that at most, and none below its own least.
   */
  readonly samplesEverySeconds?: number | undefined;
}

/**
 * The cluster whose objects a hub sends. An agent takes them only from the fleet it knows, or one that took it over.
 */
export interface FleetIdentity {
  /** The fleet's id, at most 64 characters: for a Kubernetes cluster the UID of its namespace kube-system. */
  readonly id: string;
  /** Ids of fleets that the hub's operator says are this one now; at most MAX_FORMER_FLEETS. */
  readonly former: readonly string[];
}

/** Agent: all it has, in pieces of at most MAX_INVENTORY_ITEMS. */
export interface Inventory {
  readonly kind: "inventory";
  readonly items: readonly { readonly key: ObjectKey; readonly hash: ObjectHash }[];
  readonly last: boolean;
}

/**
 * Hub: from what the agent has to `revision`. Pieces of one revision are applied together when the one with
 * `last` has come; a session that ends before leaves nothing of them.
 */
export interface Desired {
  readonly kind: "desired";
  readonly revision: number;
  readonly upserts: readonly RemoteObject[];
  readonly deletes: readonly ObjectKey[];
  readonly last: boolean;
  /** With `last`: the digest of the whole set after it. An agent with another digest answers with a `resync`. */
  readonly digest: Uint8Array;
}

/** Agent: everything up to `revision` is on its disk. Cumulative. */
export interface DesiredAck {
  readonly kind: "desiredAck";
  readonly revision: number;
}

/** Agent: the digest of its set differs from the one it received. The hub answers with a welcome of `inventory`. */
export interface Resync {
  readonly kind: "resync";
}

/** Agent: pod statuses, oldest change first. Acknowledged cumulatively by `sequence`. */
export interface Statuses {
  readonly kind: "statuses";
  readonly sequence: number;
  readonly items: readonly StatusItem[];
  /** More items, of pods that are not among `items`. */
  readonly compact?: readonly CompactStatus[] | undefined;
  readonly ackMayWait?: AckMayWait;
}

/**
 * The hub may keep the acknowledgement until it has something else to say, as a pong; an older one answers at once. An
 * agent that waits for acknowledgements, or soon will, says nothing of it.
 */
type AckMayWait = boolean | undefined;

/** A status of which the hub has an earlier one; see `compact-status.ts`. */
export interface CompactStatus {
  /** COMPACT_KEY_BYTES: which pod, and which status of it the delta starts from. */
  readonly key: Uint8Array;
  readonly delta: Uint8Array;
}

export interface StatusItem {
  readonly namespace: string;
  readonly name: string;
  /**
   * `metadata.uid` in the API server; for a mirrored pod the static pod's own (annotation kubernetes.io/config.hash).
   */
  readonly uid: string;
  readonly body: StatusBody;
}

export type StatusBody =
  /** The whole of `status`. */
  | { readonly kind: "full"; readonly status: Readonly<Record<string, unknown>> }
  /** The delta that `diffJson` made between the status whose `statusHash` is `base` and the new one. */
  | { readonly kind: "delta"; readonly base: Uint8Array; readonly delta: unknown }
  /**
   * Nothing of a pod that was to be deleted is left on the node: the hub deletes it from the API server. `status` is
   * its last.
   */
  | { readonly kind: "gone"; readonly status: Readonly<Record<string, unknown>> };

/** Hub: everything up to `sequence` is in the API server or can never be. */
export interface StatusesAck {
  readonly kind: "statusesAck";
  readonly sequence: number;
  /**
   * UIDs whose delta had no base here, of compact ones the key in hex: to be sent whole, under a new sequence. They are
   * not acknowledged.
   */
  readonly wantFull: readonly string[];
}

export interface EventItem {
  /** Stable over repeats: the object's name in the API server is made of it. */
  readonly id: string;
  readonly regarding: {
    readonly kind: string;
    readonly namespace: string;
    readonly name: string;
    readonly uid: string;
    readonly fieldPath: string;
  };
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
  readonly count: number;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
}

export interface Events {
  readonly kind: "events";
  readonly sequence: number;
  readonly items: readonly EventItem[];
  readonly ackMayWait?: AckMayWait;
}

export interface EventsAck {
  readonly kind: "eventsAck";
  readonly sequence: number;
}

/**
 * Agent: what a Node object gets from its node: labels, taints to register with, status. Whole, or against the one
 * acknowledged.
 */
export interface NodeReport {
  readonly kind: "node";
  /** 8 bytes, of this report; comes back in the ack. */
  readonly hash: Uint8Array;
  readonly body:
    | { readonly kind: "full"; readonly report: NodeReportContent }
    | { readonly kind: "delta"; readonly base: Uint8Array; readonly delta: unknown };
}

export interface NodeReportContent {
  /** True when the hub creates a missing Node object (`registerNode`). */
  readonly register: boolean;
  readonly labels: Readonly<Record<string, string>>;
  /** Given at registration only, as the kubelet does. */
  readonly taints: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
  readonly providerID: string;
  /** A Node's `status` but `daemonEndpoints`, which are the hub's. Heartbeat times are left out; the hub sets them. */
  readonly status: Readonly<Record<string, unknown>>;
  /** JSON of an `UpdateReport`, for UPDATE_STATUS_ANNOTATION; absent: nothing was ever updated. Older hubs drop it. */
  readonly updates?: string | undefined;
  /** JSON of `CsiDriverReport`s; absent: no CSI driver has registered. Older hubs drop it. */
  readonly csi?: string | undefined;
  /** JSON of `ExpandedClaim`s; absent: there are none. Older hubs drop it. */
  readonly expandedClaims?: string | undefined;
  /** JSON of the DRA drivers whose ResourceSlices stay; absent: not known yet. Older hubs drop it. */
  readonly draDrivers?: string | undefined;
  /** Devices, for DEVICES_ANNOTATION; "": there are none; absent: not known yet. */
  readonly devices?: string | undefined;
}

export interface NodeAck {
  readonly kind: "nodeAck";
  readonly hash: Uint8Array;
  /** The base was not known here: send it whole. */
  readonly wantFull: boolean;
}

/** Agent: all pods of sources other than the API server, as the mirror pods are to show them; in pieces. */
export interface Mirrors {
  readonly kind: "mirrors";
  readonly items: readonly MirrorItem[];
  readonly last: boolean;
}

export interface MirrorItem {
  readonly namespace: string;
  readonly name: string;
  /** The static pod's UID; becomes kubernetes.io/config.hash and kubernetes.io/config.mirror. */
  readonly uid: string;
  /** kubernetes.io/config.source: `file`, `http`, `push`. */
  readonly source: string;
  readonly pod: Readonly<Record<string, unknown>>;
}

/** Hub: it is about to end. The agent opens a new session elsewhere first, then ends this one. */
export interface Drain {
  readonly kind: "drain";
  /** Spread over the fleet by the hub. */
  readonly reconnectAfterMs: number;
  readonly reason: string;
}

/** Either: the other end did something that it may not; the session ends after it. */
export interface Refusal {
  readonly kind: "refusal";
  /** Stable, machine-readable: `version`, `protocol`, `superseded`, `limit`, `overloaded`. */
  readonly code: string;
  readonly message: string;
  /** How long to stay away; 0: the usual back-off. */
  readonly retryAfterMs: number;
}

export type AgentMessage = Hello | Inventory | DesiredAck | Resync | Statuses | Events | NodeReport | Mirrors | Refusal;
export type HubMessage = Welcome | Desired | StatusesAck | EventsAck | NodeAck | Drain | Refusal;
export type TunnelMessage = AgentMessage | HubMessage;

/** The lane of each kind. Order is kept within a lane. */
export const LANE_OF: Readonly<Record<TunnelMessage["kind"], Lane>> = {
  hello: "control",
  welcome: "control",
  inventory: "control",
  desired: "control",
  desiredAck: "control",
  resync: "control",
  drain: "control",
  refusal: "control",
  statuses: "status",
  statusesAck: "status",
  node: "status",
  nodeAck: "status",
  mirrors: "status",
  events: "status",
  eventsAck: "status",
};
