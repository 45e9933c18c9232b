/**
 * The table of the agent's configuration: each field of `/etc/picolet/config.yaml` with its kind, default and limits,
 * and whether this version acts upon it. What each means is in `field-documentation.ts`, which the agent never loads.
 *
 * To add a field: a row here, and a line there. Reading, defaults, ranges, `edgectl config`, `edgectl explain` and
 * docs/configuration.md follow.
 *
 * The fields are those of KubeletConfiguration kubelet.config.k8s.io/v1beta1 of Kubernetes 1.34 with the kubelet's
 * defaults (pkg/kubelet/apis/config/v1beta1/defaults.go), and picolet's own from `nodeName` on.
 */
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

/** The kinds of values, with the type that each has once it is read. */
interface KindValues {
  /** "20s", "1m30s", "0". */
  duration: Millis;
  /** A quantity of bytes: "10Mi", 1048576. */
  bytes: number;
  text: string;
  texts: string[];
  textMap: Record<string, string>;
  textsMap: Record<string, string[]>;
  /** One text, or a list of them. */
  textOrTexts: string[];
  /** One of `choices`; a `text` with `choices` is any text until it is validated. */
  choice: string;
  int32: number;
  int32s: number[];
  int64: number;
  real: number;
  flag: boolean;
  flagMap: Record<string, boolean>;
  quantityMap: Record<string, string | number>;
  opaque: Record<string, unknown>;
  opaques: Record<string, unknown>[];
}

export type Kind = keyof KindValues;

export interface ValueField {
  readonly kind: Kind;
  /** Missing: the field has no value unless it is set. */
  readonly default?: unknown;
  /** The default follows from the machine or from other fields: `applyConfigurationDefaults` sets it. */
  readonly isDerived?: true;
  /**
   * An empty value ("", 0, "0s") means something: no limit, switched off. Where this is missing an empty value stands
   * for the default, as in the kubelet.
   */
  readonly takesEmpty?: true;
  /** True for a field that each item of a list must have. */
  readonly isRequired?: true;
  /** Numbers as they are, sizes in bytes, durations in milliseconds. */
  readonly min?: number;
  readonly max?: number;
  readonly choices?: readonly string[];
  /** Accepted and reported as ignored when it is missing. Counts at the top of the file. */
  readonly isActedUpon?: true;
}

/** A mapping of fields. */
export interface MappingField {
  readonly fields: FieldTable;
  /** Stays missing, instead of holding its fields' defaults. */
  readonly isOptional?: true;
  readonly isActedUpon?: true;
}

/** A list of mappings; empty by default. */
export interface ListField {
  readonly items: FieldTable;
  readonly isActedUpon?: true;
}

export type Field = ValueField | MappingField | ListField;

export type FieldTable = Readonly<Record<string, Field>>;

type ValueOf<F> = F extends { readonly kind: "choice"; readonly choices: readonly (infer C)[] }
  ? C
  : F extends { readonly kind: infer K extends Kind }
    ? KindValues[K]
    : never;

type RequiredNames<T> = { [N in keyof T]: T[N] extends { readonly isRequired: true } ? N : never }[keyof T];

type GivenValue<F> = F extends { readonly fields: infer T }
  ? Given<T>
  : F extends { readonly items: infer T }
    ? Given<T>[]
    : ValueOf<F>;

/** The type of what a file sets. */
export type Given<T> = { [N in RequiredNames<T>]: GivenValue<T[N]> } & {
  [N in Exclude<keyof T, RequiredNames<T>>]?: GivenValue<T[N]> | undefined;
};

type NamesWithValue<T> = {
  [N in keyof T]: T[N] extends { readonly isOptional: true }
    ? never
    : T[N] extends { readonly fields: unknown } | { readonly items: unknown } | { readonly default: unknown }
      ? N
      : never;
}[keyof T];

type CompleteValue<F> = F extends { readonly fields: infer T } ? Complete<T> : GivenValue<F>;

