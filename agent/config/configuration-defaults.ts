/**
 * What a field is when the file does not say: the kubelet's defaults (pkg/kubelet/apis/config/v1beta1/defaults.go of
 * Kubernetes 1.34), and picolet's own.
 */

import type { Immutable } from "@picolet/protocol/pod/field-schemas.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type * as z from "zod/mini";
import type { BoardDefaults } from "./board-defaults.ts";
import type { makeConfigurationSchema } from "./configuration-schema.ts";

export type ConfigurationInput = z.output<ReturnType<typeof makeConfigurationSchema>>;

const MINUTE = seconds(60);
const MEBIBYTE = 1_048_576;

/** Where the kubelet takes an empty value ("", 0, "0s") for none, the default applies to it too. */
const DEFAULTS = {
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
  enableServer: true,
  podLogsDir: "/var/log/pods",
  syncFrequency: MINUTE,
  fileCheckFrequency: seconds(20),
  httpCheckFrequency: seconds(20),
  staticPodURL: "",
  staticPodURLHeader: {},
  address: "0.0.0.0",
  readOnlyPort: 0,
  tlsCertFile: "",
  tlsPrivateKeyFile: "",
  tlsCipherSuites: [],
  tlsCurvePreferences: [],
  tlsMinVersion: "",
  rotateCertificates: false,
  serverTLSBootstrap: false,
  registryBurst: 10,
  imagePullCredentialsVerificationPolicy: "NeverVerifyPreloadedImages",
  preloadedImagesVerificationAllowlist: [],
  /** Which images must be signed, and by whose key; empty: none. */
  imageSignatures: [],
  eventBurst: 100,
  enableDebuggingHandlers: true,
  enableContentionProfiling: false,
  healthzBindAddress: "127.0.0.1",
  clusterDomain: "",
  clusterDNS: [],
  streamingConnectionIdleTimeout: seconds(4 * 3600),
  nodeStatusUpdateFrequency: seconds(10),
  nodeLeaseDurationSeconds: 40,
  imageMinimumGCAge: seconds(120),
  imageMaximumGCAge: seconds(0),
  volumeStatsAggPeriod: MINUTE,
  kubeletCgroups: "",
  systemCgroups: "",
  cgroupRoot: "",
  cgroupsPerQOS: true,
  cgroupDriver: "cgroupfs",
  cpuManagerPolicy: "none",
  cpuManagerPolicyOptions: {},
  cpuManagerReconcilePeriod: seconds(10),
  memoryManagerPolicy: "None",
  topologyManagerPolicy: "none",
  topologyManagerScope: "container",
  topologyManagerPolicyOptions: {},
  qosReserved: {},
  runtimeRequestTimeout: seconds(120),
  hairpinMode: "promiscuous-bridge",
  maxPods: 110,
  podCIDR: "",
  runOnce: false,
  cpuCFSQuota: true,
  maxOpenFiles: 1_000_000,
  contentType: "application/vnd.kubernetes.protobuf",
  kubeAPIBurst: 100,
  evictionSoft: {},
  evictionSoftGracePeriod: {},
  evictionPressureTransitionPeriod: seconds(300),
  evictionMaxPodGracePeriod: 0,
  evictionMinimumReclaim: {},
  mergeDefaultEvictionSettings: false,
  podsPerCore: 0,
  enableControllerAttachDetach: true,
  protectKernelDefaults: false,
  makeIPTablesUtilChains: true,
  featureGates: {},
  /** The kubelet's is true: it does not start with swap on. zram is swap, and what many small boards boot with. */
  failSwapOn: false,
  containerLogMaxSize: 10 * MEBIBYTE,
  configMapAndSecretChangeDetectionStrategy: "Watch",
  systemReserved: {},
  reservedSystemCPUs: "",
  showHiddenMetricsForVersion: "",
  systemReservedCgroup: "",
  kubeReservedCgroup: "",
  allowedUnsafeSysctls: [],
  volumePluginDir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
  providerID: "",
  kernelMemcgNotification: false,
  logging: {},
  enableSystemLogHandler: true,
  enableSystemLogQuery: false,
  shutdownGracePeriod: seconds(0),
  shutdownGracePeriodCriticalPods: seconds(0),
  shutdownGracePeriodByPodPriority: [],
  reservedMemory: [],
  enableProfilingHandler: true,
  enableDebugFlagsHandler: true,
  seccompDefault: false,
  registerWithTaints: [],
  registerNode: true,
  localStorageCapacityIsolation: true,
  imageServiceEndpoint: "",
  failCgroupV1: false,
  nodeLabels: {},
  imageCredentialProviderConfig: "",
  imageCredentialProviderBinDir: "",
} as const satisfies Immutable<ConfigurationInput>;

