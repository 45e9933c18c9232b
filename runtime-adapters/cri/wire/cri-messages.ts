/**
 * The messages of CRI, `runtime.v1`, with their field numbers. Source: the public definition of the interface,
 * k8s.io/cri-api, pkg/apis/runtime/v1/api.proto of Kubernetes 1.36; Linux only. Fields that are never read are left out
 * of responses, where they are then skipped, and requests have what we send. Enums are plain numbers with named values.
 * `published-messages.test.ts` compares them with the definition.
 */
import {
  bool,
  bytes,
  double,
  int32,
  int32s,
  int64,
  int64s,
  message,
  nanosecondTime,
  nested,
  repeated,
  string,
  stringMap,
  strings,
  uint32,
  uint64,
} from "./protobuf.ts";

export const PortProtocol = { TCP: 0, UDP: 1, SCTP: 2 } as const;
export const MountPropagation = { private: 0, hostToContainer: 1, bidirectional: 2 } as const;
export const NamespaceMode = { pod: 0, container: 1, node: 2, target: 3 } as const;
export const SupplementalGroupsPolicy = { Merge: 0, Strict: 1 } as const;
export const ProfileType = { RuntimeDefault: 0, Unconfined: 1, Localhost: 2 } as const;
export const SandboxState = { ready: 0, notReady: 1 } as const;
export const ContainerState = { created: 0, running: 1, exited: 2, unknown: 3 } as const;

/** `Signal`: `SIGTERM` and so on, by name. 0 is the runtime's default. */
export const SIGNAL_NUMBERS: ReadonlyMap<string, number> = new Map(
  [
    ["SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO"],
    ["SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP"],
    ["SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM"],
    ["SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN"],
    Array.from({ length: 15 }, (_, index) => `SIGRTMIN+${index + 1}`),
    Array.from({ length: 14 }, (_, index) => `SIGRTMAX-${14 - index}`),
    ["SIGRTMAX"],
  ]
    .flat()
    .map((name, index) => [name, index + 1]),
);

const Empty = message("Empty", {});
const Int64Value = message("Int64Value", { value: int64(1) });
const UInt64Value = message("UInt64Value", { value: uint64(1) });

// Sandboxes

