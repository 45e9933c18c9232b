/**
 * Descriptions of the configuration's fields. Loaded by the generators of docs/configuration.md and of the data of
 * `edgectl explain`, never by the agent: the texts would stay in its memory.
 */
import type { CONFIGURATION_FIELDS } from "./configuration-fields.ts";

export interface FieldDocumentation {
  readonly meaning: string;
  /** In words, where the table of fields has no default or one that says little. */
  readonly byDefault: string;
}

export type Documentation = string | FieldDocumentation;

/** `wasm.registries[].host`. */
type PathsOf<T> = {
  [N in keyof T & string]:
    | N
    | (T[N] extends { readonly fields: infer F } ? `${N}.${PathsOf<F>}` : never)
    | (T[N] extends { readonly items: infer I } ? `${N}[].${PathsOf<I>}` : never);
}[keyof T & string];

export type FieldPath = PathsOf<typeof CONFIGURATION_FIELDS>;

const FILE = {
  apiVersion: "The version of the file's format.",
  kind: "The kind of the file.",
};

const SOURCES = {
  staticPodPath:
    'A folder of manifests, or one file; absolute. "" for none. It runs what is in it at once, and again when a file changes.',
  fileCheckFrequency: "How often the folder is read again when no change was reported.",
  staticPodURL: 'A web server that has the pods, by http or https; "" for none.',
  staticPodURLHeader: "Headers of requests to it, each with a list of values. `edgectl config` shows them as `***`.",
  httpCheckFrequency: "How often the web server is asked; with its ETag, so that unchanged pods cost little.",
  syncFrequency: "In the kubelet: how often each pod is compared with what runs.",
  podHousekeepingPeriod: "In the kubelet: how often orphaned pods are looked for.",
  configMapAndSecretChangeDetectionStrategy: "In the kubelet: how changes of ConfigMaps and Secrets are noticed.",
};

const NODE = {
  nodeName: { meaning: "The node's name in the cluster.", byDefault: "the machine's host name in lower case" },
  nodeLabels: "Labels of the Node object, as the kubelet's flag --node-labels.",
  registerNode: "Whether the agent makes the Node object itself.",
  registerWithTaints: "Taints of the Node object when it is made.",
  "registerWithTaints[].key": "The taint's key.",
  "registerWithTaints[].value": "The taint's value.",
  "registerWithTaints[].effect": "NoSchedule, PreferNoSchedule or NoExecute.",
  "registerWithTaints[].timeAdded": "When the taint was added.",
  providerID: "The node's spec.providerID.",
  cloudProvider:
    "external: the Node begins with the taint node.cloudprovider.kubernetes.io/uninitialized, which a cloud controller manager removes. As the kubelet's flag --cloud-provider.",
  nodeStatusUpdateFrequency: "The default of nodeStatusReportFrequency, if the file sets it.",
  nodeStatusReportFrequency: {
    meaning: "How often the node's addresses and images are read; a changed report is sent, as are changed conditions.",
    byDefault: "nodeStatusUpdateFrequency where that is set, else 5m",
  },
  nodeLeaseDurationSeconds: "In the kubelet: how long its Lease holds. The hub renews the Leases of its nodes.",
  nodeStatusMaxImages: "How many images the status names, the largest first; -1 for all.",
  maxPods: "How many pods the node takes.",
  podsPerCore: "How many pods the node takes for each CPU; 0 for no such limit.",
  podCIDR: "In the kubelet without a cluster: the network of its pods.",
  resolvConf: 'The resolv.conf that pods start from; absolute. "" for none.',
  clusterDNS: "DNS servers of pods whose dnsPolicy is ClusterFirst.",
  clusterDomain: "The cluster's domain, which their search list gets.",
  healthzPort: "The port of /healthz; 0 for none.",
  healthzBindAddress: "The address of /healthz.",
  readOnlyPort: "A port without authentication for /healthz, /pods, /stats, /spec and /metrics; 0 for none.",
  eventRecordQPS: "Events a second; 0 for no limit.",
  eventBurst: "Events at once, where there is a limit.",
  logging: "`format` (text or json) and `verbosity` (from 4 on debug messages) of the agent's log.",
  featureGates:
    "Feature gates by name. MemoryQoS and DisableCPUQuotaWithExclusiveCPUs are acted upon; both are on unless set to false.",
};