/** Fields in which an empty value means something: no limit, switched off, no DNS. */
const POINTER_DEFAULTS = {
  /** "": no static pods. (The kubelet has none unless told where.) */
  staticPodPath: "/etc/picolet/manifests",
  /** "": this node runs components only. (The kubelet takes "" for the default.) */
  containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
  /** 0: any free one. (The kubelet takes 0 for 10250.) */
  port: 10_250,
  podHousekeepingPeriod: seconds(2),
  registryPullQPS: 5,
  eventRecordQPS: 50,
  /** 0: none. */
  healthzPort: 10_248,
  oomScoreAdj: -999,
  imageGCHighThresholdPercent: 85,
  imageGCLowThresholdPercent: 80,
  podPidsLimit: -1,
  resolvConf: "/etc/resolv.conf",
  cpuCFSQuotaPeriod: millis(100),
  nodeStatusMaxImages: 50,
  kubeAPIQPS: 50,
  iptablesMasqueradeBit: 14,
  iptablesDropBit: 15,
  containerLogMaxFiles: 5,
  containerLogMaxWorkers: 1,
  containerLogMonitorInterval: seconds(10),
  memoryThrottlingFactor: 0.9,
  enforceNodeAllocatable: ["pods"],
} as const satisfies Immutable<ConfigurationInput>;

const AUTHENTICATION_CACHE = seconds(120);
const AUTHORIZED_CACHE = seconds(300);
const UNAUTHORIZED_CACHE = seconds(30);
const FIRST_RESTART_DELAY = seconds(10);
const LAST_RESTART_DELAY = seconds(300);
const IDS_PER_POD = 65_536;

const WASM = {
  /** Larger ones are refused before they are read: transpiling takes memory in proportion to the component. */
  maxComponentSize: 32 * MEBIBYTE,
  /** Of the short-lived transpiling process, which was measured at 113 MiB for a small and 174 for a 12 MB component. */
  transpileMemory: 384 * MEBIBYTE,
  /** Only there to end one that hangs: a loaded single-core board is given all the time it may need. */
  transpileTimeout: seconds(300),
  /** From the start of the component's process to the component's own first instruction; ends a start that hangs. */
  startTimeout: seconds(30),
  /** How registries of components are spoken to, where it is not over HTTPS by their own names. */
  registries: [],
  /** Through which registries are reached; none of the three: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the agent say. */
  proxy: {} as {
    readonly httpProxy?: string | undefined;
    readonly httpsProxy?: string | undefined;
    readonly noProxy?: string | undefined;
  },
  /** Of what components ask by wasi:http. `caFile`: PEM, trusted beside the built-in authorities; "" for none. Absolute. */
  http: {} as { readonly caFile?: string | undefined },
  /** Processes that wait for a component to restart in, some 10 MiB each; given up while memory is short. 0: none. */
  spareRunners: 1,
  /** Whether components of WASI 0.3 are run, which is experimental. */
  p3: false,
  /** Keys of the node's labels that components may see by `node-info`, beside those of topology and hardware. */
  nodeLabels: [] as readonly string[],
};

const HUB = {
  /** https or wss URLs, tried in turn. */
  server: [],
  /** One of them for the first join; the file may come later. */
  token: "",
  tokenFile: "",
  /** By which the hub is known at the first join: `sha256:<hex>` of its CA's key (kubeadm's form), or the CA itself, PEM. */
  caHash: [],
  caFile: "",
  /** What an idle tunnel costs follows from it: 0.78 MB a day (agent/tunnel/heartbeat.ts). */
  heartbeatInterval: seconds(30),
};

const RECONNECT_BACKOFF = { initial: seconds(1), max: seconds(60) };

const BUDGET = {
  /**
   * Of the agent's anonymous memory, swapped or not: what it takes from the pods, unlike the program's pages, which the
   * kernel drops when it wants to. Four times what it takes with 50 pods; V8's own heap ends at 48 MiB.
   */
  memoryBytes: 64 * MEBIBYTE,
  /** Written to the disks that the node lives on, by everybody: FlashWearPressure when a day takes more. 0: no budget. */
  flashBytesPerDay: 0,
  /** Written by the agent itself. What it has to say is kept back for longer as it nears this; what pods are to be never is. */
  agentFlashBytesPerDay: 5 * MEBIBYTE,
};

/** Points and events of components, kept until a hub has them. */
const TELEMETRY = {
  /** On the disk; the oldest of the pod with most goes first. A point takes some 25 bytes. */
  maxBytes: 16 * MEBIBYTE,
  maxAge: seconds(7 * 86_400),
  /** How long points wait in memory while nobody takes them: what a power cut costs. Events do not wait. */
  flushInterval: seconds(60),
};

