/**
 * The table of the kubelet's flags (Kubernetes 1.34): what each sets in the configuration, or why it sets nothing here.
 * The command line, help, man page, completions and docs/configuration.md follow from it. Loaded at the start alone.
 *
 * To add a flag: a row here. `test/golden/kubelet-flags.txt` lists the kubelet's own.
 */

/** How a flag's value is written, and what it becomes: `kubelet-flag-values.ts` reads each form. */
export type FlagForm =
  | "text"
  /** A file or folder; a relative one is below the working directory. */
  | "path"
  | "number"
  /** "20s", "1m30s". */
  | "duration"
  /** May be given alone, which means true. */
  | "switch"
  /** "a,b". */
  | "list"
  /** "a=1,b=2". */
  | "pairs"
  /** "memory.available<100Mi,nodefs.available<10%". */
  | "thresholds"
  /** "A=true,B=false". */
  | "gates"
  /** "Authorization:Bearer x,Accept:text/yaml". */
  | "headers"
  /** "key=value:NoSchedule,other:NoExecute". */
  | "taints"
  /** "0:memory=1Gi;1:memory=2Gi". */
  | "reservations";

interface FlagName {
  /** Without the dashes. */
  readonly name: string;
  readonly form: FlagForm;
}

/** A flag with a place in the configuration. */
export interface SettingFlag extends FlagName {
  readonly field: string;
  /** True where the kubelet has no field for it and calls the flag current; all others it calls deprecated. */
  readonly isCurrent?: true;
  /** True for a flag that the kubelet does not have: it has the field alone. */
  readonly isOwn?: true;
  readonly short?: string;
}

/** A flag of something that picolet does not have. */
export interface IdleFlag extends FlagName {
  /** The end of a sentence: another way to the same, or why nothing is lost. */
  readonly instead: string;
  /** Values other than these are refused. Missing: every value is accepted without effect. */
  readonly takes?: readonly string[];
}