const HUB = {
  hub: { meaning: "The hub that the node belongs to.", byDefault: "none: the node belongs to no hub" },
  "hub.server": "https or wss URL of the hub, or a list of them that are tried in turn.",
  "hub.token": "The token for the first join. `edgectl config` shows it as `***`.",
  "hub.tokenFile": "A file with the token; it may come after the agent's start.",
  "hub.caHash": "How the hub is recognised at the first join: `sha256:<hex>` of its CA's key, or a list of them.",
  "hub.caFile": "The hub's CA as a PEM file, instead of its hash.",
  "hub.proxy":
    "An HTTP proxy on the way to the hub, such as http://user:password@proxy.example:3128, for joining too. It has to allow CONNECT to the hub's port. Variables such as HTTPS_PROXY do not count here.",
  "hub.heartbeatInterval":
    "How often an idle tunnel sends a heartbeat. What it costs follows from it: 0.78 MB a day with 30s.",
  "hub.reconnectBackoff": "How long the agent waits before it dials again; jittered.",
  "hub.reconnectBackoff.initial": "The first wait.",
  "hub.reconnectBackoff.max": "The longest wait.",
};

const RUNTIME = {
  containerRuntimeEndpoint: 'The CRI socket. "": this node runs components only.',
  imageServiceEndpoint: { meaning: "The CRI socket for images.", byDefault: "that of containerRuntimeEndpoint" },
  runtimeRequestTimeout:
    "How long a call of the runtime may take; those that wait for a pull or for output may take longer.",
  crashLoopBackOff: "Waits between restarts of a container that ends again and again.",
  "crashLoopBackOff.initialContainerRestartPeriod": "The first wait. The kubelet's is fixed.",
  "crashLoopBackOff.maxContainerRestartPeriod": "The longest wait.",
  seccompDefault: "Whether containers that name no seccomp profile get the runtime's.",
  allowedUnsafeSysctls: "Sysctls that pods may set beside the safe ones; a name, or the beginning of names with a *.",
  userNamespaces: "In the kubelet: user namespaces of pods.",
  "userNamespaces.idsPerPod": "In the kubelet: user ids of each pod.",
};

const LOGS = {
  podLogsDir: "Where the logs of pods are; absolute, ASCII.",
  containerLogMaxSize: "The size at which a container's log is rotated.",
  containerLogMaxFiles: "How many log files of a container are kept.",
  containerLogMaxWorkers: "How many logs are rotated at the same time.",
  containerLogMonitorInterval: "How often the sizes of logs are compared with their limit.",
};

const IMAGES = {
  serializeImagePulls: {
    meaning: "Whether images are pulled one after another.",
    byDefault: "true, unless maxParallelImagePulls is above 1",
  },
  maxParallelImagePulls: {
    meaning: "How many images are pulled at once; above 1 needs `serializeImagePulls: false`.",
    byDefault: "no limit, where pulls are not serialized",
  },
  registryPullQPS: "Pulls a second; 0 for no limit.",
  registryBurst: "Pulls at once, where there is a limit.",
  imagePullCredentialsVerificationPolicy: "Which images that are on the node need a pod's credentials all the same.",
  preloadedImagesVerificationAllowlist:
    "Images that need no credentials, with NeverVerifyAllowlistedImages; a * at the end of a name.",
  imageCredentialProviderConfig:
    "CredentialProviderConfig, a file or a folder of them; as the kubelet's flag --image-credential-provider-config.",
  imageCredentialProviderBinDir:
    "The folder of those programs; as the kubelet's flag --image-credential-provider-bin-dir.",
  imageSignatures: "Which images and components must be signed, and by whose key. The most exact entry counts.",
  "imageSignatures[].repository": 'A repository, all below one (`registry.example/prod/*`), or "*".',
  "imageSignatures[].require": { meaning: "What images of it need.", byDefault: "signature" },
  "imageSignatures[].keys": "Public keys in PEM; any one of them will do.",
  "imageSignatures[].keyFiles": "Files with public keys in PEM.",
  "imageSignatures[].signedIdentity": {
    meaning: "Whether the signature must name the repository that the image comes from.",
    byDefault: "repository",
  },
  imageGCHighThresholdPercent: "The use of the images' disk at which unused images are removed.",
  imageGCLowThresholdPercent: "The use of the images' disk at which that ends.",
  imageMinimumGCAge: "An image that was found unused for a shorter time stays.",
  imageMaximumGCAge: "An image that was unused for so long is removed, however empty the disk is; 0s for never.",
};

