/**
 * Cgroup values of pods and containers as the kubelet computes them and runc writes them. Pure.
 */
import type { Container, Pod } from "./pod.ts";
import { aggregateRequests, isSidecar, podLimits, podRequests, type Quantities } from "./pod-resources.ts";
import type { QosClass } from "./pod-status.ts";
import { qosClass } from "./qos.ts";
import { parseQuantity, type Quantity, quantityMilliValue, quantityValue } from "./quantity.ts";

/** What is written into one cgroup, in cgroup v1's units. A field that is missing is left as it is. */
export interface CgroupValues {
  /** cgroup v1 `cpu.shares`, 2 … 262144; cgroup v2 has `cpu.weight`. */
  readonly cpuShares?: number | undefined;
  /** CPU time for each period, microseconds; -1: no limit. */
  readonly cpuQuotaUs?: number | undefined;
  readonly cpuPeriodUs?: number | undefined;
  /** -1: no limit. */
  readonly memoryLimitBytes?: number | undefined;
  /** -1: no limit. */
  readonly pidsLimit?: number | undefined;
}

/** The kubelet's settings of the same names. */
export interface CgroupSettings {
  readonly cpuCFSQuota: boolean;
  /** `cpuCFSQuotaPeriod`, in microseconds. */
  readonly cpuPeriodUs: number;
  /** -1: no limit. */
  readonly podPidsLimit: number;
}

const MIN_SHARES = 2n;
const MAX_SHARES = 262_144n;
const SHARES_PER_CPU = 1024n;
const MILLI_PER_CPU = 1000n;
/** The kernel takes no quota below 1 ms. */
const MIN_QUOTA_US = 1000n;

/** runc keeps guaranteed pods, and pods the node cannot do without, for last. */
const GUARANTEED_OOM_SCORE = -997;
const BEST_EFFORT_OOM_SCORE = 1000;
const NODE_CRITICAL_CLASS = "system-node-critical";

/** Bytes beyond 2^53 are no limit on any board; they are clamped, not rounded. */
const toNumber = (value: bigint): number => Number(value > MAX_SAFE ? MAX_SAFE : value);
const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);

export function cpuSharesOf(milliCpu: bigint): number {
  const shares = (milliCpu * SHARES_PER_CPU) / MILLI_PER_CPU;
  return Number(shares < MIN_SHARES ? MIN_SHARES : shares > MAX_SHARES ? MAX_SHARES : shares);
}

function cpuQuotaOf(milliCpu: bigint, periodUs: number): number {
  const quota = (milliCpu * BigInt(periodUs)) / MILLI_PER_CPU;
  return toNumber(quota < MIN_QUOTA_US ? MIN_QUOTA_US : quota);
}

function quotaValues(milliCpu: bigint, settings: CgroupSettings): CgroupValues {
  if (!settings.cpuCFSQuota || milliCpu <= 0n) return {};
  return { cpuQuotaUs: cpuQuotaOf(milliCpu, settings.cpuPeriodUs), cpuPeriodUs: settings.cpuPeriodUs };
}

function quantityIn(texts: Readonly<Record<string, string>> | undefined, name: string): Quantity | undefined {
  const text = texts?.[name];
  const result = text === undefined ? undefined : parseQuantity(text);
  return result?.ok === true ? result.quantity : undefined;
}

const milli = (quantity: Quantity | undefined): bigint => (quantity === undefined ? 0n : quantityMilliValue(quantity));
const whole = (quantity: Quantity | undefined): bigint => (quantity === undefined ? 0n : quantityValue(quantity));

/** @param ofPod `spec.resources`: a container without a limit of its own has the pod's. */
export function containerCgroupValues(
  container: Pick<Container, "resources">,
  settings: CgroupSettings,
  ofPod?: Pod["spec"]["resources"],
): CgroupValues {
  const { limits, requests } = container.resources;
  const cpuLimit = milli(quantityIn(limits, "cpu")) || milli(quantityIn(ofPod?.limits, "cpu"));
  const cpuRequest = milli(quantityIn(requests, "cpu")) || cpuLimit;
  const memoryLimit = whole(quantityIn(limits, "memory")) || whole(quantityIn(ofPod?.limits, "memory"));
  return {
    cpuShares: cpuSharesOf(cpuRequest),
    ...quotaValues(cpuLimit, settings),
    ...(memoryLimit > 0n ? { memoryLimitBytes: toNumber(memoryLimit) } : {}),
  };
}