const SETTINGS: readonly SettingFlag[] = [
  // Where pods come from.
  { name: "pod-manifest-path", form: "path", field: "staticPodPath" },
  { name: "file-check-frequency", form: "duration", field: "fileCheckFrequency" },
  { name: "manifest-url", form: "text", field: "staticPodURL" },
  { name: "manifest-url-header", form: "headers", field: "staticPodURLHeader" },
  { name: "http-check-frequency", form: "duration", field: "httpCheckFrequency" },
  { name: "sync-frequency", form: "duration", field: "syncFrequency" },
  { name: "runonce", form: "switch", field: "runOnce" },
  // The node.
  { name: "hostname-override", form: "text", field: "nodeName", isCurrent: true },
  { name: "node-labels", form: "pairs", field: "nodeLabels", isCurrent: true },
  { name: "register-node", form: "switch", field: "registerNode" },
  { name: "register-with-taints", form: "taints", field: "registerWithTaints" },
  { name: "provider-id", form: "text", field: "providerID", isCurrent: true },
  { name: "cloud-provider", form: "text", field: "cloudProvider", isCurrent: true },
  { name: "node-status-update-frequency", form: "duration", field: "nodeStatusUpdateFrequency" },
  { name: "node-status-max-images", form: "number", field: "nodeStatusMaxImages" },
  { name: "max-pods", form: "number", field: "maxPods" },
  { name: "pods-per-core", form: "number", field: "podsPerCore" },
  { name: "pod-cidr", form: "text", field: "podCIDR" },
  { name: "resolv-conf", form: "path", field: "resolvConf" },
  { name: "cluster-dns", form: "list", field: "clusterDNS" },
  { name: "cluster-domain", form: "text", field: "clusterDomain" },
  { name: "healthz-port", form: "number", field: "healthzPort" },
  { name: "healthz-bind-address", form: "text", field: "healthzBindAddress" },
  { name: "read-only-port", form: "number", field: "readOnlyPort" },
  { name: "event-qps", form: "number", field: "eventRecordQPS" },
  { name: "event-burst", form: "number", field: "eventBurst" },
  { name: "feature-gates", form: "gates", field: "featureGates" },
  { name: "logging-format", form: "text", field: "logging.format" },
  { name: "v", form: "number", field: "logging.verbosity", isCurrent: true, short: "v" },
  // The container runtime, logs and images.
  { name: "container-runtime-endpoint", form: "text", field: "containerRuntimeEndpoint" },
  { name: "image-service-endpoint", form: "text", field: "imageServiceEndpoint" },
  { name: "runtime-request-timeout", form: "duration", field: "runtimeRequestTimeout" },
  { name: "seccomp-default", form: "switch", field: "seccompDefault", isCurrent: true },
  { name: "allowed-unsafe-sysctls", form: "list", field: "allowedUnsafeSysctls" },
  { name: "container-log-max-size", form: "text", field: "containerLogMaxSize" },
  { name: "container-log-max-files", form: "number", field: "containerLogMaxFiles" },
  { name: "serialize-image-pulls", form: "switch", field: "serializeImagePulls" },
  { name: "max-parallel-image-pulls", form: "number", field: "maxParallelImagePulls", isOwn: true },
  { name: "registry-qps", form: "number", field: "registryPullQPS" },
  { name: "registry-burst", form: "number", field: "registryBurst" },
  { name: "image-credential-provider-config", form: "path", field: "imageCredentialProviderConfig", isCurrent: true },
  { name: "image-credential-provider-bin-dir", form: "path", field: "imageCredentialProviderBinDir", isCurrent: true },
  { name: "image-gc-high-threshold", form: "number", field: "imageGCHighThresholdPercent" },
  { name: "image-gc-low-threshold", form: "number", field: "imageGCLowThresholdPercent" },
  { name: "minimum-image-ttl-duration", form: "duration", field: "imageMinimumGCAge" },
  // Reserved resources and cgroups.
  { name: "kube-reserved", form: "pairs", field: "kubeReserved" },
  { name: "system-reserved", form: "pairs", field: "systemReserved" },
  { name: "kube-reserved-cgroup", form: "text", field: "kubeReservedCgroup" },
  { name: "system-reserved-cgroup", form: "text", field: "systemReservedCgroup" },
  { name: "enforce-node-allocatable", form: "list", field: "enforceNodeAllocatable" },
  { name: "reserved-cpus", form: "text", field: "reservedSystemCPUs" },
  { name: "reserved-memory", form: "reservations", field: "reservedMemory" },
  { name: "qos-reserved", form: "pairs", field: "qosReserved" },
  { name: "cgroup-driver", form: "text", field: "cgroupDriver" },
  { name: "cgroup-root", form: "text", field: "cgroupRoot" },
  { name: "cgroups-per-qos", form: "switch", field: "cgroupsPerQOS" },
  { name: "cpu-cfs-quota", form: "switch", field: "cpuCFSQuota" },
  { name: "cpu-cfs-quota-period", form: "duration", field: "cpuCFSQuotaPeriod" },
  { name: "pod-max-pids", form: "number", field: "podPidsLimit" },
  { name: "oom-score-adj", form: "number", field: "oomScoreAdj" },
  { name: "fail-swap-on", form: "switch", field: "failSwapOn" },
  { name: "fail-cgroupv1", form: "switch", field: "failCgroupV1", isCurrent: true },
  { name: "cpu-manager-policy", form: "text", field: "cpuManagerPolicy" },
  { name: "cpu-manager-policy-options", form: "pairs", field: "cpuManagerPolicyOptions" },
  { name: "cpu-manager-reconcile-period", form: "duration", field: "cpuManagerReconcilePeriod" },
  { name: "memory-manager-policy", form: "text", field: "memoryManagerPolicy" },
  { name: "topology-manager-policy", form: "text", field: "topologyManagerPolicy" },
  { name: "topology-manager-scope", form: "text", field: "topologyManagerScope" },
  { name: "topology-manager-policy-options", form: "pairs", field: "topologyManagerPolicyOptions" },
  // Eviction.
  { name: "eviction-hard", form: "thresholds", field: "evictionHard" },
  { name: "eviction-soft", form: "thresholds", field: "evictionSoft" },
  { name: "eviction-soft-grace-period", form: "pairs", field: "evictionSoftGracePeriod" },
  { name: "eviction-minimum-reclaim", form: "pairs", field: "evictionMinimumReclaim" },
  { name: "eviction-max-pod-grace-period", form: "number", field: "evictionMaxPodGracePeriod" },
  { name: "eviction-pressure-transition-period", form: "duration", field: "evictionPressureTransitionPeriod" },
  { name: "volume-stats-agg-period", form: "duration", field: "volumeStatsAggPeriod" },
  { name: "kernel-memcg-notification", form: "switch", field: "kernelMemcgNotification" },
  { name: "local-storage-capacity-isolation", form: "switch", field: "localStorageCapacityIsolation" },
  // The kubelet's own server, and others that picolet accepts in the file and does not act upon.
  { name: "enable-server", form: "switch", field: "enableServer" },
  { name: "address", form: "text", field: "address" },
  { name: "port", form: "number", field: "port" },
  { name: "tls-cert-file", form: "text", field: "tlsCertFile" },
  { name: "tls-private-key-file", form: "text", field: "tlsPrivateKeyFile" },
  { name: "tls-cipher-suites", form: "list", field: "tlsCipherSuites" },
  { name: "tls-min-version", form: "text", field: "tlsMinVersion" },
  { name: "rotate-certificates", form: "switch", field: "rotateCertificates" },
  { name: "rotate-server-certificates", form: "switch", field: "serverTLSBootstrap" },
  { name: "client-ca-file", form: "text", field: "authentication.x509.clientCAFile" },
  { name: "anonymous-auth", form: "switch", field: "authentication.anonymous.enabled" },
  { name: "authentication-token-webhook", form: "switch", field: "authentication.webhook.enabled" },
  { name: "authentication-token-webhook-cache-ttl", form: "duration", field: "authentication.webhook.cacheTTL" },
  { name: "authorization-mode", form: "text", field: "authorization.mode" },
  {
    name: "authorization-webhook-cache-authorized-ttl",
    form: "duration",
    field: "authorization.webhook.cacheAuthorizedTTL",
  },
  {
    name: "authorization-webhook-cache-unauthorized-ttl",
    form: "duration",
    field: "authorization.webhook.cacheUnauthorizedTTL",
  },
  { name: "enable-debugging-handlers", form: "switch", field: "enableDebuggingHandlers" },
  { name: "contention-profiling", form: "switch", field: "enableContentionProfiling" },
  { name: "streaming-connection-idle-timeout", form: "duration", field: "streamingConnectionIdleTimeout" },
  { name: "kubelet-cgroups", form: "text", field: "kubeletCgroups" },
  { name: "system-cgroups", form: "text", field: "systemCgroups" },
  { name: "hairpin-mode", form: "text", field: "hairpinMode" },
  { name: "max-open-files", form: "number", field: "maxOpenFiles" },
  { name: "kube-api-content-type", form: "text", field: "contentType" },
  { name: "kube-api-qps", form: "number", field: "kubeAPIQPS" },
  { name: "kube-api-burst", form: "number", field: "kubeAPIBurst" },
  { name: "enable-controller-attach-detach", form: "switch", field: "enableControllerAttachDetach" },
  { name: "protect-kernel-defaults", form: "switch", field: "protectKernelDefaults" },
  { name: "make-iptables-util-chains", form: "switch", field: "makeIPTablesUtilChains" },
  { name: "volume-plugin-dir", form: "text", field: "volumePluginDir" },
];

