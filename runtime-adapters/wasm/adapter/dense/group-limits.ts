/** What the cgroup of a process gets from what its containers would have each. Pure. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";

/** Of the process without any component: some 12 MiB, and what Node takes while it starts. */
const BASE_BYTES = 24 * 1024 * 1024;
/** Of each component beside its linear memory: its stack, glue and buffers. */
const BYTES_PER_CONTAINER = 1024 * 1024;
/** Threads and processes: Node's own, the two shells, and what makes the jail. */
const MAX_TASKS = 64;
const MIN_SHARES = 2;

/** No limit as long as one of them has none. */
export function groupLimits(containers: readonly CgroupValues[]): CgroupValues {
  const memory = sumOf(containers, ({ memoryLimitBytes }) => memoryLimitBytes);
  const period = containers.find(({ cpuPeriodUs }) => cpuPeriodUs !== undefined)?.cpuPeriodUs;
  const quota = sumOf(containers, ({ cpuQuotaUs }) => cpuQuotaUs);
  const shares = containers.reduce((sum, { cpuShares = MIN_SHARES }) => sum + cpuShares, 0);
  return {
    cpuShares: Math.max(shares, MIN_SHARES),
    cpuPeriodUs: period,
    cpuQuotaUs: quota ?? -1,
    memoryLimitBytes: memory === undefined ? -1 : memory + BASE_BYTES + containers.length * BYTES_PER_CONTAINER,
    pidsLimit: MAX_TASKS,
    ...keptMemory(containers),
    ...swapLimit(containers),
  };
}

/**
 * cgroup v2 alone: what they ask for together is kept for the process. Where it is slowed down is not set, as that
 * would slow all of them down.
 */
function keptMemory(containers: readonly CgroupValues[]): CgroupValues {
  const kept = containers.filter(({ memoryMinBytes }) => memoryMinBytes !== undefined);
  if (kept.length === 0) return {};
  return {
    memoryMinBytes: kept.reduce((sum, { memoryMinBytes = 0 }) => sum + memoryMinBytes, 0),
    memoryLowBytes: kept.reduce((sum, { memoryLowBytes = 0 }) => sum + memoryLowBytes, 0),
  };
}

/** cgroup v2 alone: what they may take of the swap together, or the limit of memory would hold nobody. */
function swapLimit(containers: readonly CgroupValues[]): CgroupValues {
  if (!containers.some(({ swapLimitBytes }) => swapLimitBytes !== undefined)) return {};
  return { swapLimitBytes: sumOf(containers, ({ swapLimitBytes }) => swapLimitBytes) ?? -1 };
}

/** Undefined: one of them has none. */
function sumOf(
  containers: readonly CgroupValues[],
  of: (values: CgroupValues) => number | undefined,
): number | undefined {
  let sum: number | undefined;
  for (const each of containers) {
    const value = of(each) ?? -1;
    if (value < 0) return undefined;
    sum = (sum ?? 0) + value;
  }
  return sum;
}