const DnsConfig = message("DNSConfig", { servers: strings(1), searches: strings(2), options: strings(3) });
const PortMapping = message("PortMapping", {
  protocol: int32(1),
  containerPort: int32(2),
  hostPort: int32(3),
  hostIp: string(4),
});
const IdMapping = message("IDMapping", { hostId: uint32(1), containerId: uint32(2), length: uint32(3) });
const UserNamespace = message("UserNamespace", {
  mode: int32(1),
  uids: repeated(2, IdMapping),
  gids: repeated(3, IdMapping),
});
const NamespaceOption = message("NamespaceOption", {
  network: int32(1),
  pid: int32(2),
  ipc: int32(3),
  targetId: string(4),
  usernsOptions: nested(5, UserNamespace),
});
const SeLinuxOption = message("SELinuxOption", { user: string(1), role: string(2), type: string(3), level: string(4) });
const SecurityProfile = message("SecurityProfile", { profileType: int32(1), localhostRef: string(2) });
const HugepageLimit = message("HugepageLimit", { pageSize: string(1), limit: uint64(2) });
export const LinuxContainerResources = message("LinuxContainerResources", {
  cpuPeriod: int64(1),
  cpuQuota: int64(2),
  cpuShares: int64(3),
  memoryLimitInBytes: int64(4),
  oomScoreAdj: int64(5),
  cpusetCpus: string(6),
  cpusetMems: string(7),
  hugepageLimits: repeated(8, HugepageLimit),
  unified: stringMap(9),
  memorySwapLimitInBytes: int64(10),
});
export const LinuxSandboxSecurityContext = message("LinuxSandboxSecurityContext", {
  namespaceOptions: nested(1, NamespaceOption),
  selinuxOptions: nested(2, SeLinuxOption),
  runAsUser: nested(3, Int64Value),
  readonlyRootfs: bool(4),
  supplementalGroups: int64s(5),
  privileged: bool(6),
  runAsGroup: nested(8, Int64Value),
  seccomp: nested(9, SecurityProfile),
  apparmor: nested(10, SecurityProfile),
  supplementalGroupsPolicy: int32(11),
});
const LinuxPodSandboxConfig = message("LinuxPodSandboxConfig", {
  cgroupParent: string(1),
  securityContext: nested(2, LinuxSandboxSecurityContext),
  sysctls: stringMap(3),
  overhead: nested(4, LinuxContainerResources),
  resources: nested(5, LinuxContainerResources),
});
const PodSandboxMetadata = message("PodSandboxMetadata", {
  name: string(1),
  uid: string(2),
  namespace: string(3),
  attempt: uint32(4),
});
export const PodSandboxConfig = message("PodSandboxConfig", {
  metadata: nested(1, PodSandboxMetadata),
  hostname: string(2),
  logDirectory: string(3),
  dnsConfig: nested(4, DnsConfig),
  portMappings: repeated(5, PortMapping),
  labels: stringMap(6),
  annotations: stringMap(7),
  linux: nested(8, LinuxPodSandboxConfig),
});
export const RunPodSandboxRequest = message("RunPodSandboxRequest", {
  config: nested(1, PodSandboxConfig),
  runtimeHandler: string(2),
});
/** The request of every call that is about one sandbox, and the answer to RunPodSandbox. */
const SandboxId = message("PodSandboxId", { podSandboxId: string(1) });
const PodSandboxStatusRequest = message("PodSandboxStatusRequest", { podSandboxId: string(1), verbose: bool(2) });
const PodIp = message("PodIP", { ip: string(1) });
const PodSandboxNetworkStatus = message("PodSandboxNetworkStatus", {
  ip: string(1),
  additionalIps: repeated(2, PodIp),
});
const LinuxPodSandboxStatus = message("LinuxPodSandboxStatus", {
  namespaces: nested(1, message("Namespace", { options: nested(2, NamespaceOption) })),
});
const PodSandboxStatus = message("PodSandboxStatus", {
  id: string(1),
  metadata: nested(2, PodSandboxMetadata),
  state: int32(3),
  createdAtMs: nanosecondTime(4),
  network: nested(5, PodSandboxNetworkStatus),
  linux: nested(6, LinuxPodSandboxStatus),
  labels: stringMap(7),
  annotations: stringMap(8),
  runtimeHandler: string(9),
});
const PodSandboxStatusResponse = message("PodSandboxStatusResponse", {
  status: nested(1, PodSandboxStatus),
  info: stringMap(2),
});
const StateValue = message("StateValue", { state: int32(1) });
const ListPodSandboxRequest = message("ListPodSandboxRequest", {
  filter: nested(
    1,
    message("PodSandboxFilter", { id: string(1), state: nested(2, StateValue), labelSelector: stringMap(3) }),
  ),
});
const ListPodSandboxResponse = message("ListPodSandboxResponse", {
  items: repeated(
    1,
    message("PodSandbox", {
      id: string(1),
      metadata: nested(2, PodSandboxMetadata),
      state: int32(3),
      createdAtMs: nanosecondTime(4),
      labels: stringMap(5),
      annotations: stringMap(6),
      runtimeHandler: string(7),
    }),
  ),
});

// Containers

