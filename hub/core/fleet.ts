/**
 * Between the hub's tunnel end (`hub/tunnel`), which speaks to agents, what stands for Kubernetes (`hub/bridge`), and
 * the kubelet endpoint (`hub/kubelet-proxy`). `hub/main` joins them.
 */
import type { ListenableWatch, Watch } from "@picolet/protocol/async/watch.ts";
import type { PodIdentity } from "@picolet/protocol/tunnel/compact-status.ts";
import type {
  EventItem,
  MirrorItem,
  NodeReportContent,
  ObjectHash,
  ObjectKey,
  RemoteObject,
} from "@picolet/protocol/tunnel/messages.ts";
import type {
  AccessReply,
  Lane,
  OpenedStream,
  ReviewParams,
  ServingReply,
  StreamKind,
  TokenParams,
  TokenReply,
} from "@picolet/protocol/tunnel/stream.ts";

/** The present desired set of one node. A new one for each change; content is shared, never changed. */
export interface DesiredSet {
  /** False until the hub's own watches have synced: nothing may be concluded from what is missing. */
  readonly synced: boolean;
  /** Counts the changes of this set within one life of this hub. */
  readonly revision: number;
  readonly digest: Uint8Array;
  readonly hashes: ReadonlyMap<ObjectKey, ObjectHash>;
}

/**
 * One node's side of Kubernetes. Every write is made as that node (impersonation of `system:node:NAME` in
 * `system:nodes`) and reaches objects of that node alone.
 */
export interface NodeBackend extends AsyncDisposable {
  readonly desired: ListenableWatch<DesiredSet>;
  /** The object under `key` as it is now; undefined when it is gone since. */
  object(key: ObjectKey): RemoteObject | undefined;
  /** 8 bytes over the mirror pods that the API server has of this node; undefined before the sync. */
  mirrorsDigest(): Uint8Array | undefined;
  /**
   * The report that was last put for this node by any replica, kept in an annotation of the Node; undefined when there
   * is none. What a `hello`'s nodeHash is compared with and a delta is applied to after a restart of the hub.
   */
  nodeReport(): NodeReportContent | undefined;
  /** The node's pods in the API server, by the UID under which the node reports them. */
  pods(): Iterable<PodIdentity>;
  /** The status that the API server has of a pod of this node, as the node wrote it. */
  statusOf(namespace: string, name: string, uid: string): Readonly<Record<string, unknown>> | undefined;
  /**
   * Writes statuses and carries out deletions. Resolves for those that are in the API server or never can be (the pod
   * is gone, another UID, refused as invalid). @throws retryable when the API server cannot be reached
   */
  putStatuses(statuses: readonly NodePodStatus[], signal: AbortSignal): Promise<void>;
  putEvents(events: readonly EventItem[], signal: AbortSignal): Promise<void>;
  /**
   * Registers the node if asked to and needed, writes labels it owns and its status with the hub as kubelet endpoint.
   */
  putNode(report: NodeReportContent, signal: AbortSignal): Promise<void>;
  /** Makes, replaces and deletes mirror pods so that they are these. */
  putMirrors(mirrors: readonly MirrorItem[], signal: AbortSignal): Promise<void>;
  /** @throws `permission_denied` unless the pod is on this node and uses that service account */
  requestToken(params: TokenParams, signal: AbortSignal): Promise<{ token: string; expirationTimestamp: string }>;
  /**
   * Asks the API server about the node's own port: about a client, and only about rights to this node and
   * the deletion of pods; or for the port's certificate, and only for this node's.
   */
  review(params: ReviewParams, signal: AbortSignal): Promise<TokenReply | AccessReply | ServingReply>;
}

export interface NodePodStatus extends PodIdentity {
  readonly status: Readonly<Record<string, unknown>>;
  readonly gone: boolean;
}

/** Kubernetes, for the whole fleet. */
export interface FleetBackend {
  /** While it is not disposed of, the node counts as alive: its Lease is renewed and its heartbeats are written. */
  connect(node: string): NodeBackend;
  /** Why no session can be served now; "" when it can. */
  readonly problem: Watch<string>;
}

/** Annotations of a Node, followed by a kind of update: the board's turn in a rollout. The board is not sent them. */
export const TURN_ANNOTATION_PREFIX = "picolet.io/rollout-";

/** A Node of the hub's, as its watch shows it. */
export interface FleetNode {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Without those that the bridge itself writes. */
  readonly annotations: Readonly<Record<string, string>>;
  /** Status of the condition Ready; "" when there is none. */
  readonly ready: string;
  /** The board's report of its updates, as its annotation has it. */
  readonly updateReport: string | undefined;
}

/** The few words that an overview of thousands of Nodes shows of one. */
export interface FleetBoardView {
  /** `DiskPressure=False,Ready=True`, in the order of the types. */
  readonly conditions: string;
  /** The agent's version in the Node's status; "" when it has none. */
  readonly version: string;
  readonly updateReport: string | undefined;
}

/** The Nodes of the fleet, connected or not, from the one watch that the hub has of them. */
export interface FleetNodes {
  /** True from the end of the first list on. */
  readonly synced: Watch<boolean>;
  names(): Iterable<string>;
  /** Parses the cached Node. Undefined for one that is gone or not of this hub. */
  node(name: string): FleetNode | undefined;
  /** Parses nothing. Undefined as for `node`. */
  view(name: string): FleetBoardView | undefined;
  /** @param onChange called once for each change, with the Node's name. @returns ends it */
  follow(onChange: (name: string) => void): Disposable;
}

/** A pod that the API server has bound to a board. */
export interface BoundPod extends PodIdentity {
  readonly node: string;
  /** Parses the cached pod. */
  readonly labels: () => Readonly<Record<string, string>>;
}

/** The pods of the fleet's boards, from the one watch that the hub has of them; `uid` as the board reports it. */
export interface BoundPods {
  podsOf(node: string): Iterable<BoundPod>;
  pod(namespace: string, name: string): BoundPod | undefined;
}

/** On a pod. `WHY_QUESTION` asks why the pod is as it is; the hub replaces it by the answer. No board is sent it. */
export const WHY_ANNOTATION = "picolet.io/why";
export const WHY_QUESTION = "?";

/** A pod whose annotation asks. `uid` is the API server's. */
export interface AskingPod extends PodIdentity {
  readonly node: string;
}

/** The pods that ask, from the one watch that the hub has of them. */
export interface PodQuestions {
  /**
   * @param onChange called with the path of each pod that asks or has stopped to, and with each change of one that
   *   asks; undefined: it no longer does. @returns ends it
   */
  follow(onChange: (path: string, asking: AskingPod | undefined) => void): Disposable;
}

/** The agents that are connected to this replica. */
export interface Fleet {
  has(node: string): boolean;
  /** Changes with every node that comes and goes. */
  readonly nodes: Watch<ReadonlySet<string>>;
  /** As `StreamOpener.open`; `unavailable` when the node is not connected here. */
  open(node: string, kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream>;
}

/** The hub's address as the kubelet of a node; written into the Node's status. */
export interface KubeletEndpoints {
  /**
   * Stable while the node is connected.
   * @param port where it was before this hub started: it is there again if that port is free
   */
  endpointOf(node: string, port?: number): { readonly address: string; readonly port: number };
}