const COMPONENTS = {
  wasm: "Components: pods with `runtimeClassName: wasm`.",
  "wasm.maxComponentSize":
    "Larger components are refused before they are read: transpiling takes memory in proportion to the component.",
  "wasm.transpileMemory": "The memory limit of the process that transpiles one component.",
  "wasm.transpileTimeout": "Ends a transpiling process that hangs.",
  "wasm.startTimeout":
    "From the start of a component's process to the component's first instruction; ends a start that hangs.",
  "wasm.registries": "How registries of components are reached, where it is not over HTTPS by their own names.",
  "wasm.registries[].host": "The registry as images name it, with its port.",
  "wasm.registries[].insecure": { meaning: "Whether it is reached by plain HTTP.", byDefault: "false" },
  "wasm.registries[].caFile": "PEM of authorities that are trusted for it besides the usual ones; absolute.",
  "wasm.registries[].mirrors": "Hosts that are asked before it.",
  "wasm.proxy": {
    meaning: "Proxies on the way to registries.",
    byDefault: "HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the agent's environment",
  },
  "wasm.proxy.httpProxy": "The proxy for registries by http.",
  "wasm.proxy.httpsProxy": "The proxy for registries by https.",
  "wasm.proxy.noProxy": "Hosts and networks without a proxy, separated by commas.",
  "wasm.http": "What components request by wasi:http.",
  "wasm.http.caFile": "PEM of authorities that are trusted besides the built-in ones; absolute.",
  "wasm.spareRunners":
    "Processes that wait for a component to restart in, some 10 MiB each; ended while memory is short.",
  "wasm.p3": "Whether components of WASI 0.3 are run, which is experimental.",
  "wasm.nodeLabels": "Keys of the node's labels that components may read, beside those of topology and hardware.",
};

const RESERVATIONS = {
  kubeReserved: {
    meaning: "Resources that are not for pods: `cpu`, `memory`, `ephemeral-storage`, `pid`.",
    byDefault:
      "memory and pid by the size of the machine, where systemReserved is not set either; `edgectl config` shows how",
  },
  systemReserved: "Resources that are not for pods but for the rest of the system.",
  kubeReservedCgroup: "The cgroup that kubeReserved is enforced on.",
  systemReservedCgroup: "The cgroup that systemReserved is enforced on.",
  enforceNodeAllocatable:
    "What is enforced by cgroups: `pods`, `system-reserved`, `kube-reserved`, these two with `-compressible`, or `none`.",
  reservedSystemCPUs: "CPUs that are not for pods, such as 0-1.",
  reservedMemory: "Memory of NUMA nodes that is not for pods, for the memory manager.",
  "reservedMemory[].numaNode": "The NUMA node.",
  "reservedMemory[].limits": "What is reserved of it: `memory` and huge pages.",
  qosReserved: "Memory that pods of lower QoS may not use, such as `memory: 50%`.",
};

