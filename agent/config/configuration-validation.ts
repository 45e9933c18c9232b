/** Whatever the kubelet refuses a configuration for (pkg/kubelet/apis/config/validation), and what ours must keep to. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { ipProblems, nodeNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { isNamespacedSysctl } from "../plan/admission/sysctls.ts";
import type { NodeAllocatable } from "../plan/node/node-allocatable.ts";
import type { Board } from "./board-defaults.ts";
import type { Configuration } from "./configuration.ts";
import { type SignalCapacities, type SignalCapacity, validateEviction } from "./eviction-validation.ts";
import { validateHub, validateNode } from "./hub-validation.ts";
import { validateImageCredentials, validateImageSignatures } from "./image-credentials-validation.ts";
import { validateHttp, validateProxy, validateRegistries } from "./registries-validation.ts";
import {
  boardShare,
  validateReservations,
  validateReservedCpus,
  validateSums,
  validateSwap,
} from "./reservation-validation.ts";
import { validateStaticPolicies, validateTopology } from "./topology-validation.ts";

const MAX_PORT = 65_535;
const SECOND = 1000;
/** Each is some 10 MiB that nobody else has. */
const MAX_SPARE_RUNNERS = 16;
const UNLIMITED = Number.MAX_SAFE_INTEGER;

type Range = readonly [
  path: string,
  value: (configuration: Configuration) => number | undefined,
  min: number,
  max: number,
];

const RANGES: readonly Range[] = [
  ["port", (c) => c.port, 0, MAX_PORT],
  ["readOnlyPort", (c) => c.readOnlyPort, 0, MAX_PORT],
  ["healthzPort", (c) => c.healthzPort, 0, MAX_PORT],
  ["nodeLeaseDurationSeconds", (c) => c.nodeLeaseDurationSeconds, 1, UNLIMITED],
  ["eventRecordQPS", (c) => c.eventRecordQPS, 0, UNLIMITED],
  ["eventBurst", (c) => c.eventBurst, 0, UNLIMITED],
  ["kubeAPIQPS", (c) => c.kubeAPIQPS, 0, UNLIMITED],
  ["kubeAPIBurst", (c) => c.kubeAPIBurst, 0, UNLIMITED],
  ["registryPullQPS", (c) => c.registryPullQPS, 0, UNLIMITED],
  ["registryBurst", (c) => c.registryBurst, 0, UNLIMITED],
  ["imageGCHighThresholdPercent", (c) => c.imageGCHighThresholdPercent, 0, 100],
  ["imageGCLowThresholdPercent", (c) => c.imageGCLowThresholdPercent, 0, 100],
  ["iptablesMasqueradeBit", (c) => c.iptablesMasqueradeBit, 0, 31],
  ["iptablesDropBit", (c) => c.iptablesDropBit, 0, 31],
  ["maxOpenFiles", (c) => c.maxOpenFiles, 0, UNLIMITED],
  ["maxPods", (c) => c.maxPods, 0, UNLIMITED],
  ["podsPerCore", (c) => c.podsPerCore, 0, UNLIMITED],
  ["nodeStatusMaxImages", (c) => c.nodeStatusMaxImages, -1, UNLIMITED],
  ["oomScoreAdj", (c) => c.oomScoreAdj, -1000, 1000],
  ["maxParallelImagePulls", (c) => c.maxParallelImagePulls, 1, UNLIMITED],
  ["containerLogMaxFiles", (c) => c.containerLogMaxFiles, 2, UNLIMITED],
  ["containerLogMaxSize", (c) => c.containerLogMaxSize, 1, UNLIMITED],
  ["containerLogMaxWorkers", (c) => c.containerLogMaxWorkers, 1, UNLIMITED],
  ["budget.memoryBytes", (c) => c.budget.memoryBytes, 1, UNLIMITED],
  ["budget.flashBytesPerDay", (c) => c.budget.flashBytesPerDay, 0, UNLIMITED],
  ["budget.agentFlashBytesPerDay", (c) => c.budget.agentFlashBytesPerDay, 1, UNLIMITED],
  ["telemetry.maxBytes", (c) => c.telemetry.maxBytes, 1_048_576, 1_073_741_824],
  ["wasm.maxComponentSize", (c) => c.wasm.maxComponentSize, 1, UNLIMITED],
  ["wasm.transpileMemory", (c) => c.wasm.transpileMemory, 1, UNLIMITED],
  ["wasm.spareRunners", (c) => c.wasm.spareRunners, 0, MAX_SPARE_RUNNERS],
];

