/**
 * The interface of a container runtime to the agent. Every adapter passes the conformance suite in
 * `runtime-adapters/test-kit/conformance/conformance.ts`. Adapters decide nothing: they list, they inspect, they carry
 * out one action.
 */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { Pod, PodCondition, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";

/** Where a desired pod came from. Fixed order of precedence when two sources claim one name: as listed. */
export type SourceId = "file" | "http" | "push" | "api";

/** One pod this node is to run: defaulted and validated, static pods already named `<name>-<node>`. */
export interface DesiredPod {
  readonly uid: PodUid;
  readonly source: SourceId;
  /** The exact place for messages: a file's absolute path, a URL, "" for the API server. */
  readonly origin: string;
  readonly pod: Pod;
  /** Conditions of the API server's object that others than this node write: readiness gates, DisruptionTarget. */
  readonly conditions?: readonly PodCondition[] | undefined;
  /**
   * The runtime that this node chose for a pod that can run on either. Undefined: there is no choice, or none was made
   * yet.
   */
  readonly runtime?: ChosenRuntime | undefined;
}

export type RuntimeKind = "component" | "container";

/** The runtime that was chosen for a pod that can run on either; kept with the pod until it goes. */
export interface ChosenRuntime {
  readonly kind: RuntimeKind;
  /**
   * `Preferred`; `OnlyForm`: an image has no other; `CannotBeComponent`: the pod asks for what components have not;
   * `OnlyRuntime`: this node has no other; `AsFound`: it ran so already; `MemoryPressure`: it was switched.
   */
  readonly reason: "Preferred" | "OnlyForm" | "CannotBeComponent" | "OnlyRuntime" | "AsFound" | "MemoryPressure";
  /** The reason of the choice, for the user. */
  readonly message: string;
}

/** One line of a relist. `version` is opaque and changes whenever `inspect` of this pod would show anything new. */
export interface PodListing {
  readonly uid: PodUid;
  readonly version: string;
}

export interface ObservedPod {
  readonly uid: PodUid;
  /** Newest first (highest attempt). Empty when the runtime knows nothing of this pod. */
  readonly sandboxes: readonly ObservedSandbox[];
  /** Every attempt of every container that the runtime still has, newest first. */
  readonly containers: readonly ObservedContainer[];
  /**
   * The pod from which the newest sandbox was made. With it a new agent adopts or ends a pod that its store has lost.
   */
  readonly manifest: DesiredPod | undefined;
}

export interface ObservedSandbox {
  readonly id: string;
  readonly attempt: number;
  readonly state: "ready" | "notReady";
  /** Milliseconds since the epoch, as is every `…AtMs`. */
  readonly createdAtMs: number;
  /** First is the pod's primary address. Empty with the host's network. */
  readonly ips: readonly string[];
}

export interface ObservedContainer {
  readonly id: string;
  readonly name: string;
  /** 0 for the first run; the restart count of this run. */
  readonly attempt: number;
  readonly sandboxId: string;
  readonly createdAtMs: number;
  readonly state: ContainerState;
  /** `containerHash` of the spec it was made from. */
  readonly hash: string;
  /** The pause between this run's end and the next run; recorded when the run was started. */
  readonly backoff: Millis;
  /** The image's name in the pod. */
  readonly image: string;
  /** The image that the runtime resolved, `imageID` of the status. */
  readonly imageId: string;
  /** Absolute. */
  readonly logPath: string;
  /** The user that its first process started as, where the runtime reports it. */
  readonly user?: ContainerUser | undefined;
  /** CPU and memory that it was started with, or that it was last updated to where the runtime keeps that. */
  readonly resources?: ResourceRequirements | undefined;
  /** The values of its cgroup, where the runtime reports them. */
  readonly cgroup?: CgroupValues | undefined;
}

export interface ContainerUser {
  readonly uid: number;
  readonly gid: number;
  readonly supplementalGroups: readonly number[];
}

export type ContainerState =
  | { readonly kind: "created" }
  | { readonly kind: "running"; readonly startedAtMs: number }
  | {
      readonly kind: "exited";
      readonly startedAtMs: number;
      readonly finishedAtMs: number;
      /** 128 + n when signal n ended it; 137 for an OOM kill. */
      readonly exitCode: number;
      /** `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown` … */
      readonly reason: string;
      readonly message: string;
    }
  | { readonly kind: "unknown" };

/** One step towards the desired state. Carrying out the same step twice must be harmless. */
export type Action =
  | { readonly kind: "createSandbox"; readonly sandbox: SandboxLaunch }
  /**
   * In the newest ready sandbox of the pod; `not_found` when there is none. Creates and starts; a half-made one is
   * removed.
   */
  | { readonly kind: "startContainer"; readonly container: ContainerLaunch }
  /**
   * SIGTERM (or the image's stop signal), then SIGKILL after `gracePeriod`. Done when it has exited. 0 kills at once.
   */
  | { readonly kind: "stopContainer"; readonly containerId: string; readonly gracePeriod: Millis }
  /**
   * CPU and memory of one that runs, all of them, or where it runs; what is missing stays. `not_found` for one that
   * does not run.
   */
  | {
      readonly kind: "updateContainer";
      readonly containerId: string;
      readonly resources?: ResourceRequirements | undefined;
      readonly cpuset?: Cpuset | undefined;
    }
  /**
   * Reports a pod's resources after a change of them, to a runtime that has a use for them: a machine of the sandbox's
   * own, or plugins. Changes neither the pod's cgroup nor its containers. Done where the runtime has no such call.
   */
  | { readonly kind: "updateSandbox"; readonly sandboxId: string }
  /** Removes a container that has exited; `conflict` for a running one. Its log file stays. */
  | { readonly kind: "removeContainer"; readonly containerId: string }
  /** Kills what still runs in it, takes its network down. */
  | { readonly kind: "stopSandbox"; readonly sandboxId: string }
  /** Removes the sandbox with all of its containers. */
  | { readonly kind: "removeSandbox"; readonly sandboxId: string };

export interface SandboxLaunch {
  /** 0 for the first sandbox of this pod, one more for each that replaces a dead one. */
  readonly attempt: number;
  /** `<podLogsDir>/<namespace>_<name>_<uid>`, exists already. */
  readonly logDirectory: string;
  /** cgroupfs path of the pod's cgroup, such as `/kubepods/burstable/pod<uid>`; empty: no cgroups here. */
  readonly cgroupParent: string;
  readonly hostname: string;
  readonly dns: DnsConfig | undefined;
  /** The handler of the pod's RuntimeClass; undefined or "": the runtime's default. */
  readonly runtimeHandler?: string | undefined;
  /** With `hostUsers: false`: the pod's range of the node's ids. */
  readonly userNamespace?: UserNamespace | undefined;
  /** As in `ContainerLaunch`. */
  readonly extraGroups?: readonly number[] | undefined;
}

/** The pod's ids 0 … length - 1 are the node's hostId … hostId + length - 1. */
export interface UserNamespace {
  readonly hostId: number;
  readonly length: number;
}

export interface DnsConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/**
 * A container's spec made concrete: volumes are paths, references are values, the image is on disk. All else
 * (resources, securityContext, tty, terminationMessagePath …) the adapter reads from the pod's container of this name.
 */
export interface ContainerLaunch {
  readonly name: string;
  readonly attempt: number;
  readonly hash: string;
  readonly backoff: Millis;
  readonly image: ResolvedImage;
  /** Empty: the image's own. */
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env: readonly EnvVar[];
  /** Empty: the image's own. */
  readonly workingDir: string;
  readonly mounts: readonly Mount[];
  /** Devices of the node for the container. Undefined: only those that every container has. */
  readonly devices?: readonly Device[] | undefined;
  /** For the runtime's own use, as a device plugin gives them. Undefined: none. */
  readonly annotations?: Readonly<Record<string, string>> | undefined;
  /** CDI names (`vendor.com/class=name`) for the runtime to apply itself. Undefined: none. */
  readonly cdiDevices?: readonly string[] | undefined;
  /** Groups of the pod's volumes, beside those of its securityContext. Undefined: none. */
  readonly extraGroups?: readonly number[] | undefined;
  /** Relative to the sandbox's log directory: `<container>/<attempt>.log`. */
  readonly logPath: string;
  /** Missing: wherever the kernel likes. */
  readonly cpuset?: Cpuset | undefined;
  /** Only in an ephemeral container: the running container whose processes it shares. */
  readonly targetContainerId?: string | undefined;
}

/** Lists as the kernel writes them (`0-3,7`). "": not said. */
export interface Cpuset {
  readonly cpus: string;
  readonly mems: string;
  /** True when no other container runs on these CPUs: no quota is enforced on them. */
  readonly exclusive?: boolean | undefined;
}

export interface ResolvedImage {
  /** The image's name in the pod. */
  readonly requested: string;
  /** The id from `ImageService.status`, which spares the start another lookup. */
  readonly id: string;
}

export interface EnvVar {
  readonly name: string;
  readonly value: string;
}

export interface Device {
  readonly containerPath: string;
  readonly hostPath: string;
  readonly readOnly: boolean;
  /** Letters of `rwm`. Undefined: `r` where `readOnly`, else all. */
  readonly permissions?: string | undefined;
}

export interface Mount {
  readonly containerPath: string;
  /** "" with `image`. */
  readonly hostPath: string;
  /** Files of an image that the runtime itself mounts: see `ImageMounts`. */
  readonly image?: { readonly id: string; readonly subPath: string } | undefined;
  readonly readOnly: boolean;
  readonly propagation: "private" | "hostToContainer" | "bidirectional";
  /**
   * With `readOnly`: what is mounted below it is read-only too. Only where `RuntimeStatus.handlers` says that it can.
   */
  readonly recursiveReadOnly?: boolean | undefined;
}

export interface ContainerIsolation {
  /** Its name in the pod. */
  readonly container: string;
  /** Measures that the kernel enforces: "seccomp filter". */
  readonly measures: readonly string[];
  /** Measures that the kernel could enforce, and does not. */
  readonly missing: readonly string[];
}

export interface RuntimeStatus {
  /** `containerd`, `cri-o`, `picolet-wasm` … */
  readonly runtime: string;
  readonly version: string;
  /** A condition of CRI: RuntimeReady, NetworkReady. */
  readonly conditions: readonly RuntimeCondition[];
  /** As far as the runtime tells; containerd does from 2.0 on. */
  readonly handlers?: readonly RuntimeHandler[] | undefined;
  /** The runtime tells a container's groups by `supplementalGroupsPolicy`. */
  readonly supplementalGroupsPolicy?: boolean | undefined;
  /** Limitations of the runtime on this node that keep no pod from running. */
  readonly notes?: readonly string[] | undefined;
}

export interface RuntimeHandler {
  /** "" is the default one. */
  readonly name: string;
  readonly recursiveReadOnlyMounts: boolean;
  readonly userNamespaces: boolean;
}

export interface RuntimeCondition {
  readonly type: string;
  readonly status: boolean;
  readonly reason: string;
  readonly message: string;
}

export interface ImageInfo {
  /** Digest of the image's configuration or manifest: what the runtime calls it. */
  readonly id: string;
  readonly tags: readonly string[];
  /** `name@sha256:…` */
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly pinned: boolean;
}

export interface ImageCredentials {
  readonly username: string;
  readonly password: string;
  /** The one host they are for; "": whichever the runtime gets the image from. */
  readonly serverAddress: string;
  /** The registry's token server exchanges it for a token; it replaces user and password. */
  readonly identityToken?: string;
  /** Sent to the registry as it is. */
  readonly registryToken?: string;
}

export interface PullOptions {
  readonly credentials?: ImageCredentials | undefined;
  /** The source for messages: `secret shop/pull`. */
  readonly credentialsFrom?: string | undefined;
  /** The pod of the pull: runtimes may choose by its namespace, labels and annotations. */
  readonly pod?: DesiredPod | undefined;
}

/** The content of an image's name in its registry. */
export interface ImagePlatforms {
  /** A component, for any node. */
  readonly component: boolean;
  /** An image of containers for this node: Linux, and its architecture. */
  readonly container: boolean;
  /** All platforms: `linux/arm64/v8`, `wasi/wasm`. */
  readonly platforms: readonly string[];
}

/** One that a registry has of an image, as cosign stores it. */
export interface ImageSignature {
  /** The signed payload, base64. */
  readonly payload: string;
  /** Base64. */
  readonly signature: string;
}

/** The current content of an image's name, and its signatures. */
export interface SignedImage {
  /** `sha256:…` of its manifest or index. */
  readonly digest: string;
  readonly signatures: readonly ImageSignature[];
}

/** The size of an image's content in the runtime's store. */
export interface PullProgress {
  readonly bytes: number;
  readonly totalBytes: number;
  /** Some of it is on its way; else the registry is being asked, or what has come is being unpacked. */
  readonly isTransferring: boolean;
}

/** A file system that a runtime uses, as CRI's ImageFsInfo has it. */
export interface RuntimeFilesystem {
  /** A folder on it, absolute. */
  readonly mountPoint: string;
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

/** The facts about a runtime's images that garbage collection needs. */
export interface ImageHoldings {
  /** Ids, digests and names of images in use by any client of the runtime: containers in any state, sandboxes. */
  readonly used: ReadonlySet<string>;
  /** The size of what the runtime has derived from an image and removes with it, by the image's id. */
  readonly derivedBytes: ReadonlyMap<string, number>;
}

/** On disk. */
export interface WritableLayer {
  readonly bytes: number;
  readonly inodes: number;
}

export interface ImageService {
  /** Also takes away what is left of images that are gone. Missing: nothing but the agent's own pods uses images. */
  holdings?(signal: AbortSignal): Promise<ImageHoldings>;
  /** Where images are, and where what containers write is. Missing: below the agent's root directory. */
  filesystems?(
    signal: AbortSignal,
  ): Promise<{ readonly images: RuntimeFilesystem; readonly containers: RuntimeFilesystem }>;
  list(signal: AbortSignal): Promise<readonly ImageInfo[]>;
  /** `undefined` when it is not on the node. */
  status(reference: string, signal: AbortSignal): Promise<ImageInfo | undefined>;
  /** From a registry. Errors carry the Kubernetes reason (`ErrImagePull`, `InvalidImageName` …). */
  pull(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImageInfo>;
  /**
   * Lists the platforms of an image's name: asks the registry, and uses the facts of a pulled image while the registry
   * cannot be reached. Undefined: this runtime cannot list them. Errors as those of `pull`.
   */
  platforms?(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImagePlatforms>;
  /**
   * Asks the registry, whichever runtime the image is for. Missing: this runtime cannot tell. Errors as those of
   * `pull`.
   */
  signatures?(reference: string, options: PullOptions, signal: AbortSignal): Promise<SignedImage>;
  /**
   * The progress of a pull of `reference`; `undefined` while it is not known. Missing: this runtime never reports it.
   */
  progress?(reference: string, signal: AbortSignal): Promise<PullProgress | undefined>;
  /** Tells the runtime itself never to remove the image. Missing, and `unimplemented`: it knows no such thing. */
  setPinned?(reference: string, isPinned: boolean, signal: AbortSignal): Promise<void>;
  remove(id: string, signal: AbortSignal): Promise<void>;
  /**
   * From a file on this node, with no network: an OCI or docker archive, or one `.wasm`, as far as this runtime can run
   * it.
   * @param name the name to give it; needed where the archive brings none.
   * @throws `unimplemented` when the file is nothing for this runtime; another one may take it.
   */
  import(path: string, name: string | undefined, signal: AbortSignal): Promise<readonly ImageInfo[]>;
}

/** A stream to a running container, or to a ready sandbox. */
export type StreamRequest =
  | ({ readonly kind: "exec"; readonly containerId: string; readonly command: readonly string[] } & StandardStreams)
  | ({ readonly kind: "attach"; readonly containerId: string } & StandardStreams)
  | { readonly kind: "portForward"; readonly sandboxId: string; readonly ports: readonly number[] };

export interface StandardStreams {
  readonly stdin: boolean;
  readonly stdout: boolean;
  /** Never together with `tty`, which has one output. */
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Where to get it. */
export type RuntimeStream =
  /**
   * From the runtime's own streaming server on this machine: one HTTP/1.1 request for `path`, without TLS, that asks
   * for an upgrade to SPDY/3.1 or a WebSocket with one of Kubernetes' protocols. Good for one connection, for about a
   * minute.
   */
  | { readonly kind: "upgrade"; readonly host: string; readonly port: number; readonly path: string }
  /** From the container's log: what is written to it from now on is what its streams have. There is no way in. */
  | { readonly kind: "log"; readonly logPath: string }
  /**
   * The pod's own sockets: a client that connects to one of these ports of this address reaches the pod. The pod has no
   * other ports.
   */
  | { readonly kind: "ports"; readonly host: string; readonly ports: readonly number[] };

/** The output, at most some 16 MiB each, where the runtime cuts it off. */
export interface ExecResult {
  readonly exitCode: number;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
}

/** Volumes made of images. */
export interface ImageMounts {
  /**
   * Shows the image's files at `target`, an empty folder of which no other pod has the like, and keeps them from being
   * removed with the image. Again is harmless.
   * @param forOthers for a pod of another runtime, which takes nothing but paths
   * @returns `byRuntime`: nothing was done, `Mount.image` is what this runtime takes instead; never `forOthers`
   */
  mount(
    image: ResolvedImage,
    target: string,
    forOthers: boolean,
    signal: AbortSignal,
  ): Promise<"mounted" | "byRuntime">;
  /** Takes away what `mount` made, also what a crash has left of it. The folder stays. */
  unmount(target: string, signal: AbortSignal): Promise<void>;
}

/** The usage of a container that shares its process with others, as far as it can be measured apart. */
export interface SharedUsage {
  /** The CPU time since its start. */
  readonly cpuNanoseconds: number;
  readonly memoryBytes: number;
}

export interface RuntimeAdapter extends AsyncDisposable {
  readonly name: string;
  readonly images: ImageService;
  /** Missing: an image cannot be a volume here. */
  readonly imageMounts?: ImageMounts | undefined;
  status(signal: AbortSignal): Promise<RuntimeStatus>;
  /** Every pod of ours that the runtime knows, running or not. The node's health comes from this alone. */
  list(signal: AbortSignal): Promise<readonly PodListing[]>;
  inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod>;
  apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void>;
  /** The size of the containers' writable layers, by container id: all of ours in one call. Undefined: not known. */
  writtenLayers?(signal: AbortSignal): Promise<ReadonlyMap<string, WritableLayer>>;
  /** The usage of containers that have no cgroup of their own, by container id. Undefined: each has its own. */
  sharedUsage?(signal: AbortSignal): Promise<ReadonlyMap<string, SharedUsage>>;
  /** The UIDs of all pods that the runtime has, also those of its other clients. Missing: it cannot tell. */
  everyPod?(signal: AbortSignal): Promise<ReadonlySet<string>>;
  /** Gives back at once the room of what has been removed. Missing: a removal does so by itself. */
  freeRemoved?(signal: AbortSignal): Promise<void>;
  /** Why this runtime could never run the pod, in words; `undefined`: it may. Missing: it runs any. */
  refusal?(pod: Pod): Promise<string | undefined> | string | undefined;
  /**
   * Checks whether this container would start, without making it, and does ahead what takes long at a start. The image
   * is present. Undefined: the runtime cannot check.
   * @throws the reason for which it would not start
   */
  check?(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void>;
  /**
   * Names the isolation of all that this node runs, in a few words; `undefined`: not known yet. Missing: not known
   * here.
   */
  isolationLevel?(): string | undefined;
  /**
   * How the containers of a pod that run are isolated from the node, as the kernel says. Missing: it is not known here.
   */
  isolation?(uid: PodUid, signal: AbortSignal): Promise<readonly ContainerIsolation[]>;
  /** Memory is short: gives up at once what is only kept ready. Missing: there is nothing such. */
  shed?(): void;
  /** A call that a healthy runtime answers at once, also under load. Undefined: the runtime is part of this process. */
  ping?(signal: AbortSignal): Promise<void>;
  /** Resolves when a connection to the runtime that there was breaks, or `signal` aborts. */
  disconnected?(signal: AbortSignal): Promise<void>;
  /** Pods of which something may have changed; late, doubled and lost hints are harmless. Ends when `signal` aborts. */
  hints?(signal: AbortSignal): AsyncIterable<PodUid>;
  /**
   * Has the runtime send something that concerns no pod the way that hints come. True: it came. False: nothing can be
   * told now. Missing: it never can.
   */
  tryHints?(signal: AbortSignal): Promise<boolean>;
  /** After the agent renamed a log file away: go on writing to a new one under the old name. */
  reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void>;
  /**
   * True when a container whose log is larger than the node allows waits until it has been rotated. Undefined: it
   * continues to write.
   */
  readonly boundsLogs?: boolean;
  /**
   * @throws `not_found` for what does not run, `unimplemented` with the reason for what this runtime's pods cannot do.
   */
  stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream>;
  /**
   * Runs a command in a running container and waits for its end, without input.
   * @throws `deadline_exceeded` only when the runtime reports that the command took longer than `timeout` and was
   * killed; `unavailable` when the runtime has not answered; `not_found`, `unimplemented` as `stream`.
   */
  execSync(
    uid: PodUid,
    containerId: string,
    command: readonly string[],
    timeout: Millis,
    signal: AbortSignal,
  ): Promise<ExecResult>;
}