const NO_LOG_OPTIONS = "the agent writes each log line at once, to standard error";
const NO_CADVISOR = "picolet has no cAdvisor; it measures pods by itself";
const BY_EVICTION = "the agent removes what a pod no longer needs; --eviction-hard and --eviction-soft keep disks free";
const JOIN = "the node belongs to a hub, not to an API server; leave the flag out, and run `edgectl join`";

/** Rows of several flags with one reason. */
const idle = (instead: string, form: FlagForm, ...names: readonly string[]): readonly IdleFlag[] =>
  names.map((name) => ({ name, form, instead }));

const refused = (instead: string, form: FlagForm, ...names: readonly string[]): readonly IdleFlag[] =>
  names.map((name) => ({ name, form, instead, takes: [] }));

const IDLE: readonly IdleFlag[] = [
  ...refused(JOIN, "text", "kubeconfig", "bootstrap-kubeconfig"),
  ...refused("all settings are in one file; put those of the folder into the file of --config", "text", "config-dir"),
  ...refused("the agent locks its --root-dir by itself; leave the flag out", "text", "lock-file"),
  {
    name: "exit-on-lock-contention",
    form: "switch",
    instead: "the agent locks its --root-dir by itself; leave the flag out",
    takes: ["false"],
  },
  ...idle("keys and certificates are below --root-dir", "text", "cert-dir"),
  ...idle(
    "the agent reads its addresses from the network interfaces, and a Node's InternalIP is the hub's",
    "text",
    "node-ip",
  ),
  ...idle("the runtime's own configuration names the image of the sandbox", "text", "pod-infra-container-image"),
  ...idle("the runtime's service manager puts it into its cgroup", "text", "runtime-cgroups"),
  ...idle("picolet samples usage when a caller needs it", "duration", "housekeeping-interval"),
  ...idle("picolet samples usage when a caller needs it", "duration", "max-housekeeping-interval"),
  ...idle(NO_LOG_OPTIONS, "duration", "log-flush-frequency"),
  ...idle(NO_LOG_OPTIONS, "text", "log-text-info-buffer-size", "vmodule"),
  ...idle(NO_LOG_OPTIONS, "switch", "log-text-split-stream"),
  ...idle(BY_EVICTION, "number", "maximum-dead-containers", "maximum-dead-containers-per-container"),
  ...idle(BY_EVICTION, "duration", "minimum-container-ttl-duration"),
  ...idle("the kubelet of 1.34 has no use for it either", "switch", "experimental-allocatable-ignore-eviction"),
  ...idle("the kubelet of 1.34 has no use for it either", "text", "experimental-mounter-path"),
  ...idle(NO_CADVISOR, "number", "application-metrics-count-limit"),
  ...idle(NO_CADVISOR, "duration", "global-housekeeping-interval", "storage-driver-buffer-duration"),
  ...idle(NO_CADVISOR, "switch", "enable-load-reader", "log-cadvisor-usage", "storage-driver-secure"),
  ...idle(NO_CADVISOR, "text", "boot-id-file", "container-hints", "containerd", "containerd-namespace"),
  ...idle(NO_CADVISOR, "text", "event-storage-age-limit", "event-storage-event-limit", "machine-id-file"),
  ...idle(NO_CADVISOR, "text", "storage-driver-db", "storage-driver-host", "storage-driver-password"),
  ...idle(NO_CADVISOR, "text", "storage-driver-table", "storage-driver-user"),
];

export type KubeletFlag = SettingFlag | IdleFlag;

/** All but `--config`, `--root-dir`, `--help` and `--version`, which picolet has with the kubelet's meaning. */
export const KUBELET_FLAGS: readonly KubeletFlag[] = [...SETTINGS, ...IDLE];

export const isSetting = (flag: KubeletFlag): flag is SettingFlag => "field" in flag;

/** "no effect", "refused", or "refused, but for" the values that have none. */
export function effectOf({ takes }: IdleFlag): string {
  if (takes === undefined) return "no effect";
  const taken = takes.map((each) => (each === "" ? '""' : each)).join(", ");
  return taken === "" ? "refused" : `refused, but for ${taken}`;
}