const CGROUPS = {
  cgroupDriver: "How cgroups are made: by the agent, or by systemd.",
  cgroupRoot: { meaning: "The cgroup below which all pods are; absolute.", byDefault: "the root" },
  cgroupsPerQOS: "Whether pods are below a cgroup of their QoS class.",
  cpuCFSQuota: "Whether CPU limits are enforced.",
  cpuCFSQuotaPeriod: "The period of CPU limits.",
  podPidsLimit: "How many processes a pod may have; -1 for no limit.",
  memoryThrottlingFactor: "On cgroup v2: the share of its limit at which a container is slowed down (memory.high).",
  singleProcessOOMKill: {
    meaning: "Whether the kernel kills one process of a container that is out of memory, instead of all.",
    byDefault: "false on cgroup v2, true on v1",
  },
  oomScoreAdj: "The OOM score adjustment of the agent's own process.",
  memorySwap: "Swap for pods; zram is swap too.",
  "memorySwap.swapBehavior": 'NoSwap, or LimitedSwap in proportion to the memory request; "" is NoSwap.',
  failSwapOn: "Whether the agent refuses to start while swap is on. The kubelet's default is true.",
  failCgroupV1: "In the kubelet: whether it refuses to start on cgroup v1.",
  cpuManagerPolicy: "static: containers of Guaranteed pods with whole CPUs have them to themselves.",
  cpuManagerPolicyOptions: "Options of the static CPU policy.",
  cpuManagerReconcilePeriod: "How often CPU sets are compared with what they should be.",
  memoryManagerPolicy: "Static: Guaranteed pods get memory of chosen NUMA nodes.",
  topologyManagerPolicy: "How CPUs and memory of NUMA nodes are aligned.",
  topologyManagerScope: "Whether resources are aligned for containers or for whole pods.",
  topologyManagerPolicyOptions: "Options of the topology manager's policy.",
};

const EVICTION = {
  evictionHard: {
    meaning: "Thresholds at which pods are evicted at once, by signal: `memory.available: 100Mi`.",
    byDefault: "by the size of the machine; `edgectl config` shows how",
  },
  evictionSoft: "Thresholds at which pods are evicted after a grace period.",
  evictionSoftGracePeriod: "The grace period of each soft threshold.",
  evictionMaxPodGracePeriod: "Seconds that a pod has to end at a soft threshold, at most.",
  evictionPressureTransitionPeriod: "How long a condition stays after the last time that its threshold was crossed.",
  evictionMinimumReclaim: "What is freed beyond a threshold, by signal.",
  mergeDefaultEvictionSettings: "Whether evictionHard adds to the defaults instead of replacing them.",
  volumeStatsAggPeriod: "How old the figures of volumes may be; negative: volumes have none.",
  kernelMemcgNotification: "In the kubelet: whether the kernel notifies it of memory thresholds.",
  localStorageCapacityIsolation: "In the kubelet: whether ephemeral storage is managed.",
};

const SHUTDOWN = {
  shutdownGracePeriod: "How long the machine's shutdown waits for pods; 0s for not at all.",
  shutdownGracePeriodCriticalPods: "The part of it that is for critical pods.",
  shutdownGracePeriodByPodPriority: "Instead of the two: periods by the priority of pods.",
  "shutdownGracePeriodByPodPriority[].priority": "For pods of this priority and above.",
  "shutdownGracePeriodByPodPriority[].shutdownGracePeriodSeconds": "How long these pods have.",
};

const BUDGETS = {
  budget: "What the agent itself may take.",
  "budget.memoryBytes":
    "The agent's anonymous memory, swapped or not. Above it the agent frees caches, and at the last starts again with every " +
    "pod running on.",
  "budget.flashBytesPerDay":
    "What all programs write to the disks that the node lives on; above it the condition FlashWearPressure is True. 0 for no " +
    "budget.",
  "budget.agentFlashBytesPerDay":
    "What the agent writes. Near it what can wait waits longer; what pods should be never does.",
  telemetry: "Points and events of components, kept until a hub has them.",
  "telemetry.maxBytes":
    "The size of points and events on the disk; the oldest of the pod with most goes first. A point takes some 25 bytes.",
  "telemetry.maxAge": "Older points and events are dropped.",
  "telemetry.flushInterval": "How long points wait in memory: what a power cut costs. Events do not wait.",
  updates: "What a hub may update on this board.",
  "updates.allowed":
    "What the annotations of the Node may ask for: os, agent, configuration. Without an entry of its own it is done by hand " +
    "alone: `edgectl update install`.",
  "updates.bytesPerSecond": "How fast updates are fetched where the Node does not say it; 0 for as fast as they come.",
  secretsAtRest: "How Secrets and tokens are encrypted on the board's disk.",
  "secretsAtRest.keyProvider":
    "What protects the key. tpm2: a TPM 2.0 and tpm2-tools; systemd-creds: systemd's host key; rpi-otp: a Raspberry Pi's OTP; " +
    "file: a file, against copies of the database alone; auto: the one in use as long as it works, else the first of them " +
    "that is there.",
  "secretsAtRest.keyFile": { meaning: "The key of the provider file; absolute.", byDefault: "store.key in --root-dir" },
};

