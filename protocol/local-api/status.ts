/**
 * The answers of the agent's local socket, which `edgectl` reads: HTTP/1.1 on a unix socket, JSON, under `/v1`. Readers
 * must let unknown fields pass; no field is renamed or removed within v1. Every other path is the kubelet's: its
 * requests and upgrades are those of port 10250, without authentication.
 */
import type { ErrorCode } from "../errors.ts";
import type { Pod } from "../pod/pod.ts";
import type { ConditionStatus, PodPhase } from "../pod/pod-status.ts";
import type { PodSummary } from "../pod/pod-summary.ts";
import type { UpdateKind, UpdateProgress } from "../updates/node-updates.ts";

export const DEFAULT_SOCKET_PATH = "/run/picolet/picolet.sock";

/** The body of every answer that is not 2xx, and the last line of a stream that failed (`type: "ERROR"`). */
export interface ApiError {
  readonly error: { readonly code: ErrorCode; readonly message: string };
}

export interface NodeCondition {
  /** `Ready`, `MemoryPressure`, `DiskPressure`, `PIDPressure` … */
  readonly type: string;
  readonly status: ConditionStatus;
  readonly reason: string;
  readonly message: string;
  /** RFC 3339. */
  readonly lastTransitionTime: string;
}

export interface RuntimeReport {
  /** The adapter: `cri`, `wasm`. */
  readonly name: string;
  /** `containerd`, `picolet-wasm` …; empty while it has never answered. */
  readonly runtime: string;
  readonly version: string;
  readonly ready: boolean;
  /** Why it is not ready; else empty. */
  readonly message: string;
  /** How this node isolates components; missing for other runtimes, and until the first component starts. */
  readonly isolation?: string;
}

/** GET /v1/namespaces/NAMESPACE/pods/POD/isolation: the running containers whose runtime reports their isolation. */
export interface IsolationAnswer {
  readonly containers: readonly {
    readonly container: string;
    readonly measures: readonly string[];
    readonly missing: readonly string[];
  }[];
}

export interface TunnelReport {
  readonly state: "disabled" | "connecting" | "connected" | "disconnected";
  /** RFC 3339; null: never in any other state. */
  readonly since: string | null;
  readonly rttMs: number | null;
  /**
   * The hub that is connected, or tried next. This and the next fields are present when the configuration names a hub.
   */
  readonly hub?: string;
  /** Why it is not connected; missing while nothing has failed. */
  readonly problem?: string;
  /**
   * True when a retry fails until the configuration, the token or the hub is changed. False: the hub cannot be reached
   * now.
   */
  readonly refused?: boolean;
  /** RFC 3339; null: under way, or waiting for the node's identity. */
  readonly nextTry?: string | null;
  /** RFC 3339, of the node's certificate; missing before it has one. */
  readonly certificate?: { readonly notBefore: string; readonly notAfter: string };
  /** Statuses of pods that a hub has not acknowledged yet. */
  readonly pendingStatuses?: number;
  /** Bytes since the agent started, without TLS and TCP. */
  readonly bytesSent?: number;
  readonly bytesReceived?: number;
  /** Sessions with a hub since the agent started. */
  readonly sessions?: number;
}

/** One pod in `edgectl status -o json`. */
export interface PodReport {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly source: string;
  readonly phase: PodPhase;
  /** Its condition Ready. */
  readonly ready: boolean;
  /** Restarts of all containers together. */
  readonly restarts: number;
  /** `cri`, `wasm`; empty when no runtime of this node runs it. */
  readonly runtime: string;
  /** Why it is not ready, or why the node ends it, "Reason: message"; else empty. */
  readonly message: string;
}

/** The node's resources and what of them is free now. Null: cannot be measured here. */
export interface ResourceReport {
  /** Quantities by resource name, as in a Node's status: cpu, memory, pods, ephemeral-storage. */
  readonly capacity: Readonly<Record<string, string>>;
  readonly allocatable: Readonly<Record<string, string>>;
  readonly memoryBytes: number;
  readonly memoryAvailableBytes: number | null;
  /** Size of the file system that holds the agent's state. */
  readonly diskBytes: number | null;
  readonly diskAvailableBytes: number | null;
}