/** In milliseconds; shown in seconds. */
const DURATION_RANGES: readonly Range[] = [
  ["telemetry.maxAge", (c) => c.telemetry.maxAge, 60_000, UNLIMITED],
  ["telemetry.flushInterval", (c) => c.telemetry.flushInterval, 100, 3_600_000],
  ["syncFrequency", (c) => c.syncFrequency, 1, UNLIMITED],
  ["fileCheckFrequency", (c) => c.fileCheckFrequency, 1, UNLIMITED],
  ["httpCheckFrequency", (c) => c.httpCheckFrequency, 1, UNLIMITED],
  ["nodeStatusUpdateFrequency", (c) => c.nodeStatusUpdateFrequency, 1, UNLIMITED],
  ["nodeStatusReportFrequency", (c) => c.nodeStatusReportFrequency, 1, UNLIMITED],
  ["imageMinimumGCAge", (c) => c.imageMinimumGCAge, 0, UNLIMITED],
  ["imageMaximumGCAge", (c) => c.imageMaximumGCAge, 0, UNLIMITED],
  ["runtimeRequestTimeout", (c) => c.runtimeRequestTimeout, 1, UNLIMITED],
  ["cpuCFSQuotaPeriod", (c) => c.cpuCFSQuotaPeriod, 1, SECOND],
  ["containerLogMonitorInterval", (c) => c.containerLogMonitorInterval, 3 * SECOND, UNLIMITED],
  ["evictionPressureTransitionPeriod", (c) => c.evictionPressureTransitionPeriod, 0, UNLIMITED],
  ["shutdownGracePeriod", (c) => c.shutdownGracePeriod, 0, UNLIMITED],
  ["shutdownGracePeriodCriticalPods", (c) => c.shutdownGracePeriodCriticalPods, 0, UNLIMITED],
  [
    "crashLoopBackOff.maxContainerRestartPeriod",
    (c) => c.crashLoopBackOff.maxContainerRestartPeriod,
    SECOND,
    300 * SECOND,
  ],
  [
    "crashLoopBackOff.initialContainerRestartPeriod",
    (c) => c.crashLoopBackOff.initialContainerRestartPeriod,
    1,
    300 * SECOND,
  ],
  // A hub takes 75 s of silence for the end of a session.
  ["hub.heartbeatInterval", (c) => c.hub?.heartbeatInterval, 5 * SECOND, 60 * SECOND],
  ["hub.reconnectBackoff.initial", (c) => c.hub?.reconnectBackoff.initial, 100, 60 * SECOND],
  ["hub.reconnectBackoff.max", (c) => c.hub?.reconnectBackoff.max, SECOND, 3600 * SECOND],
  ["wasm.transpileTimeout", (c) => c.wasm.transpileTimeout, 1, UNLIMITED],
  ["wasm.startTimeout", (c) => c.wasm.startTimeout, 1, UNLIMITED],
];

type Choice = readonly [path: string, value: (configuration: Configuration) => string, supported: readonly string[]];

const CHOICES: readonly Choice[] = [
  ["apiVersion", (c) => c.apiVersion, ["kubelet.config.k8s.io/v1beta1"]],
  ["kind", (c) => c.kind, ["KubeletConfiguration"]],
  [
    "secretsAtRest.keyProvider",
    (c) => c.secretsAtRest.keyProvider,
    ["auto", "tpm2", "systemd-creds", "rpi-otp", "file"],
  ],
  ["cgroupDriver", (c) => c.cgroupDriver, ["cgroupfs", "systemd"]],
  ["cpuManagerPolicy", (c) => c.cpuManagerPolicy, ["none", "static"]],
  ["memoryManagerPolicy", (c) => c.memoryManagerPolicy, ["None", "Static"]],
  ["topologyManagerPolicy", (c) => c.topologyManagerPolicy, ["none", "best-effort", "restricted", "single-numa-node"]],
  ["topologyManagerScope", (c) => c.topologyManagerScope, ["container", "pod"]],
  ["hairpinMode", (c) => c.hairpinMode, ["promiscuous-bridge", "hairpin-veth", "none"]],
  [
    "configMapAndSecretChangeDetectionStrategy",
    (c) => c.configMapAndSecretChangeDetectionStrategy,
    ["Get", "Cache", "Watch"],
  ],
  ["authorization.mode", (c) => c.authorization.mode, ["AlwaysAllow", "Webhook"]],
  ["memorySwap.swapBehavior", (c) => c.memorySwap.swapBehavior, ["", "NoSwap", "LimitedSwap"]],
  [
    "imagePullCredentialsVerificationPolicy",
    (c) => c.imagePullCredentialsVerificationPolicy,
    ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
  ],
];

const ALLOCATABLE_ENFORCEMENTS = [
  "none",
  "pods",
  "system-reserved",
  "system-reserved-compressible",
  "kube-reserved",
  "kube-reserved-compressible",
];