/** Of the pod's own cgroup, which holds its containers and its sandbox. */
export function podCgroupValues(pod: Pod, settings: CgroupSettings): CgroupValues {
  const pids = settings.podPidsLimit > 0 ? { pidsLimit: settings.podPidsLimit } : {};
  if (qosClass(pod) === "BestEffort") return { cpuShares: Number(MIN_SHARES), ...pids };
  const limits = podLimits(pod);
  const cpu = limitOf(pod, limits, "cpu", milli);
  const memory = limitOf(pod, limits, "memory", whole);
  return {
    cpuShares: cpuSharesOf(milli(podRequests(pod).get("cpu"))),
    ...quotaValues(cpu, settings),
    ...(memory > 0n ? { memoryLimitBytes: toNumber(memory) } : {}),
    ...pids,
  };
}

/** 0 when the pod is not limited: one container without a limit is enough for that, unless the pod as a whole has one. */
function limitOf(
  pod: Pod,
  limits: Quantities,
  name: string,
  count: (quantity: Quantity | undefined) => bigint,
): bigint {
  const podLevel = quantityIn(pod.spec.resources?.limits, name);
  const everyContainerLimited = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].every(
    (container) => count(quantityIn(container.resources.limits, name)) > 0n,
  );
  return everyContainerLimited || count(podLevel) > 0n ? count(limits.get(name)) : 0n;
}

/** `cpu.shares` of the burstable tier: together what its pods ask for. The best-effort tier has the least there is. */
export function tierCpuShares(tier: "Burstable" | "BestEffort", pods: readonly Pod[]): number {
  if (tier === "BestEffort") return Number(MIN_SHARES);
  let total = 0n;
  for (const pod of pods) if (qosClass(pod) === "Burstable") total += milli(podRequests(pod).get("cpu"));
  return cpuSharesOf(total);
}

/** -1000 … 1000, higher is killed first. `memoryCapacityBytes` is the node's. */
export function oomScoreAdj(
  pod: Pod,
  container: Pick<Container, "resources" | "restartPolicy">,
  memoryCapacityBytes: number,
): number {
  if (pod.spec.priorityClassName === NODE_CRITICAL_CLASS) return GUARANTEED_OOM_SCORE;
  const qos = qosClass(pod);
  if (qos === "Guaranteed") return GUARANTEED_OOM_SCORE;
  if (qos === "BestEffort") return BEST_EFFORT_OOM_SCORE;
  const capacity = BigInt(Math.max(1, Math.floor(memoryCapacityBytes)));
  const share = unclaimedShare(pod);
  const memoryRequest = (each: Pick<Container, "resources">): bigint =>
    whole(quantityIn(each.resources.requests, "memory"));
  let request = memoryRequest(container);
  if (isSidecar(container)) {
    // A sidecar goes no sooner than the container it serves.
    const [least] = pod.spec.containers.map(memoryRequest).sort(compareBigints);
    if (least !== undefined && least > request) request = least;
  }
  const score = 1000n - (1000n * (request + share)) / capacity;
  const lowest = BigInt(1000 + GUARANTEED_OOM_SCORE);
  const highest = BigInt(BEST_EFFORT_OOM_SCORE - 1);
  return Number(score < lowest ? lowest : score > highest ? highest : score);
}

const compareBigints = (left: bigint, right: bigint): number => Number(left > right) - Number(left < right);

/** Memory that the pod as a whole asks for and none of its containers does, for each of them. */
function unclaimedShare(pod: Pod): bigint {
  const podRequest = whole(quantityIn(pod.spec.resources?.requests, "memory"));
  if (podRequest === 0n) return 0n;
  const containers = pod.spec.containers.length + (pod.spec.initContainers ?? []).filter(isSidecar).length;
  const unclaimed = podRequest - whole(aggregateRequests(pod.spec).get("memory"));
  return unclaimed > 0n && containers > 0 ? unclaimed / BigInt(containers) : 0n;
}

const KUBEPODS = "kubepods";

/** `/kubepods`, `/kubepods/burstable`, `/kubepods/besteffort` below `cgroupRoot` ("/" or "" for the top). cgroupfs naming. */
export function tierCgroupPath(cgroupRoot: string, qos: QosClass): string {
  const root = `${cgroupRoot.replace(/\/+$/, "")}/${KUBEPODS}`;
  return qos === "Guaranteed" ? root : `${root}/${qos.toLowerCase()}`;
}

/** `/kubepods/burstable/pod<uid>` */
export const podCgroupPath = (cgroupRoot: string, qos: QosClass, uid: string): string =>
  `${tierCgroupPath(cgroupRoot, qos)}/pod${uid}`;
