/** Checks what the kubelet refuses (pkg/kubelet/apis/config/validation), and the rules of our own fields. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { ipProblems, nodeNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { isNamespacedSysctl } from "../plan/admission/sysctls.ts";
import type { NodeAllocatable } from "../plan/node/node-allocatable.ts";
import type { Board } from "./board-defaults.ts";
import type { Configuration } from "./configuration-defaults.ts";
import type { FieldTable, ValueField } from "./configuration-fields.ts";
import { validateAllowedDevices, validateDevices } from "./device-validation.ts";
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

const SECOND = 1000;
const UNLIMITED = Number.MAX_SAFE_INTEGER;

const UPDATE_KINDS = ["os", "agent", "configuration"];
const ALLOCATABLE_ENFORCEMENTS = [
  "none",
  "pods",
  "system-reserved",
  "system-reserved-compressible",
  "kube-reserved",
  "kube-reserved-compressible",
];

export function validateConfiguration(
  configuration: Configuration,
  { board, table }: { readonly board: Board; readonly table: FieldTable },
  problems: FieldProblems,
): void {
  validateLimits(configuration, table, "", problems);
  validateImages(configuration, problems);
  validateImageCredentials(configuration, problems);
  validateImageSignatures(configuration, problems);
  validateCgroups(configuration, problems);
  validateShutdown(configuration, problems);
  validateSysctls(configuration, problems);
  validatePlaces(configuration, problems);
  validateServer(configuration, problems);
  validateHub(configuration, problems);
  configuration.updates.allowed.forEach((each, index) => {
    if (!UPDATE_KINDS.includes(each)) problems.unsupported(`updates.allowed[${index}]`, each, UPDATE_KINDS);
  });
  validateDevices(configuration, problems);
  validateAllowedDevices(configuration, problems);
  validateRegistries(configuration, problems);
  validateProxy(configuration, problems);
  validateHttp(configuration, problems);
  validateNode(configuration, problems);
  validateTopology(configuration, problems);
  validateShares(configuration, board, problems);
}

/** Checks each value against the limits of the table. */
function validateLimits(
  values: Readonly<Record<string, unknown>>,
  table: FieldTable,
  parent: string,
  problems: FieldProblems,
): void {
  for (const [name, field] of Object.entries(table)) {
    const [path, value] = [childPath(parent, name), values[name]];
    if ("fields" in field && typeof value === "object" && value !== null) {
      validateLimits(value as Readonly<Record<string, unknown>>, field.fields, path, problems);
    } else if ("kind" in field) validateValue(value, field, path, problems);
  }
}

function validateValue(value: unknown, field: ValueField, path: string, problems: FieldProblems): void {
  const { kind, choices, min, max = UNLIMITED } = field;
  if (typeof value === "number" && min !== undefined && !(value >= min && value <= max)) {
    if (kind === "duration") {
      problems.add(path, `Invalid value: ${value / SECOND}s: ${rangeText(min / SECOND, max / SECOND, "s")}`);
    } else problems.invalid(path, value, rangeText(min, max, ""));
  }
  if (typeof value === "string" && choices?.includes(value) === false) problems.unsupported(path, value, choices);
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
    // Reserved process ids are available until they are used.
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

function validateServer(configuration: Configuration, problems: FieldProblems): void {
  const { tlsCertFile, tlsPrivateKeyFile, tlsCipherSuites, authentication } = configuration;
  const places = {
    tlsCertFile,
    tlsPrivateKeyFile,
    "authentication.x509.clientCAFile": authentication.x509.clientCAFile,
  };
  for (const [field, path] of Object.entries(places)) {
    if (path !== "" && !path.startsWith("/")) problems.invalid(field, path, "must be an absolute path");
  }
  if ((tlsCertFile === "") !== (tlsPrivateKeyFile === "")) {
    const missing = tlsCertFile === "" ? "tlsCertFile" : "tlsPrivateKeyFile";
    problems.invalid(missing, "", "certificate and key are set together, or neither is");
  }
  tlsCipherSuites.forEach((suite, index) => {
    if (!/^TLS_[A-Z0-9_]+$/.test(suite))
      problems.invalid(`tlsCipherSuites[${index}]`, suite, "must be a name of a suite, such as TLS_AES_128_GCM_SHA256");
  });
}

function validatePlaces(configuration: Configuration, problems: FieldProblems): void {
  for (const problem of nodeNameProblems(configuration.nodeName)) {
    problems.invalid("nodeName", configuration.nodeName, problem);
  }
  for (const field of ["address", "healthzBindAddress"] as const) {
    for (const problem of ipProblems(configuration[field])) problems.invalid(field, configuration[field], problem);
  }
  for (const problem of ipProblems(configuration.page.address))
    problems.invalid("page.address", configuration.page.address, problem);
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