export function validateConfiguration(configuration: Configuration, board: Board, problems: FieldProblems): void {
  for (const [path, read, min, max] of RANGES) {
    const value = read(configuration);
    if (value !== undefined && !(value >= min && value <= max)) problems.invalid(path, value, rangeText(min, max, ""));
  }
  for (const [path, read, min, max] of DURATION_RANGES) {
    const value = read(configuration);
    if (value !== undefined && !(value >= min && value <= max)) {
      problems.add(path, `Invalid value: ${value / SECOND}s: ${rangeText(min / SECOND, max / SECOND, "s")}`);
    }
  }
  for (const [path, read, supported] of CHOICES) {
    const value = read(configuration);
    if (!supported.includes(value)) problems.unsupported(path, value, supported);
  }
  validateImages(configuration, problems);
  validateImageCredentials(configuration, problems);
  validateImageSignatures(configuration, problems);
  validateCgroups(configuration, problems);
  validateShutdown(configuration, problems);
  validateSysctls(configuration, problems);
  validatePlaces(configuration, problems);
  validateHub(configuration, problems);
  validateRegistries(configuration, problems);
  validateProxy(configuration, problems);
  validateHttp(configuration, problems);
  validateNode(configuration, problems);
  validateTopology(configuration, problems);
  validateShares(configuration, board, problems);
}

/** Reservations and thresholds each by themselves, then, when all of them can be read, what they come to together. */
function validateShares(configuration: Configuration, board: Board, problems: FieldProblems): void {
  const before = problems.found.length;
  validateReservations(configuration, problems);
  const isReadable = problems.found.length === before;
  const share = isReadable ? boardShare(configuration, board) : undefined;
  validateReservedCpus(configuration, board, problems);
  validateSwap(configuration, board, problems);
  validateEviction(configuration, share === undefined ? {} : signalCapacities(share), problems);
  if (share === undefined) return;
  validateSums(configuration, share, problems);
  if (problems.found.length > before) return;
  const { reservation } = share;
  const reserved = { milliCpu: reservation.get("cpu") ?? 0n, memoryBytes: reservation.get("memory") ?? 0n };
  validateStaticPolicies(configuration, reserved, problems);
}

/** Not of a resource that is reserved beyond what there is, which is said anyway. */
function signalCapacities({ capacity, podLimits, excess }: NodeAllocatable): SignalCapacities {
  const of = (resource: string): SignalCapacity | undefined => {
    if (excess.some((each) => each.resource === resource)) return undefined;
    const [whole, left] = [capacity.get(resource), podLimits.get(resource)];
    return whole === undefined || left === undefined ? undefined : { whole: Number(whole), left: Number(left) };
  };
  const pids = capacity.get("pid");
  return {
    "memory.available": of("memory"),
    "nodefs.available": of("ephemeral-storage"),
    // Those that are reserved are available until somebody takes them.
    "pid.available": pids === undefined ? undefined : { whole: Number(pids), left: Number(pids) },
  };
}

function rangeText(min: number, max: number, unit: string): string {
  if (max >= UNLIMITED / SECOND) return `must be greater than or equal to ${min}${unit}`;
  return `must be between ${min}${unit} and ${max}${unit}, inclusive`;
}

function validateImages(configuration: Configuration, problems: FieldProblems): void {
  const { imageGCHighThresholdPercent: high, imageGCLowThresholdPercent: low } = configuration;
  if (low >= high) {
    problems.invalid("imageGCLowThresholdPercent", low, `must be less than imageGCHighThresholdPercent ${high}`);
  }
  const { imageMinimumGCAge: minimum, imageMaximumGCAge: maximum } = configuration;
  if (maximum !== 0 && maximum <= minimum) {
    problems.add(
      "imageMaximumGCAge",
      `Invalid value: ${maximum / SECOND}s: must be greater than imageMinimumGCAge ${minimum / SECOND}s`,
    );
  }
  if (configuration.serializeImagePulls && (configuration.maxParallelImagePulls ?? 1) > 1) {
    problems.invalid(
      "maxParallelImagePulls",
      configuration.maxParallelImagePulls,
      "cannot be larger than 1 unless serializeImagePulls is false",
    );
  }
  const { memoryThrottlingFactor: factor } = configuration;
  if (!(factor > 0 && factor <= 1)) {
    problems.invalid("memoryThrottlingFactor", factor, "must be greater than 0 and less than or equal to 1.0");
  }
}