export const ImageSpec = message("ImageSpec", {
  image: string(1),
  annotations: stringMap(2),
  userSpecifiedImage: string(18),
  runtimeHandler: string(19),
  imageRef: string(20),
});
const Mount = message("Mount", {
  containerPath: string(1),
  hostPath: string(2),
  readonly: bool(3),
  selinuxRelabel: bool(4),
  propagation: int32(5),
  uidMappings: repeated(6, IdMapping),
  gidMappings: repeated(7, IdMapping),
  recursiveReadOnly: bool(8),
  image: nested(9, ImageSpec),
  imageSubPath: string(10),
});
const Capability = message("Capability", {
  addCapabilities: strings(1),
  dropCapabilities: strings(2),
  addAmbientCapabilities: strings(3),
});
export const LinuxContainerSecurityContext = message("LinuxContainerSecurityContext", {
  capabilities: nested(1, Capability),
  privileged: bool(2),
  namespaceOptions: nested(3, NamespaceOption),
  selinuxOptions: nested(4, SeLinuxOption),
  runAsUser: nested(5, Int64Value),
  runAsUsername: string(6),
  readonlyRootfs: bool(7),
  supplementalGroups: int64s(8),
  noNewPrivs: bool(11),
  runAsGroup: nested(12, Int64Value),
  maskedPaths: strings(13),
  readonlyPaths: strings(14),
  seccomp: nested(15, SecurityProfile),
  apparmor: nested(16, SecurityProfile),
  supplementalGroupsPolicy: int32(17),
});
const ContainerMetadata = message("ContainerMetadata", { name: string(1), attempt: uint32(2) });
const KeyValue = message("KeyValue", { key: string(1), value: bytes(2) });
const Device = message("Device", { containerPath: string(1), hostPath: string(2), permissions: string(3) });
export const ContainerConfig = message("ContainerConfig", {
  metadata: nested(1, ContainerMetadata),
  image: nested(2, ImageSpec),
  command: strings(3),
  args: strings(4),
  workingDir: string(5),
  envs: repeated(6, KeyValue),
  mounts: repeated(7, Mount),
  devices: repeated(8, Device),
  labels: stringMap(9),
  annotations: stringMap(10),
  logPath: string(11),
  stdin: bool(12),
  stdinOnce: bool(13),
  tty: bool(14),
  linux: nested(
    15,
    message("LinuxContainerConfig", {
      resources: nested(1, LinuxContainerResources),
      securityContext: nested(2, LinuxContainerSecurityContext),
    }),
  ),
  cdiDevices: repeated(17, message("CDIDevice", { name: string(1) })),
  stopSignal: int32(18),
});
const CreateContainerRequest = message("CreateContainerRequest", {
  podSandboxId: string(1),
  config: nested(2, ContainerConfig),
  sandboxConfig: nested(3, PodSandboxConfig),
});
/** The request of every call that is about one container, and the answer to CreateContainer. */
const ContainerId = message("ContainerId", { containerId: string(1) });
const StopContainerRequest = message("StopContainerRequest", {
  containerId: string(1),
  /** Seconds. */
  timeout: int64(2),
});
const ListContainersRequest = message("ListContainersRequest", {
  filter: nested(
    1,
    message("ContainerFilter", {
      id: string(1),
      state: nested(2, StateValue),
      podSandboxId: string(3),
      labelSelector: stringMap(4),
    }),
  ),
});
const ListContainersResponse = message("ListContainersResponse", {
  containers: repeated(
    1,
    message("Container", {
      id: string(1),
      podSandboxId: string(2),
      metadata: nested(3, ContainerMetadata),
      imageRef: string(5),
      state: int32(6),
      createdAtMs: nanosecondTime(7),
      labels: stringMap(8),
      annotations: stringMap(9),
    }),
  ),
});
const ContainerStatusRequest = message("ContainerStatusRequest", { containerId: string(1), verbose: bool(2) });
export const ContainerStatus = message("ContainerStatus", {
  id: string(1),
  metadata: nested(2, ContainerMetadata),
  state: int32(3),
  createdAtMs: nanosecondTime(4),
  startedAtMs: nanosecondTime(5),
  finishedAtMs: nanosecondTime(6),
  exitCode: int32(7),
  image: nested(8, ImageSpec),
  imageRef: string(9),
  reason: string(10),
  message: string(11),
  labels: stringMap(12),
  annotations: stringMap(13),
  mounts: repeated(14, Mount),
  logPath: string(15),
  resources: nested(16, message("ContainerResources", { linux: nested(1, LinuxContainerResources) })),
  user: nested(
    18,
    message("ContainerUser", {
      linux: nested(1, message("LinuxContainerUser", { uid: int64(1), gid: int64(2), supplementalGroups: int64s(3) })),
    }),
  ),
  stopSignal: int32(19),
});
const ContainerStatusResponse = message("ContainerStatusResponse", {
  status: nested(1, ContainerStatus),
  info: stringMap(2),
});
const UpdateContainerResourcesRequest = message("UpdateContainerResourcesRequest", {
  containerId: string(1),
  linux: nested(2, LinuxContainerResources),
  annotations: stringMap(4),
});
const UpdatePodSandboxResourcesRequest = message("UpdatePodSandboxResourcesRequest", {
  podSandboxId: string(1),
  overhead: nested(2, LinuxContainerResources),
  resources: nested(3, LinuxContainerResources),
});
const ExecSyncRequest = message("ExecSyncRequest", {
  containerId: string(1),
  cmd: strings(2),
  /** Seconds; 0: for ever. */
  timeout: int64(3),
});
const ExecSyncResponse = message("ExecSyncResponse", { stdout: bytes(1), stderr: bytes(2), exitCode: int32(3) });
const ExecRequest = message("ExecRequest", {
  containerId: string(1),
  cmd: strings(2),
  tty: bool(3),
  stdin: bool(4),
  stdout: bool(5),
  stderr: bool(6),
});
const AttachRequest = message("AttachRequest", {
  containerId: string(1),
  stdin: bool(2),
  tty: bool(3),
  stdout: bool(4),
  stderr: bool(5),
});
const PortForwardRequest = message("PortForwardRequest", { podSandboxId: string(1), port: int32s(2) });
/** The address of a stream on the runtime's streaming server. */
const StreamingUrl = message("StreamingUrl", { url: string(1) });

