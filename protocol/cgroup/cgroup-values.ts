/**
 * Cgroup values of pods and containers as the kubelet computes them and runc writes them. Pure.
 */

import {
  formatQuantity,
  parseQuantity,
  type Quantity,
  quantityMilliValue,
  quantityValue,
} from "../kubernetes/quantity.ts";
import type { Container, Pod } from "../pod/pod.ts";
import { aggregateRequests, isSidecar, podLimits, podRequests, type Quantities } from "../pod/pod-resources.ts";
import type { QosClass } from "../pod/pod-status.ts";
import { qosClass } from "../pod/qos.ts";
import { hugePageLimits, hugePagesIn } from "./huge-pages.ts";

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
  /**
   * cgroup v2 alone: what is not taken from it (`memory.min`), hardly (`memory.low`), and where it is slowed down
   * (`memory.high`, -1: nowhere).
   */
  readonly memoryMinBytes?: number | undefined;
  readonly memoryLowBytes?: number | undefined;
  readonly memoryHighBytes?: number | undefined;
  /** cgroup v2 alone, beside the memory (`memory.swap.max`); -1: no limit. */
  readonly swapLimitBytes?: number | undefined;
  /** cgroup v2 alone: an OOM kill takes all of it. */
  readonly oomGroup?: boolean | undefined;
  /** Bytes by page size as the kernel names its files: `2MB`, `1GB`. */
  readonly hugePageLimits?: Readonly<Record<string, number>> | undefined;
  /** Lists as the kernel writes them. */
  readonly cpusetCpus?: string | undefined;
  readonly cpusetMems?: string | undefined;
}

/** The kubelet's settings of the same names. */
export interface CgroupSettings {
  readonly cpuCFSQuota: boolean;
  /** `cpuCFSQuotaPeriod`, in microseconds. */
  readonly cpuPeriodUs: number;
  /** -1: no limit. */
  readonly podPidsLimit: number;
  /**
   * Missing: no protection and no throttling, as where there is no cgroup v2, or the kubelet's feature MemoryQoS is
   * off.
   */
  readonly memoryQos?: MemoryQos | undefined;
  /** Page sizes of which the kernel limits huge pages, by its names (`2MB`). Missing: none. */
  readonly hugePageSizes?: readonly string[] | undefined;
  /** cgroup v2 alone: an OOM kill in a container ends all of it. */
  readonly oomGroup?: boolean | undefined;
  /** Missing: the kernel does not count swap, or only with the memory (cgroup v1). */
  readonly swap?: SwapSettings | undefined;
}

export interface MemoryQos {
  /** The kubelet's `memoryThrottlingFactor`, in (0, 1]. */
  readonly throttlingFactor: number;
  /** Memory for all pods together; also the limit of containers that have none. */
  readonly allocatableBytes: number;
  /** The kernel's page size: throttling begins at a whole number of pages. */
  readonly pageBytes: number;
}