/** With the defaults of the table, not yet those that are derived. */
export type Complete<T> = { [N in NamesWithValue<T>]: CompleteValue<T[N]> } & {
  [N in Exclude<keyof T, NamesWithValue<T>>]?: CompleteValue<T[N]> | undefined;
};

const SECOND = 1000;
const MINUTE = seconds(60);
const MAX_PORT = 65_535;
/** Each takes some 10 MiB that nothing else can use. */
const MAX_SPARE_RUNNERS = 16;

export const CONFIGURATION_FIELDS = {
  apiVersion: {
    kind: "text",
    default: "kubelet.config.k8s.io/v1beta1",
    choices: ["kubelet.config.k8s.io/v1beta1"],
    isActedUpon: true,
  },
  kind: { kind: "text", default: "KubeletConfiguration", choices: ["KubeletConfiguration"], isActedUpon: true },
  enableServer: { kind: "flag", isDerived: true, isActedUpon: true },
  staticPodPath: { kind: "text", default: "/etc/picolet/manifests", takesEmpty: true, isActedUpon: true },
  podLogsDir: { kind: "text", default: "/var/log/pods", isActedUpon: true },
  syncFrequency: { kind: "duration", default: MINUTE, min: 1 },
  fileCheckFrequency: { kind: "duration", default: seconds(20), min: 1, isActedUpon: true },
  httpCheckFrequency: { kind: "duration", default: seconds(20), min: 1, isActedUpon: true },
  staticPodURL: { kind: "text", default: "", isActedUpon: true },
  staticPodURLHeader: { kind: "textsMap", default: {}, isActedUpon: true },
  address: { kind: "text", default: "0.0.0.0", isActedUpon: true },
  port: { kind: "int32", default: 10_250, takesEmpty: true, min: 0, max: MAX_PORT, isActedUpon: true },
  readOnlyPort: { kind: "int32", default: 0, min: 0, max: MAX_PORT, isActedUpon: true },
  podHousekeepingPeriod: { kind: "duration", default: seconds(2), takesEmpty: true },
  tlsCertFile: { kind: "text", default: "", isActedUpon: true },
  tlsPrivateKeyFile: { kind: "text", default: "", isActedUpon: true },
  tlsCipherSuites: { kind: "texts", default: [], isActedUpon: true },
  tlsCurvePreferences: { kind: "int32s", default: [] },
  tlsMinVersion: {
    kind: "text",
    default: "VersionTLS12",
    choices: ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"],
    isActedUpon: true,
  },
  rotateCertificates: { kind: "flag", default: false },
  serverTLSBootstrap: { kind: "flag", default: false, isActedUpon: true },
  authentication: {
    isActedUpon: true,
    fields: {
      x509: { fields: { clientCAFile: { kind: "text", default: "" } } },
      webhook: {
        fields: { enabled: { kind: "flag", default: true }, cacheTTL: { kind: "duration", default: seconds(120) } },
      },
      anonymous: { fields: { enabled: { kind: "flag", default: false } } },
    },
  },
  authorization: {
    isActedUpon: true,
    fields: {
      mode: { kind: "text", default: "Webhook", choices: ["AlwaysAllow", "Webhook"] },
      webhook: {
        fields: {
          cacheAuthorizedTTL: { kind: "duration", default: seconds(300) },
          cacheUnauthorizedTTL: { kind: "duration", default: seconds(30) },
        },
      },
    },
  },
  registryPullQPS: { kind: "int32", default: 5, takesEmpty: true, min: 0, isActedUpon: true },
  registryBurst: { kind: "int32", default: 10, min: 0, isActedUpon: true },
  imagePullCredentialsVerificationPolicy: {
    kind: "text",
    default: "NeverVerifyPreloadedImages",
    choices: ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
    isActedUpon: true,
  },
  preloadedImagesVerificationAllowlist: { kind: "texts", default: [], isActedUpon: true },
  eventRecordQPS: { kind: "int32", default: 50, takesEmpty: true, min: 0, isActedUpon: true },
  eventBurst: { kind: "int32", default: 100, min: 0, isActedUpon: true },
  enableDebuggingHandlers: { kind: "flag", default: true, isActedUpon: true },
  enableContentionProfiling: { kind: "flag", default: false },
  healthzPort: { kind: "int32", default: 10_248, takesEmpty: true, min: 0, max: MAX_PORT, isActedUpon: true },
  healthzBindAddress: { kind: "text", default: "127.0.0.1", isActedUpon: true },
  oomScoreAdj: { kind: "int32", default: -999, takesEmpty: true, min: -1000, max: 1000, isActedUpon: true },
  clusterDomain: { kind: "text", default: "", isActedUpon: true },
  clusterDNS: { kind: "texts", default: [], isActedUpon: true },
  streamingConnectionIdleTimeout: { kind: "duration", default: seconds(4 * 3600) },
  nodeStatusUpdateFrequency: { kind: "duration", default: seconds(10), min: 1, isActedUpon: true },
  nodeStatusReportFrequency: { kind: "duration", isDerived: true, min: 1, isActedUpon: true },
  nodeLeaseDurationSeconds: { kind: "int32", default: 40, min: 1 },
  imageMinimumGCAge: { kind: "duration", default: seconds(120), min: 0, isActedUpon: true },
  imageMaximumGCAge: { kind: "duration", default: seconds(0), min: 0, isActedUpon: true },
  imageGCHighThresholdPercent: { kind: "int32", default: 85, takesEmpty: true, min: 0, max: 100, isActedUpon: true },
  imageGCLowThresholdPercent: { kind: "int32", default: 80, takesEmpty: true, min: 0, max: 100, isActedUpon: true },
  volumeStatsAggPeriod: { kind: "duration", default: MINUTE, isActedUpon: true },
  kubeletCgroups: { kind: "text", default: "" },
  systemCgroups: { kind: "text", default: "" },
  cgroupRoot: { kind: "text", default: "", isActedUpon: true },
  cgroupsPerQOS: { kind: "flag", default: true, isActedUpon: true },
  cgroupDriver: { kind: "text", default: "cgroupfs", choices: ["cgroupfs", "systemd"], isActedUpon: true },
  cpuManagerPolicy: { kind: "text", default: "none", choices: ["none", "static"], isActedUpon: true },
  singleProcessOOMKill: { kind: "flag", isActedUpon: true },
  cpuManagerPolicyOptions: { kind: "textMap", default: {}, isActedUpon: true },
  cpuManagerReconcilePeriod: { kind: "duration", default: seconds(10), isActedUpon: true },
  memoryManagerPolicy: { kind: "text", default: "None", choices: ["None", "Static"], isActedUpon: true },
  topologyManagerPolicy: {
    kind: "text",
    default: "none",
    choices: ["none", "best-effort", "restricted", "single-numa-node"],
    isActedUpon: true,
  },
  topologyManagerScope: { kind: "text", default: "container", choices: ["container", "pod"], isActedUpon: true },
  topologyManagerPolicyOptions: { kind: "textMap", default: {}, isActedUpon: true },
  qosReserved: { kind: "textMap", default: {}, isActedUpon: true },
  runtimeRequestTimeout: { kind: "duration", default: seconds(120), min: 1, isActedUpon: true },
  hairpinMode: { kind: "text", default: "promiscuous-bridge", choices: ["promiscuous-bridge", "hairpin-veth", "none"] },
  maxPods: { kind: "int32", default: 110, min: 0, isActedUpon: true },
  podCIDR: { kind: "text", default: "" },
  podPidsLimit: { kind: "int64", default: -1, takesEmpty: true, isActedUpon: true },
  resolvConf: { kind: "text", default: "/etc/resolv.conf", takesEmpty: true, isActedUpon: true },
  runOnce: { kind: "flag", default: false },
  cpuCFSQuota: { kind: "flag", default: true, isActedUpon: true },
  cpuCFSQuotaPeriod: {
    kind: "duration",
    default: millis(100),
    takesEmpty: true,
    min: 1,
    max: SECOND,
    isActedUpon: true,
  },
  nodeStatusMaxImages: { kind: "int32", default: 50, takesEmpty: true, min: -1, isActedUpon: true },
  maxOpenFiles: { kind: "int64", default: 1_000_000, min: 0 },
  contentType: { kind: "text", default: "application/vnd.kubernetes.protobuf" },
  kubeAPIQPS: { kind: "int32", default: 50, takesEmpty: true, min: 0 },
  kubeAPIBurst: { kind: "int32", default: 100, min: 0 },
  serializeImagePulls: { kind: "flag", isDerived: true, isActedUpon: true },
  maxParallelImagePulls: { kind: "int32", min: 1, isActedUpon: true },
  evictionHard: { kind: "textMap", isDerived: true, isActedUpon: true },
  evictionSoft: { kind: "textMap", default: {}, isActedUpon: true },
  evictionSoftGracePeriod: { kind: "textMap", default: {}, isActedUpon: true },
  evictionPressureTransitionPeriod: { kind: "duration", default: seconds(300), min: 0, isActedUpon: true },
  evictionMaxPodGracePeriod: { kind: "int32", default: 0, isActedUpon: true },
  evictionMinimumReclaim: { kind: "textMap", default: {}, isActedUpon: true },
  mergeDefaultEvictionSettings: { kind: "flag", default: false, isActedUpon: true },
  podsPerCore: { kind: "int32", default: 0, min: 0, isActedUpon: true },
  enableControllerAttachDetach: { kind: "flag", default: true },
  protectKernelDefaults: { kind: "flag", default: false },
  makeIPTablesUtilChains: { kind: "flag", default: true },
  iptablesMasqueradeBit: { kind: "int32", default: 14, takesEmpty: true, min: 0, max: 31 },
  iptablesDropBit: { kind: "int32", default: 15, takesEmpty: true, min: 0, max: 31 },
  featureGates: { kind: "flagMap", default: {}, isActedUpon: true },
  failSwapOn: { kind: "flag", default: false, isActedUpon: true },
  memorySwap: {
    fields: {
      swapBehavior: { kind: "text", default: "", choices: ["", "NoSwap", "LimitedSwap"] },
    },
    isActedUpon: true,
  },
  containerLogMaxSize: { kind: "bytes", default: 10 * MEBIBYTE, min: 1, isActedUpon: true },
  containerLogMaxFiles: { kind: "int32", default: 5, takesEmpty: true, min: 2, isActedUpon: true },
  containerLogMaxWorkers: { kind: "int32", default: 1, takesEmpty: true, min: 1, isActedUpon: true },
  containerLogMonitorInterval: {
    kind: "duration",
    default: seconds(10),
    takesEmpty: true,
    min: 3 * SECOND,
    isActedUpon: true,
  },
  configMapAndSecretChangeDetectionStrategy: { kind: "text", default: "Watch", choices: ["Get", "Cache", "Watch"] },
  systemReserved: { kind: "textMap", default: {}, isActedUpon: true },
  kubeReserved: { kind: "textMap", isDerived: true, isActedUpon: true },
  reservedSystemCPUs: { kind: "text", default: "", isActedUpon: true },
  showHiddenMetricsForVersion: { kind: "text", default: "" },
  systemReservedCgroup: { kind: "text", default: "", isActedUpon: true },
  kubeReservedCgroup: { kind: "text", default: "", isActedUpon: true },
  enforceNodeAllocatable: { kind: "texts", default: ["pods"], takesEmpty: true, isActedUpon: true },
  allowedUnsafeSysctls: { kind: "texts", default: [], isActedUpon: true },
  volumePluginDir: { kind: "text", default: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/" },
  providerID: { kind: "text", default: "", isActedUpon: true },
  kernelMemcgNotification: { kind: "flag", default: false },
  logging: { kind: "opaque", default: {}, isActedUpon: true },
  enableSystemLogHandler: { kind: "flag", default: true, isActedUpon: true },
  enableSystemLogQuery: { kind: "flag", default: false },
  shutdownGracePeriod: { kind: "duration", default: seconds(0), min: 0, isActedUpon: true },
  shutdownGracePeriodCriticalPods: { kind: "duration", default: seconds(0), min: 0, isActedUpon: true },
  shutdownGracePeriodByPodPriority: {
    items: {
      priority: { kind: "int32", isRequired: true },
      shutdownGracePeriodSeconds: { kind: "int64", isRequired: true },
    },
    isActedUpon: true,
  },
  crashLoopBackOff: {
    fields: {
      initialContainerRestartPeriod: {
        kind: "duration",
        default: seconds(10),
        takesEmpty: true,
        min: 1,
        max: 300 * SECOND,
      },
      maxContainerRestartPeriod: {
        kind: "duration",
        default: seconds(300),
        takesEmpty: true,
        min: SECOND,
        max: 300 * SECOND,
      },
    },
    isActedUpon: true,
  },
  reservedMemory: {
    items: {
      numaNode: { kind: "int32", isRequired: true },
      limits: { kind: "quantityMap", isRequired: true },
    },
    isActedUpon: true,
  },
  enableProfilingHandler: { kind: "flag", default: true },
  enableDebugFlagsHandler: { kind: "flag", default: true },
  seccompDefault: { kind: "flag", default: false, isActedUpon: true },
  memoryThrottlingFactor: { kind: "real", default: 0.9, takesEmpty: true, isActedUpon: true },
  registerWithTaints: {
    items: {
      key: { kind: "text", isRequired: true },
      value: { kind: "text" },
      effect: { kind: "text", isRequired: true },
      timeAdded: { kind: "text" },
    },
    isActedUpon: true,
  },
  registerNode: { kind: "flag", default: true, isActedUpon: true },
  tracing: { kind: "opaque" },
  localStorageCapacityIsolation: { kind: "flag", default: true },
  containerRuntimeEndpoint: {
    kind: "text",
    default: "unix:///run/containerd/containerd.sock",
    takesEmpty: true,
    isActedUpon: true,
  },
  imageServiceEndpoint: { kind: "text", default: "", isActedUpon: true },
  failCgroupV1: { kind: "flag", default: false },
  userNamespaces: { fields: { idsPerPod: { kind: "int64", default: 65_536, takesEmpty: true } } },
  nodeName: { kind: "text", isDerived: true, isActedUpon: true },
  wasm: {
    fields: {
      maxComponentSize: { kind: "bytes", default: 32 * MEBIBYTE, takesEmpty: true, min: 1 },
      transpileMemory: { kind: "bytes", default: 384 * MEBIBYTE, takesEmpty: true, min: 1 },
      transpileTimeout: { kind: "duration", default: seconds(300), takesEmpty: true, min: 1 },
      startTimeout: { kind: "duration", default: seconds(30), takesEmpty: true, min: 1 },
      registries: {
        items: {
          host: { kind: "text", isRequired: true },
          insecure: { kind: "flag" },
          caFile: { kind: "text" },
          mirrors: { kind: "texts" },
        },
      },
      proxy: {
        fields: {
          httpProxy: { kind: "text", takesEmpty: true },
          httpsProxy: { kind: "text", takesEmpty: true },
          noProxy: { kind: "text", takesEmpty: true },
        },
      },
      http: { fields: { caFile: { kind: "text", takesEmpty: true } } },
      spareRunners: { kind: "int32", default: 1, takesEmpty: true, min: 0, max: MAX_SPARE_RUNNERS },
      p3: { kind: "flag", default: false },
      nodeLabels: { kind: "texts", default: [] },
    },
    isActedUpon: true,
  },
  budget: {
    fields: {
      memoryBytes: { kind: "bytes", default: 64 * MEBIBYTE, takesEmpty: true, min: 1 },
      flashBytesPerDay: { kind: "bytes", default: 0, takesEmpty: true, min: 0 },
      agentFlashBytesPerDay: { kind: "bytes", default: 5 * MEBIBYTE, takesEmpty: true, min: 1 },
    },
    isActedUpon: true,
  },
  boardHealth: {
    fields: {
      enabled: { kind: "flag", default: true },
      temperatureCelsius: { kind: "int32", default: 85, min: 1, max: 150 },
      wearPercent: { kind: "int32", default: 90, min: 10, max: 110 },
      holdPeriod: { kind: "duration", default: seconds(300), takesEmpty: true, min: 0, max: 86_400 * SECOND },
    },
    isActedUpon: true,
  },
  devices: {
    items: {
      name: { kind: "text", isRequired: true },
      match: { kind: "textOrTexts", isRequired: true },
    },
    isActedUpon: true,
  },
  allowedDevices: {
    items: {
      match: { kind: "textOrTexts", isRequired: true },
      namespaces: { kind: "textOrTexts", isRequired: true },
    },
    isActedUpon: true,
  },
  page: {
    fields: {
      enabled: { kind: "flag", isDerived: true },
      address: { kind: "text", default: "127.0.0.1" },
      port: { kind: "int32", default: 4194, takesEmpty: true, min: 0, max: MAX_PORT },
      anonymous: { kind: "flag", default: false },
    },
    isActedUpon: true,
  },
  blackBox: {
    fields: {
      size: { kind: "bytes", default: MEBIBYTE, min: MEBIBYTE / 16, max: 64 * MEBIBYTE },
    },
    isActedUpon: true,
  },
  telemetry: {
    fields: {
      maxBytes: { kind: "bytes", default: 16 * MEBIBYTE, takesEmpty: true, min: MEBIBYTE, max: 1024 * MEBIBYTE },
      maxAge: { kind: "duration", default: seconds(7 * 86_400), takesEmpty: true, min: 60 * SECOND },
      flushInterval: { kind: "duration", default: seconds(60), takesEmpty: true, min: 100, max: 3600 * SECOND },
    },
    isActedUpon: true,
  },
  updates: {
    fields: {
      allowed: { kind: "texts", default: ["os", "agent", "configuration"], takesEmpty: true },
      bytesPerSecond: { kind: "bytes", default: 0, takesEmpty: true, min: 0 },
    },
    isActedUpon: true,
  },
  secretsAtRest: {
    fields: {
      keyProvider: {
        kind: "text",
        default: "auto",
        choices: ["auto", "tpm2", "systemd-creds", "rpi-otp", "file"],
      },
      keyFile: { kind: "text", default: "" },
    },
    isActedUpon: true,
  },
  imageCredentialProviderConfig: { kind: "text", default: "", isActedUpon: true },
  imageCredentialProviderBinDir: { kind: "text", default: "", isActedUpon: true },
  imageSignatures: {
    items: {
      repository: { kind: "text", isRequired: true },
      require: { kind: "choice", choices: ["signature", "nothing", "reject"] },
      keys: { kind: "texts" },
      keyFiles: { kind: "texts" },
      signedIdentity: { kind: "choice", choices: ["repository", "any"] },
    },
    isActedUpon: true,
  },
  nodeLabels: { kind: "textMap", default: {}, isActedUpon: true },
  cloudProvider: { kind: "text", default: "", choices: ["", "external"], isActedUpon: true },
  hub: {
    fields: {
      server: { kind: "textOrTexts", default: [] },
      token: { kind: "text", default: "" },
      tokenFile: { kind: "text", default: "" },
      caHash: { kind: "textOrTexts", default: [] },
      caFile: { kind: "text", default: "" },
      proxy: { kind: "text", default: "" },
      heartbeatInterval: { kind: "duration", default: seconds(30), min: 5 * SECOND, max: 60 * SECOND },
      reconnectBackoff: {
        fields: {
          initial: { kind: "duration", default: seconds(1), min: 100, max: 60 * SECOND },
          max: { kind: "duration", default: seconds(60), min: SECOND, max: 3600 * SECOND },
        },
      },
    },
    isOptional: true,
    isActedUpon: true,
  },
} as const satisfies FieldTable;