export interface AgentReport {
  readonly rssBytes: number;
  /** The limit for `anonBytes`. */
  readonly budgetBytes: number;
  /** Anonymous memory, swapped or not: what is the agent's alone and stays until it gives it back. */
  readonly anonBytes: number;
  readonly version: string;
}

/** Bytes written to the disks that the node runs on. */
export interface FlashReport {
  /** Whole disks by kernel name: `mmcblk0`. Empty: unknown. */
  readonly disks: readonly string[];
  /** The day in UTC, `2026-11-20`; empty before the first sample. */
  readonly day: string;
  readonly today: {
    /** Bytes that all processes wrote; null: unknown. */
    readonly bytes: number | null;
    readonly agentBytes: number;
    /** The pods that wrote most, most first. `namespace/name`. */
    readonly pods: readonly { readonly name: string; readonly bytes: number }[];
  };
  /** The average of the previous days, at most 29; null while there are none. */
  readonly dailyAverage: {
    readonly bytes: number | null;
    readonly agentBytes: number;
    readonly days: number;
  } | null;
  /** A day, by all processes; null: none is set. */
  readonly budgetBytes: number | null;
  readonly agentBudgetBytes: number;
}

/** Points and events of components, on their way to the hub. */
export interface TelemetryReport {
  readonly queued: { readonly records: number; readonly batches: number; readonly bytes: number };
  readonly maxBytes: number;
  /** Records that were pushed out by newer ones, or grew too old, since the queue was made. */
  readonly dropped: number;
  /** Records that were not taken from components, since the agent's start. */
  readonly refused: number;
  /** Records that the hub has acknowledged, since the agent's start. */
  readonly forwarded: number;
  readonly lastForwardedAt: string | null;
  /** Why nothing is written to the disk; "": it is. */
  readonly problem: string;
}

/** How Secrets and tokens are encrypted on the board's disk. */
export interface SecretsAtRestReport {
  /** Where the key-encryption key is. `memory`: no provider works, the key ends with the agent's process. */
  readonly provider: "tpm2" | "systemd-creds" | "rpi-otp" | "file" | "memory";
  /** Completes "protects against …". */
  readonly protectsAgainst: string;
  /** Counts the rotations of the data key from 1; 0: none is kept. */
  readonly keyGeneration: number;
  /** RFC 3339, of the data key in use. */
  readonly keyCreatedAt: string;
  /** The time after which the next write rotates the data key; null: no key is kept. */
  readonly rotatesAt: string | null;
  /** Stored Secrets that cannot be opened until the hub has sent them again. */
  readonly unreadable: number;
  /** Why the provider, or the keys before these, cannot be used; else empty. */
  readonly problem: string;
}

/** A place that pods come from and that cannot be read as it is. What it said last goes on running. */
export interface SourceProblem {
  readonly source: string;
  /** A file's path, a URL. */
  readonly origin: string;
  /** Counted from 1; null where no line can be named. */
  readonly line: number | null;
  readonly message: string;
}

/** The agent's one judgement of the node. */
export interface HealthReport {
  /** The exit code of `edgectl status` is 0. */
  readonly healthy: boolean;
  /** `healthy: 3 pods`, `degraded: the node is not ready`. */
  readonly summary: string;
  /** What is known of the faults, a line each. */
  readonly details: readonly string[];
  /** The gravest first; a notice degrades nothing. */
  readonly findings: readonly {
    readonly state: string;
    readonly level: "fault" | "notice";
    readonly details: readonly string[];
  }[];
}

/** `edgectl status -o json`: the stable shape. */
export interface StatusReport {
  readonly node: string;
  readonly ready: boolean;
  readonly health: HealthReport;
  readonly conditions: readonly NodeCondition[];
  readonly runtimes: readonly RuntimeReport[];
  readonly tunnel: TunnelReport;
  readonly pods: readonly PodReport[];
  readonly resources: ResourceReport;
  readonly agent: AgentReport;
  readonly flash: FlashReport;
  readonly telemetry: TelemetryReport;
  /** Null: this node keeps no Secrets, as it belongs to no hub. Missing from agents before 0.2. */
  readonly secretsAtRest?: SecretsAtRestReport | null;
  readonly problems: readonly SourceProblem[];
  /**
   * Fields that no pod has, of manifests that run all the same: no fault of the node. Missing from agents before 0.2.
   */
  readonly warnings?: readonly SourceProblem[];
}