const BOARD = {
  page: "The page of the board: what edgectl shows, in a browser. It only reads, but for users with rights.",
  "page.enabled": {
    meaning: "Whether the page is served, here and through the hub, and the last 24 hours are kept on disk (384 KiB).",
    byDefault: "true from 1 GiB of memory on",
  },
  "page.address":
    "The address of its port. On another one than loopback it is served by TLS, and asks for the token in page/token of the state folder.",
  "page.port": "Its port; 0 for any free one, which the log names.",
  "page.anonymous":
    "Serves it without TLS and token on every address: any client that reaches the port reads the logs of all pods.",
  devices: "Devices of the board that pods may ask for as extended resources, without a device plugin.",
  "devices[].name": "The resource, such as `example.com/camera`.",
  "devices[].match":
    "What it is made of: paths of device nodes (`/dev/video*`), `usb:VENDOR:PRODUCT`, `libusb:VENDOR:PRODUCT`, or CDI devices (`cdi:nvidia.com/gpu`). Each match is one device.",
  allowedDevices: "Devices that pods may name in the annotation `picolet.io/devices`. Without an entry none.",
  "allowedDevices[].match":
    "Paths of device nodes (`/dev/ttyUSB*`), `usb:VENDOR:PRODUCT`, `libusb:VENDOR:PRODUCT`, `gpio:/dev/gpiochip0` or `i2c:/dev/i2c-1`; `*` and `?` are wildcards.",
  "allowedDevices[].namespaces": "The namespaces of the pods that may; `*` is every namespace.",
  boardHealth: "Conditions and events of what is wrong with the board itself: voltage, heat, storage, clock.",
  "boardHealth.enabled": "Whether the board's sensors and disks are read, every 30 s at most.",
  "boardHealth.temperatureCelsius":
    "The temperature from which a thermal zone is too hot; where the zone has a lower hot or critical point, that counts.",
  "boardHealth.wearPercent":
    "The used part of its life from which an eMMC or SD card that reports it is worn out; the card reports steps of 10.",
  "boardHealth.holdPeriod": "How long the board must be well before a condition that comes and goes is False again.",
};

const BLACK_BOX = {
  blackBox: "The record of what the agent decided and why, which `edgectl why` reads.",
  "blackBox.size": "The file's size; the newest decisions replace the oldest. 1Mi holds some 5,000.",
};