// Statistics

const PsiData = message("PsiData", { total: uint64(1), avg10: double(2), avg60: double(3), avg300: double(4) });
const PsiStats = message("PsiStats", { full: nested(1, PsiData), some: nested(2, PsiData) });
const CpuUsage = message("CpuUsage", {
  timestampMs: nanosecondTime(1),
  usageCoreNanoSeconds: nested(2, UInt64Value),
  usageNanoCores: nested(3, UInt64Value),
  psi: nested(4, PsiStats),
});
const MemoryUsage = message("MemoryUsage", {
  timestampMs: nanosecondTime(1),
  workingSetBytes: nested(2, UInt64Value),
  availableBytes: nested(3, UInt64Value),
  usageBytes: nested(4, UInt64Value),
  rssBytes: nested(5, UInt64Value),
  pageFaults: nested(6, UInt64Value),
  majorPageFaults: nested(7, UInt64Value),
  psi: nested(8, PsiStats),
});
const FilesystemUsage = message("FilesystemUsage", {
  timestampMs: nanosecondTime(1),
  fsId: nested(2, message("FilesystemIdentifier", { mountpoint: string(1) })),
  usedBytes: nested(3, UInt64Value),
  inodesUsed: nested(4, UInt64Value),
});
const SwapUsage = message("SwapUsage", {
  timestampMs: nanosecondTime(1),
  swapAvailableBytes: nested(2, UInt64Value),
  swapUsageBytes: nested(3, UInt64Value),
});
const ContainerStats = message("ContainerStats", {
  attributes: nested(
    1,
    message("ContainerAttributes", {
      id: string(1),
      metadata: nested(2, ContainerMetadata),
      labels: stringMap(3),
      annotations: stringMap(4),
    }),
  ),
  cpu: nested(2, CpuUsage),
  memory: nested(3, MemoryUsage),
  writableLayer: nested(4, FilesystemUsage),
  swap: nested(5, SwapUsage),
});
const NetworkInterfaceUsage = message("NetworkInterfaceUsage", {
  name: string(1),
  rxBytes: nested(2, UInt64Value),
  rxErrors: nested(3, UInt64Value),
  txBytes: nested(4, UInt64Value),
  txErrors: nested(5, UInt64Value),
});
const PodSandboxStats = message("PodSandboxStats", {
  attributes: nested(
    1,
    message("PodSandboxAttributes", {
      id: string(1),
      metadata: nested(2, PodSandboxMetadata),
      labels: stringMap(3),
      annotations: stringMap(4),
    }),
  ),
  linux: nested(
    2,
    message("LinuxPodSandboxStats", {
      cpu: nested(1, CpuUsage),
      memory: nested(2, MemoryUsage),
      network: nested(
        3,
        message("NetworkUsage", {
          timestampMs: nanosecondTime(1),
          defaultInterface: nested(2, NetworkInterfaceUsage),
          interfaces: repeated(3, NetworkInterfaceUsage),
        }),
      ),
      process: nested(
        4,
        message("ProcessUsage", { timestampMs: nanosecondTime(1), processCount: nested(2, UInt64Value) }),
      ),
      containers: repeated(5, ContainerStats),
    }),
  ),
});
const ListContainerStatsRequest = message("ListContainerStatsRequest", {
  filter: nested(
    1,
    message("ContainerStatsFilter", { id: string(1), podSandboxId: string(2), labelSelector: stringMap(3) }),
  ),
});
const ListPodSandboxStatsRequest = message("ListPodSandboxStatsRequest", {
  filter: nested(1, message("PodSandboxStatsFilter", { id: string(1), labelSelector: stringMap(2) })),
});