function validateCgroups(configuration: Configuration, problems: FieldProblems): void {
  const { enforceNodeAllocatable: enforced } = configuration;
  enforced.forEach((each, index) => {
    const path = `enforceNodeAllocatable[${index}]`;
    if (!ALLOCATABLE_ENFORCEMENTS.includes(each)) problems.unsupported(path, each, ALLOCATABLE_ENFORCEMENTS);
    if (each === "none" && enforced.length > 1)
      problems.invalid(path, each, "may not be specified together with others");
    if (each.startsWith("system-reserved") && configuration.systemReservedCgroup === "") {
      problems.required("systemReservedCgroup", `enforceNodeAllocatable contains ${each}`);
    }
    if (each.startsWith("kube-reserved") && configuration.kubeReservedCgroup === "") {
      problems.required("kubeReservedCgroup", `enforceNodeAllocatable contains ${each}`);
    }
  });
  if (!configuration.cgroupsPerQOS && enforced.some((each) => each !== "none")) {
    problems.invalid("enforceNodeAllocatable", enforced, "is not supported unless cgroupsPerQOS is true");
  }
  if (configuration.systemCgroups !== "" && configuration.cgroupRoot === "") {
    problems.required("cgroupRoot", "systemCgroups is specified");
  }
  if (configuration.cgroupRoot !== "" && !configuration.cgroupRoot.startsWith("/")) {
    problems.invalid("cgroupRoot", configuration.cgroupRoot, "must be an absolute path");
  }
}

function validateShutdown(configuration: Configuration, problems: FieldProblems): void {
  const { shutdownGracePeriod: total, shutdownGracePeriodCriticalPods: critical } = configuration;
  if (critical > total) {
    problems.add(
      "shutdownGracePeriodCriticalPods",
      `Invalid value: ${critical / SECOND}s: must be less than or equal to shutdownGracePeriod ${total / SECOND}s`,
    );
  }
  if (total > 0 && total < SECOND) {
    problems.add("shutdownGracePeriod", `Invalid value: ${total / SECOND}s: must be either zero or at least 1s`);
  }
  if (configuration.shutdownGracePeriodByPodPriority.length > 0 && (total > 0 || critical > 0)) {
    problems.forbidden(
      "shutdownGracePeriodByPodPriority",
      "may not be specified together with shutdownGracePeriod and shutdownGracePeriodCriticalPods",
    );
  }
}

const MAX_SYSCTL_LENGTH = 253;
/** A sysctl, or the beginning of one with a `*` at its end. */
const SYSCTL_PATTERN = /^(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*(?:[a-z0-9][-_a-z0-9]*\*?|\*)$/;

function validateSysctls({ allowedUnsafeSysctls }: Configuration, problems: FieldProblems): void {
  allowedUnsafeSysctls.forEach((pattern, index) => {
    const path = `allowedUnsafeSysctls[${index}]`;
    if (pattern.length > MAX_SYSCTL_LENGTH || !SYSCTL_PATTERN.test(pattern)) {
      problems.invalid(path, pattern, "must be a sysctl, or the beginning of one with a * at its end");
    } else if (!isNamespacedSysctl(pattern)) {
      problems.invalid(path, pattern, "is not known to be namespaced: it would be set for the whole machine");
    }
  });
}

function validatePlaces(configuration: Configuration, problems: FieldProblems): void {
  for (const problem of nodeNameProblems(configuration.nodeName)) {
    problems.invalid("nodeName", configuration.nodeName, problem);
  }
  for (const field of ["address", "healthzBindAddress"] as const) {
    for (const problem of ipProblems(configuration[field])) problems.invalid(field, configuration[field], problem);
  }
  configuration.clusterDNS.forEach((server, index) => {
    for (const problem of ipProblems(server)) problems.invalid(`clusterDNS[${index}]`, server, problem);
  });
  for (const field of ["staticPodPath", "resolvConf"] as const) {
    const path = configuration[field];
    if (path !== "" && !path.startsWith("/")) problems.invalid(field, path, "must be an absolute path");
  }
  const { keyFile } = configuration.secretsAtRest;
  if (keyFile !== "" && !keyFile.startsWith("/"))
    problems.invalid("secretsAtRest.keyFile", keyFile, "must be an absolute path");
  const logs = configuration.podLogsDir;
  if (!logs.startsWith("/")) problems.invalid("podLogsDir", logs, "must be an absolute path");
  else if (logs.split("/").some((part) => part === "." || part === "..")) {
    problems.invalid("podLogsDir", logs, "must be a normalized path");
  } else if (!/^[ -~]*$/.test(logs)) problems.invalid("podLogsDir", logs, "must contain ASCII characters only");
  for (const field of ["containerRuntimeEndpoint", "imageServiceEndpoint"] as const) {
    const endpoint = configuration[field];
    if (endpoint !== "" && !/^(?:unix:\/\/)?\/./.test(endpoint)) {
      problems.invalid(field, endpoint, 'must be a unix socket, such as "unix:///run/containerd/containerd.sock"');
    }
  }
  if (configuration.staticPodURL !== "" && !/^https?:\/\/./.test(configuration.staticPodURL)) {
    problems.invalid("staticPodURL", configuration.staticPodURL, "must be an http or https URL");
  }
}