/** GET /v1/status: the stable shape, and for people what the other columns of a table need. */
export interface StatusAnswer extends StatusReport {
  readonly pods: readonly (PodReport & {
    readonly summary: PodSummary;
    readonly createdAt: string | null;
    /** False: the pod is a fault of the node. */
    readonly isWell: boolean;
  })[];
  readonly agent: AgentReport & {
    /** RFC 3339, by the agent's clock. */
    readonly startedAt: string;
    /** Whole milliseconds, by a clock that nothing sets. Undefined: the agent is older than edgectl. */
    readonly upMs?: number;
  };
}

/** GET /v1/pods: Kubernetes' own shape. */
export interface PodList {
  readonly apiVersion: "v1";
  readonly kind: "PodList";
  readonly metadata: { readonly resourceVersion: string };
  readonly items: readonly Pod[];
}

/** An event of Kubernetes' core/v1. */
export interface EventObject {
  readonly apiVersion: "v1";
  readonly kind: "Event";
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    /** The store's sequence number. */
    readonly resourceVersion: string;
    readonly creationTimestamp: string;
  };
  readonly involvedObject: {
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
  readonly firstTimestamp: string;
  readonly lastTimestamp: string;
  readonly source: { readonly component: string; readonly host: string };
}

/** GET /v1/events, oldest first. */
export interface EventList {
  readonly apiVersion: "v1";
  readonly kind: "EventList";
  readonly metadata: { readonly resourceVersion: string };
  readonly items: readonly EventObject[];
}

/** One line of a `watch=true` answer. */
export type WatchLine<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | ({ readonly type: "ERROR" } & ApiError);

export interface ImageReport {
  /** The adapter that has it: `cri`, `wasm`. */
  readonly runtime: string;
  readonly id: string;
  readonly tags: readonly string[];
  /** `name@sha256:…` */
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly pinned: boolean;
}

/** An image on its way. */
export interface ImagePullReport {
  readonly image: string;
  readonly runtime: string;
  /** `waiting`: for its turn. */
  readonly state: "waiting" | "pulling";
  /** RFC 3339; of the state. */
  readonly since: string;
  /** Null where the runtime does not tell. */
  readonly bytes: number | null;
  readonly totalBytes: number | null;
  /** `NAMESPACE/NAME` of those that wait for it; none when it is prefetched, or asked for by hand. */
  readonly pods: readonly string[];
}

/** An image that the node pulls before a pod needs it. */
export interface PrefetchReport {
  readonly image: string;
  readonly runtime: string;
  /** `node/NAME`, `pod/NAMESPACE/NAME`: who has the annotation. */
  readonly wantedBy: readonly string[];
  readonly state: "waiting" | "pulling" | "present" | "failed";
  /** Why it failed; else empty. */
  readonly message: string;
}

/** GET /v1/images. A runtime that does not answer is named in `problems`; the others' images are there. */
export interface ImageList {
  readonly items: readonly ImageReport[];
  readonly problems: readonly { readonly runtime: string; readonly message: string }[];
  readonly pulls: readonly ImagePullReport[];
  readonly prefetches: readonly PrefetchReport[];
  /** Names that are pinned, whether such images are here or not. */
  readonly pinned: readonly string[];
}

/** POST /v1/images/pull: from the registry, whether it is here or not. Answered with a stream of `ImagePullLine`. */
export interface ImagePullRequest {
  readonly image: string;
  /** `cri`, `wasm`; missing: the first that knows registries. */
  readonly runtime?: string | undefined;
  /** Where the secrets are; missing: `default`. */
  readonly namespace?: string | undefined;
  /** Pull secrets that a pod of this node names, or named. */
  readonly secrets?: readonly string[] | undefined;
}