// The runtime itself

const VersionResponse = message("VersionResponse", {
  version: string(1),
  runtimeName: string(2),
  runtimeVersion: string(3),
  runtimeApiVersion: string(4),
});
const StatusResponse = message("StatusResponse", {
  status: nested(
    1,
    message("RuntimeStatus", {
      conditions: repeated(
        1,
        message("RuntimeCondition", { type: string(1), status: bool(2), reason: string(3), message: string(4) }),
      ),
    }),
  ),
  info: stringMap(2),
  runtimeHandlers: repeated(
    3,
    message("RuntimeHandler", {
      name: string(1),
      features: nested(
        2,
        message("RuntimeHandlerFeatures", { recursiveReadOnlyMounts: bool(1), userNamespaces: bool(2) }),
      ),
    }),
  ),
  features: nested(4, message("RuntimeFeatures", { supplementalGroupsPolicy: bool(1) })),
});
const UpdateRuntimeConfigRequest = message("UpdateRuntimeConfigRequest", {
  runtimeConfig: nested(
    1,
    message("RuntimeConfig", { networkConfig: nested(1, message("NetworkConfig", { podCidr: string(1) })) }),
  ),
});
const RuntimeConfigResponse = message("RuntimeConfigResponse", {
  /** 0 systemd, 1 cgroupfs. */
  linux: nested(1, message("LinuxRuntimeConfiguration", { cgroupDriver: int32(1) })),
});
const ContainerEventResponse = message("ContainerEventResponse", {
  containerId: string(1),
  /** 0 created, 1 started, 2 stopped, 3 deleted. */
  containerEventType: int32(2),
  createdAtMs: nanosecondTime(3),
  podSandboxStatus: nested(
    4,
    message("PodSandboxStatus", { id: string(1), metadata: nested(2, PodSandboxMetadata), labels: stringMap(7) }),
  ),
});

// Images