/** How Secrets and tokens are encrypted on the board's disk. */
const SECRETS_AT_REST = {
  /**
   * What protects the key. `tpm2`: a TPM 2.0 and tpm2-tools; `systemd-creds`: systemd's host key, with the TPM where systemd
   * can use it; `rpi-otp`: the private key in a Raspberry Pi's OTP; `file`: a file, against copies of the database alone.
   * `auto`: the one in use as long as it works, else the first of them that is bound to the board, else the first there is.
   */
  keyProvider: "auto",
  /** Of the provider `file`, absolute; "": `store.key` in the agent's folder. Another place may be a medium that is kept apart. */
  keyFile: "",
};

type Filled<T, D> = Omit<T, keyof D> & { [K in keyof D & keyof T]: NonNullable<T[K]> };

function filled<T extends object, D extends object>(given: T, defaults: D, isEmpty: (value: unknown) => boolean) {
  const set = Object.entries(given).filter(([, value]) => !isEmpty(value));
  return { ...defaults, ...Object.fromEntries(set) } as Filled<T, D>;
}

const isMissing = (value: unknown): boolean => value === undefined;
const isEmptyOrMissing = (value: unknown): boolean => value === undefined || value === "" || value === 0;

/**
 * @param hostName the node's name when the file gives none; lower-cased, as the kubelet does.
 * @param board for the defaults that follow from it
 */
export function applyConfigurationDefaults(given: ConfigurationInput, hostName: string, board: BoardDefaults) {
  const pointers = filled(pick(given, POINTER_DEFAULTS), POINTER_DEFAULTS, isMissing);
  const plain = filled(given, DEFAULTS, isEmptyOrMissing);
  const { authentication, authorization, crashLoopBackOff } = given;
  return {
    ...plain,
    ...pointers,
    nodeName: given.nodeName || hostName.trim().toLowerCase(),
    podPidsLimit: Math.max(-1, pointers.podPidsLimit),
    nodeStatusReportFrequency: given.nodeStatusReportFrequency || given.nodeStatusUpdateFrequency || seconds(300),
    serializeImagePulls: given.serializeImagePulls ?? (given.maxParallelImagePulls ?? 1) < 2,
    evictionHard:
      given.evictionHard === undefined || plain.mergeDefaultEvictionSettings
        ? { ...board.evictionHard, ...given.evictionHard }
        : given.evictionHard,
    kubeReserved: given.kubeReserved ?? (given.systemReserved === undefined ? board.kubeReserved : {}),
    authentication: {
      x509: { clientCAFile: authentication?.x509?.clientCAFile ?? "" },
      webhook: {
        enabled: authentication?.webhook?.enabled ?? true,
        cacheTTL: authentication?.webhook?.cacheTTL || AUTHENTICATION_CACHE,
      },
      anonymous: { enabled: authentication?.anonymous?.enabled ?? false },
    },
    authorization: {
      mode: authorization?.mode || "Webhook",
      webhook: {
        cacheAuthorizedTTL: authorization?.webhook?.cacheAuthorizedTTL || AUTHORIZED_CACHE,
        cacheUnauthorizedTTL: authorization?.webhook?.cacheUnauthorizedTTL || UNAUTHORIZED_CACHE,
      },
    },
    crashLoopBackOff: {
      initialContainerRestartPeriod: crashLoopBackOff?.initialContainerRestartPeriod ?? FIRST_RESTART_DELAY,
      maxContainerRestartPeriod: crashLoopBackOff?.maxContainerRestartPeriod ?? LAST_RESTART_DELAY,
    },
    memorySwap: { swapBehavior: given.memorySwap?.swapBehavior ?? "" },
    userNamespaces: { idsPerPod: given.userNamespaces?.idsPerPod ?? IDS_PER_POD },
    wasm: filled(given.wasm ?? {}, WASM, isMissing),
    /** Null: this node belongs to no hub. */
    hub: given.hub === undefined ? null : hubOf(given.hub),
    budget: filled(given.budget ?? {}, BUDGET, isMissing),
    telemetry: filled(given.telemetry ?? {}, TELEMETRY, isMissing),
    secretsAtRest: filled(given.secretsAtRest ?? {}, SECRETS_AT_REST, isEmptyOrMissing),
  };
}

const hubOf = (given: NonNullable<ConfigurationInput["hub"]>) => ({
  ...filled(given, HUB, isEmptyOrMissing),
  reconnectBackoff: filled(given.reconnectBackoff ?? {}, RECONNECT_BACKOFF, isEmptyOrMissing),
});

function pick<T extends object, D extends object>(given: T, names: D): Pick<T, keyof T & keyof D> {
  const entries = Object.entries(given).filter(([name]) => Object.hasOwn(names, name));
  return Object.fromEntries(entries) as Pick<T, keyof T & keyof D>;
}