export type ImagePullLine =
  | { readonly type: "PROGRESS"; readonly object: ImagePullReport }
  /** The last one. */
  | { readonly type: "PULLED"; readonly object: ImageReport }
  | ({ readonly type: "ERROR" } & ApiError);

/** POST /v1/images/remove: with all of its names. Answered with what is gone. */
export interface ImageRemoveRequest {
  /** A name, or an id as `edgectl image list -o wide` shows it. */
  readonly image: string;
  readonly runtime?: string | undefined;
  /** True to remove an image that is pinned or in use. */
  readonly force?: boolean | undefined;
}

export interface ImageRemoveAnswer {
  readonly items: readonly ImageReport[];
}

/** POST /v1/images/pin: garbage collection leaves images of that name alone, also those that come later. */
export interface ImagePinRequest {
  readonly image: string;
  readonly pinned: boolean;
}

export interface ImagePinAnswer {
  readonly pinned: readonly string[];
}

/** POST /v1/images/import */
export interface ImageImportRequest {
  /** Absolute, on this node. */
  readonly path: string;
  readonly name?: string | undefined;
}

export interface ImageImportAnswer {
  readonly items: readonly ImageReport[];
}

/** GET /v1/keyvalue: the buckets in which components keep values. */
export interface KeyvalueBucketList {
  readonly items: readonly KeyvalueBucketReport[];
}

export interface KeyvalueBucketReport {
  readonly namespace: string;
  readonly name: string;
  /** The size of keys and values. */
  readonly bytes: number;
  readonly keys: number;
  /** The day on which it was last asked for, `2026-11-20`, by the node's clock. */
  readonly usedOn: string;
  /** The largest of those that pods of this node name; null: none names it. */
  readonly quota: { readonly bytes: number; readonly keys: number } | null;
  /** The pods that name it. */
  readonly pods: readonly string[];
}

/** GET /v1/keyvalue/NAMESPACE/BUCKET/keys, by the bytes of their UTF-8. */
export interface KeyvalueKeyList {
  readonly items: readonly { readonly key: string; readonly bytes: number }[];
  /** The value of `after` for the next page; null: this is the last page. */
  readonly next: string | null;
}

/**
 * PUT and DELETE /v1/keyvalue/NAMESPACE/BUCKET/value, DELETE /v1/keyvalue/NAMESPACE/BUCKET: answered when it is on the
 * disk.
 */
export interface KeyvalueChangeAnswer {
  readonly namespace: string;
  readonly name: string;
  /** Missing: the whole bucket. */
  readonly key?: string;
}

/** PUT /v1/pushed-pods: what the pods that are sent mean for those that were sent before. */
export interface PushAnswer {
  /** Nothing has been changed: it was only asked what would be. */
  readonly dryRun: boolean;
  readonly items: readonly PushedPod[];
  /** Fields that no pod has. Missing from agents before 0.2. */
  readonly warnings?: readonly PushProblem[];
}

export interface PushedPod {
  readonly namespace: string;
  /** The name with the node's name at its end, as for every static pod. */
  readonly name: string;
  readonly uid: string;
  /** `configured`: the pod of this name is another one now, and is started when the one before has ended. */
  readonly change: "created" | "configured" | "unchanged" | "removed";
}

/** PUT /v1/pushed-pods, 400: nothing has been changed. */
export interface PushRefusal extends ApiError {
  readonly problems: readonly PushProblem[];
}

export interface PushProblem {
  /** The line in the document that was sent, from 1; null where no line can be named. */
  readonly line: number | null;
  /** The message with the field's path where there is one: `spec.containers[0].image: Required value`. */
  readonly message: string;
}

/** POST /v1/node/shutdown: answered when the pods have ended, or the node is back. */
export interface NodeShutdownRequest {
  /** The node comes back. */
  readonly cancel?: boolean | undefined;
  /** The time that pods have, in place of the configured one: 1 to MAX_SHUTDOWN_SECONDS. */
  readonly gracePeriodSeconds?: number | undefined;
}