const Image = message("Image", {
  id: string(1),
  repoTags: strings(2),
  repoDigests: strings(3),
  size: uint64(4),
  uid: nested(5, Int64Value),
  username: string(6),
  spec: nested(7, ImageSpec),
  pinned: bool(8),
});
const ImageRequest = message("ImageRequest", { image: nested(1, ImageSpec) });
const ListImagesRequest = message("ListImagesRequest", {
  filter: nested(1, message("ImageFilter", { image: nested(1, ImageSpec) })),
});
const ImageStatusRequest = message("ImageStatusRequest", { image: nested(1, ImageSpec), verbose: bool(2) });
const ImageStatusResponse = message("ImageStatusResponse", { image: nested(1, Image), info: stringMap(2) });
const AuthConfig = message("AuthConfig", {
  username: string(1),
  password: string(2),
  auth: string(3),
  serverAddress: string(4),
  identityToken: string(5),
  registryToken: string(6),
});
const PullImageRequest = message("PullImageRequest", {
  image: nested(1, ImageSpec),
  auth: nested(2, AuthConfig),
  sandboxConfig: nested(3, PodSandboxConfig),
});
const ImageFsInfoResponse = message("ImageFsInfoResponse", {
  imageFilesystems: repeated(1, FilesystemUsage),
  containerFilesystems: repeated(2, FilesystemUsage),
});

const runtime = <Q, A>(name: string, request: Q, response: A) => ({
  path: `/runtime.v1.RuntimeService/${name}`,
  request,
  response,
});
const image = <Q, A>(name: string, request: Q, response: A) => ({
  path: `/runtime.v1.ImageService/${name}`,
  request,
  response,
});

/** Calls for a GrpcClient. Unary, but for getContainerEvents, which streams its responses. */
export const RuntimeService = {
  version: runtime("Version", message("VersionRequest", { version: string(1) }), VersionResponse),
  status: runtime("Status", message("StatusRequest", { verbose: bool(1) }), StatusResponse),
  updateRuntimeConfig: runtime("UpdateRuntimeConfig", UpdateRuntimeConfigRequest, Empty),
  runtimeConfig: runtime("RuntimeConfig", Empty, RuntimeConfigResponse),
  getContainerEvents: runtime("GetContainerEvents", Empty, ContainerEventResponse),
  runPodSandbox: runtime("RunPodSandbox", RunPodSandboxRequest, SandboxId),
  stopPodSandbox: runtime("StopPodSandbox", SandboxId, Empty),
  removePodSandbox: runtime("RemovePodSandbox", SandboxId, Empty),
  podSandboxStatus: runtime("PodSandboxStatus", PodSandboxStatusRequest, PodSandboxStatusResponse),
  listPodSandbox: runtime("ListPodSandbox", ListPodSandboxRequest, ListPodSandboxResponse),
  createContainer: runtime("CreateContainer", CreateContainerRequest, ContainerId),
  startContainer: runtime("StartContainer", ContainerId, Empty),
  stopContainer: runtime("StopContainer", StopContainerRequest, Empty),
  removeContainer: runtime("RemoveContainer", ContainerId, Empty),
  listContainers: runtime("ListContainers", ListContainersRequest, ListContainersResponse),
  containerStatus: runtime("ContainerStatus", ContainerStatusRequest, ContainerStatusResponse),
  updateContainerResources: runtime("UpdateContainerResources", UpdateContainerResourcesRequest, Empty),
  /** From containerd 2.2 on. */
  updatePodSandboxResources: runtime("UpdatePodSandboxResources", UpdatePodSandboxResourcesRequest, Empty),
  reopenContainerLog: runtime("ReopenContainerLog", ContainerId, Empty),
  execSync: runtime("ExecSync", ExecSyncRequest, ExecSyncResponse),
  exec: runtime("Exec", ExecRequest, StreamingUrl),
  attach: runtime("Attach", AttachRequest, StreamingUrl),
  portForward: runtime("PortForward", PortForwardRequest, StreamingUrl),
  containerStats: runtime(
    "ContainerStats",
    ContainerId,
    message("ContainerStatsResponse", { stats: nested(1, ContainerStats) }),
  ),
  listContainerStats: runtime(
    "ListContainerStats",
    ListContainerStatsRequest,
    message("ListContainerStatsResponse", { stats: repeated(1, ContainerStats) }),
  ),
  podSandboxStats: runtime(
    "PodSandboxStats",
    SandboxId,
    message("PodSandboxStatsResponse", { stats: nested(1, PodSandboxStats) }),
  ),
  listPodSandboxStats: runtime(
    "ListPodSandboxStats",
    ListPodSandboxStatsRequest,
    message("ListPodSandboxStatsResponse", { stats: repeated(1, PodSandboxStats) }),
  ),
};