const KUBELET = {
  enableServer: {
    meaning: "Whether the node has a port for the kubelet's API.",
    byDefault: "true with 896 MiB of memory or more, as a board of 1 GiB shows it",
  },
  address: "The address of the kubelet's API.",
  port: "The port of the kubelet's API; 0 for any free one.",
  tlsCertFile: "The certificate of the kubelet's API. Without it the agent makes one, signed by itself.",
  tlsPrivateKeyFile: "The key of that certificate.",
  tlsCipherSuites: "Cipher suites of the kubelet's API; weak ones are left out. Empty: Node's own.",
  tlsCurvePreferences: "Curves of the kubelet's API.",
  tlsMinVersion: "The lowest version of TLS of the kubelet's API; 1.2 for the older two.",
  rotateCertificates: "Renewal of the client certificate. The agent renews its own by itself.",
  serverTLSBootstrap: "Whether the certificate of the kubelet's API comes from the cluster.",
  authentication: "Authentication of clients of the kubelet's API.",
  "authentication.x509": "Authentication by certificate.",
  "authentication.x509.clientCAFile": "The CA of client certificates. Without it only tokens are accepted.",
  "authentication.webhook": "Authentication by TokenReview.",
  "authentication.webhook.enabled": "Whether tokens are reviewed, through the hub.",
  "authentication.webhook.cacheTTL": "How long an answer is cached.",
  "authentication.anonymous": "Requests without credentials.",
  "authentication.anonymous.enabled": "Whether they are allowed.",
  authorization: "Authorization of clients of the kubelet's API.",
  "authorization.mode":
    "Authorization by SubjectAccessReview through the hub, or none: every known client may do everything.",
  "authorization.webhook": "Authorization by SubjectAccessReview.",
  "authorization.webhook.cacheAuthorizedTTL": "How long a yes is cached.",
  "authorization.webhook.cacheUnauthorizedTTL": "How long a no is cached.",
  enableDebuggingHandlers: "Logs, run, exec, attach and port-forward.",
  enableContentionProfiling: "Profiling of locks.",
  enableProfilingHandler: "Profiling over HTTP.",
  enableDebugFlagsHandler: "Changing the verbosity over HTTP.",
  enableSystemLogHandler: "Whether files below /var/log are answered at /logs/ to users with the right `nodes/log`.",
  enableSystemLogQuery: "Queries of the system's logs.",
  showHiddenMetricsForVersion: "Metrics that were hidden since this version.",
  streamingConnectionIdleTimeout: "When an idle exec or attach ends.",
  kubeletCgroups: "The kubelet's own cgroup.",
  systemCgroups: "The cgroup of all processes outside of one.",
  hairpinMode: "Hairpin NAT of the bridge.",
  runOnce: "Run the pods once and exit.",
  maxOpenFiles: "Files that the kubelet may have open.",
  contentType: "The content type of requests to the API server.",
  kubeAPIQPS: "Requests to the API server a second.",
  kubeAPIBurst: "Requests to the API server at once.",
  enableControllerAttachDetach: "Volumes are attached by a controller.",
  protectKernelDefaults: "Refuse to start when kernel settings differ.",
  makeIPTablesUtilChains: "Make iptables chains.",
  iptablesMasqueradeBit: "The bit of packets to masquerade.",
  iptablesDropBit: "The bit of packets to drop.",
  volumePluginDir: "FlexVolume plugins.",
  tracing: "Traces by OpenTelemetry.",
};

export interface FieldGroup {
  readonly title: string;
  readonly fields: Readonly<Record<string, Documentation>>;
}

export const FIELD_GROUPS: readonly FieldGroup[] = [
  { title: "The file", fields: FILE },
  { title: "Where pods come from", fields: SOURCES },
  { title: "The node", fields: NODE },
  { title: "The hub", fields: HUB },
  { title: "The container runtime", fields: RUNTIME },
  { title: "Logs of pods", fields: LOGS },
  { title: "Images", fields: IMAGES },
  { title: "Components", fields: COMPONENTS },
  { title: "Reserved resources", fields: RESERVATIONS },
  { title: "Cgroups, CPUs and NUMA nodes", fields: CGROUPS },
  { title: "Eviction", fields: EVICTION },
  { title: "Shutdown", fields: SHUTDOWN },
  { title: "Board health", fields: BOARD },
  { title: "Black box", fields: BLACK_BOX },
  { title: "Budgets, telemetry and secrets", fields: BUDGETS },
  { title: "The kubelet's own server and others", fields: KUBELET },
];

/** The compiler names a field of the table that has no line here. */
export const FIELD_DOCUMENTATION = {
  ...{ ...FILE, ...SOURCES, ...NODE, ...HUB, ...RUNTIME, ...LOGS, ...IMAGES, ...COMPONENTS, ...RESERVATIONS },
  ...{ ...CGROUPS, ...EVICTION, ...SHUTDOWN, ...BUDGETS, ...BOARD, ...BLACK_BOX, ...KUBELET },
} satisfies Record<FieldPath, Documentation>;