/** One device that this node offers as an extended resource. */
export interface DeviceReport {
  /** Such as `example.com/camera`. */
  readonly resource: string;
  /** The plugin's own name for it, a path below /dev, or a CDI device. */
  readonly device: string;
  /** A device plugin, or `devices` of the configuration. */
  readonly source: "plugin" | "configuration";
  /** False also while its plugin is away. */
  readonly healthy: boolean;
  /** NUMA nodes near it. */
  readonly numaNodes: readonly number[];
  /** Null: it is free. */
  readonly usedBy: { readonly namespace: string; readonly pod: string; readonly container: string } | null;
}

/** GET /v1/devices, by resource and device. */
export interface DeviceList {
  readonly items: readonly DeviceReport[];
}

/** POST /v1/node/factory-reset: answered when the board's restart has begun, which empties it. */
export interface FactoryResetAnswer {
  readonly node: string;
}

/**
 * POST .../pods/NAME/restart and DELETE .../pods/NAME. `restarted`: it begins again on this board. `ended`: it is Failed
 * here, and its hub decides what follows. `removed`: it was applied here, and is wanted no more.
 */
export interface PodChangeAnswer {
  readonly namespace: string;
  readonly name: string;
  readonly source: "file" | "http" | "push" | "api";
  readonly change: "restarted" | "ended" | "removed";
}

/** A day: a longer one is a mistake. */
export const MAX_SHUTDOWN_SECONDS = 86_400;

export interface NodeShutdownAnswer {
  readonly node: string;
  /** Its pods have been ended, and it takes none. */
  readonly shutDown: boolean;
}

/** GET /v1/config: what is in force, defaults included. */
export interface ConfigAnswer {
  /** Null: there is none, all of it is defaults. */
  readonly file: string | null;
  /** KubeletConfiguration v1beta1 with picolet's own fields, as a file has them; secrets are `***`. */
  readonly configuration: Readonly<Record<string, unknown>>;
  /**
   * The fields that file and flags set: `maxPods`, `evictionHard`, `evictionHard[memory.available]`, `wasm.startTimeout`.
   * All others are defaults.
   */
  readonly given: readonly string[];
  /** Those of them that flags set, with the flag (`--max-pods`). Missing: none. */
  readonly flags?: readonly { readonly path: string; readonly flag: string }[] | undefined;
  /** Defaults that follow from this machine, with how they do. */
  readonly derived: readonly { readonly path: string; readonly how: string }[];
}

/** GET /v1/version */
export interface VersionAnswer {
  readonly version: string;
  readonly node: string;
}

/** GET /v1/updates */
export interface UpdateStatusAnswer {
  readonly agentVersion: string;
  /** Version of the image that runs; null on a vendor's system. */
  readonly osVersion: string | null;
  /** `A` or `B`; null on a vendor's system. */
  readonly slot: string | null;
  /** At most one for each kind. */
  readonly updates: readonly UpdateProgress[];
  /** Pods, files and users that keep the board from restarting, each with its reason. */
  readonly holds: readonly string[];
  /** That of `edgectl update hold`; null: none. `until`: RFC 3339; null: until it is released. */
  readonly hold: { readonly reason: string; readonly until: string | null } | null;
  /** Why the Node's annotations cannot be carried out; "" when they can. */
  readonly problems: string;
}

/** PUT /v1/updates/hold; DELETE releases it. Both are answered with the status. */
export interface UpdateHoldRequest {
  readonly reason: string;
  /** Null: until it is released. */
  readonly forMs: number | null;
}

/** POST /v1/updates/install */
export interface UpdateInstallRequest {
  /** On the board, absolute. */
  readonly path: string;
  /** Only find out whether it could be installed. */
  readonly check: boolean;
  readonly allowDowngrade: boolean;
}

export interface UpdateInstallAnswer {
  readonly kind: UpdateKind;
  /** "" before it is known. */
  readonly version: string;
  /** `good`: a check found nothing wrong. `current`: it is what runs. `began`: its progress is in the status. */
  readonly state: "good" | "current" | "began";
}