export interface SwapSettings {
  /** The kubelet's LimitedSwap: burstable containers may swap the share of it that they request of the memory. */
  readonly limited: boolean;
  readonly swapBytes: number;
  readonly memoryCapacityBytes: number;
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

/**
 * @param pod whose container it is: one without a limit of its own has the pod's. Missing: CPU and memory limits alone
 */
export function containerCgroupValues(
  container: Pick<Container, "resources">,
  settings: CgroupSettings,
  pod?: Pod,
): CgroupValues {
  const { limits, requests } = container.resources;
  const ofPod = pod?.spec.resources?.limits;
  const cpuLimit = milli(quantityIn(limits, "cpu")) || milli(quantityIn(ofPod, "cpu"));
  const cpuRequest = milli(quantityIn(requests, "cpu")) || cpuLimit;
  const memoryLimit = whole(quantityIn(limits, "memory")) || whole(quantityIn(ofPod, "memory"));
  const { hugePageSizes: sizes = [], oomGroup, swap } = settings;
  const hugePages = hugePageLimits([...hugePagesIn(ofPod), ...hugePagesIn(limits)], sizes);
  return {
    cpuShares: cpuSharesOf(cpuRequest),
    ...quotaValues(cpuLimit, settings),
    ...(memoryLimit > 0n ? { memoryLimitBytes: toNumber(memoryLimit) } : {}),
    ...(pod === undefined ? {} : memoryQosValues(pod, whole(quantityIn(requests, "memory")), memoryLimit, settings)),
    ...(pod === undefined || sizes.length === 0 ? {} : { hugePageLimits: hugePages }),
    ...(pod === undefined || oomGroup !== true ? {} : { oomGroup }),
    ...(pod === undefined || swap === undefined ? {} : { swapLimitBytes: swapShareBytes(pod, container, swap) }),
  };
}

/**
 * Memory that is requested is kept: from a guaranteed pod the kernel takes none of it (`memory.min`), from another one
 * only when nothing else is left (`memory.low`), for on a small board requests that nothing could be taken of would
 * leave the system itself without page cache. Before a container has all it may have, it is slowed down (KEP 2570).
 */
function memoryQosValues(pod: Pod, request: bigint, limit: bigint, { memoryQos }: CgroupSettings): CgroupValues {
  if (memoryQos === undefined) return {};
  const high = request === limit && limit > 0n ? -1 : throttledFrom(request, limit, memoryQos);
  return { ...keptMemory(qosClass(pod), request), memoryHighBytes: high };
}

const keptMemory = (qos: QosClass, request: bigint): CgroupValues =>
  qos === "Guaranteed"
    ? { memoryMinBytes: toNumber(request), memoryLowBytes: 0 }
    : { memoryMinBytes: 0, memoryLowBytes: qos === "BestEffort" ? 0 : toNumber(request) };

/** -1: nowhere. */
function throttledFrom(request: bigint, limit: bigint, qos: MemoryQos): number {
  const [from, to] = [toNumber(request), limit > 0n ? toNumber(limit) : qos.allocatableBytes];
  const high = Math.floor((from + qos.throttlingFactor * (to - from)) / qos.pageBytes) * qos.pageBytes;
  return high > from ? high : -1;
}

/** Pods that the node or the cluster cannot do without swap nothing. */
const CRITICAL_PRIORITY = 2_000_000_000;

/** The same share of the swap that the container requests of the memory; 0 for what is not to swap. */
export function swapShareBytes(
  pod: Pod,
  { resources }: Pick<Container, "resources">,
  { limited, swapBytes, memoryCapacityBytes }: SwapSettings,
): number {
  const request = toNumber(whole(quantityIn(resources.requests, "memory")));
  const limit = toNumber(whole(quantityIn(resources.limits, "memory")));
  const isCritical = (pod.spec.priority ?? 0) >= CRITICAL_PRIORITY;
  const mayNot = !limited || isCritical || qosClass(pod) !== "Burstable" || request === limit;
  if (mayNot || request > memoryCapacityBytes) return 0;
  return Math.floor((request / memoryCapacityBytes) * swapBytes);
}

/** The values of a pod's own cgroup, which holds its containers and its sandbox. */
export function podCgroupValues(pod: Pod, settings: CgroupSettings): CgroupValues {
  const qos = qosClass(pod);
  const requests = podRequests(pod);
  const others = {
    ...(settings.podPidsLimit > 0 ? { pidsLimit: settings.podPidsLimit } : {}),
    ...(settings.memoryQos === undefined ? {} : keptMemory(qos, whole(requests.get("memory")))),
    ...podHugePages(requests, settings),
  };
  if (qos === "BestEffort") return { cpuShares: Number(MIN_SHARES), ...others };
  const limits = podLimits(pod);
  const cpu = limitOf(pod, limits, "cpu", milli);
  const memory = limitOf(pod, limits, "memory", whole);
  return {
    cpuShares: cpuSharesOf(milli(requests.get("cpu"))),
    ...quotaValues(cpu, settings),
    ...(memory > 0n ? { memoryLimitBytes: toNumber(memory) } : {}),
    ...others,
  };
}

function podHugePages(requests: Quantities, { hugePageSizes: sizes = [] }: CgroupSettings): CgroupValues {
  if (sizes.length === 0) return {};
  const texts = Object.fromEntries([...requests].map(([name, quantity]) => [name, formatQuantity(quantity)]));
  return { hugePageLimits: hugePageLimits(hugePagesIn(texts), sizes) };
}

/**
 * 0 when the pod is not limited: one container without a limit is enough for that, unless the pod as a whole has one.
 */
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

/** The requests of all pods of a QoS class together. */
export interface TierRequests {
  readonly cpuMilli: bigint;
  readonly memoryBytes: bigint;
}

export function tierRequests(tier: QosClass, pods: Iterable<Pod>): TierRequests {
  let [cpuMilli, memoryBytes] = [0n, 0n];
  for (const pod of pods) {
    if (qosClass(pod) !== tier) continue;
    const requests = podRequests(pod);
    cpuMilli += milli(requests.get("cpu"));
    memoryBytes += whole(requests.get("memory"));
  }
  return { cpuMilli, memoryBytes };
}

export interface NodeCgroupSettings {
  /**
   * The enforced limits of all pods together: CPU in thousandths, memory and huge pages in bytes, `pid`. Nothing is
   * written for a resource that is missing.
   */
  readonly limits: ReadonlyMap<string, bigint>;
  /**
   * The kubelet's `qosReserved`: percent of the requests of better classes that worse ones cannot have. Missing: none.
   */
  readonly memoryReservedPercent?: number | undefined;
}

/** The values of the cgroup above all pods, which holds guaranteed pods, and of the tiers of the other classes. */
export function tierCgroupValues(
  pods: readonly Pod[],
  settings: CgroupSettings,
  node: NodeCgroupSettings,
): Readonly<Record<QosClass, CgroupValues>> {
  const guaranteed = tierRequests("Guaranteed", pods);
  const burstable = tierRequests("Burstable", pods);
  const kept = settings.memoryQos !== undefined;
  const limits = reservedMemory(guaranteed.memoryBytes, burstable.memoryBytes, node);
  const unlimited = unlimitedHugePages(settings);
  return {
    Guaranteed: {
      ...amountValues(node.limits, settings),
      ...(kept
        ? {
            memoryMinBytes: toNumber(guaranteed.memoryBytes),
            memoryLowBytes: toNumber(guaranteed.memoryBytes + burstable.memoryBytes),
          }
        : {}),
    },
    Burstable: {
      cpuShares: cpuSharesOf(burstable.cpuMilli),
      ...(kept ? keptMemory("Burstable", burstable.memoryBytes) : {}),
      ...limits.Burstable,
      ...unlimited,
    },
    BestEffort: {
      cpuShares: Number(MIN_SHARES),
      ...(kept ? keptMemory("BestEffort", 0n) : {}),
      ...limits.BestEffort,
      ...unlimited,
    },
  };
}

/** The values of a cgroup with these amounts: the one above all pods, or one with reserved resources. */
export function amountValues(amounts: ReadonlyMap<string, bigint>, settings: CgroupSettings): CgroupValues {
  const [cpu, memory, pids] = [amounts.get("cpu"), amounts.get("memory"), amounts.get("pid")];
  const { hugePageSizes: sizes = [] } = settings;
  const texts = Object.fromEntries([...amounts].map(([name, amount]) => [name, String(amount)]));
  return {
    ...(cpu === undefined ? {} : { cpuShares: cpuSharesOf(cpu) }),
    ...(memory === undefined ? {} : { memoryLimitBytes: toNumber(memory) }),
    ...(pids === undefined ? {} : { pidsLimit: toNumber(pids) }),
    ...(sizes.length === 0 ? {} : { hugePageLimits: hugePageLimits(hugePagesIn(texts), sizes) }),
  };
}

function reservedMemory(
  guaranteed: bigint,
  burstable: bigint,
  { limits, memoryReservedPercent: percent }: NodeCgroupSettings,
): Readonly<Record<"Burstable" | "BestEffort", CgroupValues>> {
  const allocatable = limits.get("memory");
  if (percent === undefined || allocatable === undefined) return { Burstable: {}, BestEffort: {} };
  const left = (of: bigint, taken: bigint): bigint => {
    const rest = of - (taken * BigInt(percent)) / 100n;
    return rest > 0n ? rest : 0n;
  };
  const forBurstable = left(allocatable, guaranteed);
  return {
    Burstable: { memoryLimitBytes: toNumber(forBurstable) },
    BestEffort: { memoryLimitBytes: toNumber(left(forBurstable, burstable)) },
  };
}

/** The pods below are limited, each one. */
function unlimitedHugePages({ hugePageSizes: sizes = [] }: CgroupSettings): CgroupValues {
  return sizes.length === 0 ? {} : { hugePageLimits: Object.fromEntries(sizes.map((size) => [size, -1])) };
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