export const ImageService = {
  listImages: image("ListImages", ListImagesRequest, message("ListImagesResponse", { images: repeated(1, Image) })),
  imageStatus: image("ImageStatus", ImageStatusRequest, ImageStatusResponse),
  pullImage: image("PullImage", PullImageRequest, message("PullImageResponse", { imageRef: string(1) })),
  removeImage: image("RemoveImage", ImageRequest, Empty),
  imageFsInfo: image("ImageFsInfo", Empty, ImageFsInfoResponse),
};

/** The lists with lean answers: what a relist needs, once a second. Of the labels only `labels` are decoded. */
export const relistCalls = (labels: readonly string[]) => ({
  listPodSandbox: runtime(
    "ListPodSandbox",
    ListPodSandboxRequest,
    message("ListPodSandboxResponse", {
      items: repeated(1, message("PodSandbox", { id: string(1), state: int32(3), labels: stringMap(5, labels) })),
    }),
  ),
  listContainers: runtime(
    "ListContainers",
    ListContainersRequest,
    message("ListContainersResponse", {
      containers: repeated(1, message("Container", { id: string(1), state: int32(6), labels: stringMap(8, labels) })),
    }),
  ),
});

/** The lists of one pod's things: no labels, and of the annotations only `annotations`. */
export const podCalls = (annotations: readonly string[]) => ({
  listPodSandbox: runtime(
    "ListPodSandbox",
    ListPodSandboxRequest,
    message("ListPodSandboxResponse", {
      items: repeated(
        1,
        message("PodSandbox", {
          id: string(1),
          metadata: nested(2, message("PodSandboxMetadata", { attempt: uint32(4) })),
          state: int32(3),
          createdAtMs: nanosecondTime(4),
          annotations: stringMap(6, annotations),
        }),
      ),
    }),
  ),
  listContainers: runtime(
    "ListContainers",
    ListContainersRequest,
    message("ListContainersResponse", {
      containers: repeated(
        1,
        message("Container", {
          id: string(1),
          podSandboxId: string(2),
          metadata: nested(3, ContainerMetadata),
          state: int32(6),
          annotations: stringMap(9, annotations),
        }),
      ),
    }),
  ),
});

/** The images of every container of the runtime, also of its other clients. */
export const listImagesOfContainers = runtime(
  "ListContainers",
  Empty,
  message("ListContainersResponse", {
    containers: repeated(
      1,
      message("Container", { image: nested(4, ImageSpec), imageRef: string(5), imageId: string(10) }),
    ),
  }),
);

/**
 * The writable layers of containers, without the other content of ListContainerStats: labels, annotations and figures.
 */
export const writableLayersCall = runtime(
  "ListContainerStats",
  ListContainerStatsRequest,
  message("ListContainerStatsResponse", {
    stats: repeated(
      1,
      message("ContainerStats", {
        attributes: nested(1, message("ContainerAttributes", { id: string(1) })),
        writableLayer: nested(
          4,
          message("FilesystemUsage", { usedBytes: nested(3, UInt64Value), inodesUsed: nested(4, UInt64Value) }),
        ),
      }),
    ),
  }),
);

/** The pods of every sandbox of the runtime, also of its other clients. */
export const listPodsOfSandboxes = runtime(
  "ListPodSandbox",
  Empty,
  message("ListPodSandboxResponse", {
    items: repeated(
      1,
      message("PodSandbox", { metadata: nested(2, message("PodSandboxMetadata", { uid: string(2) })) }),
    ),
  }),
);
