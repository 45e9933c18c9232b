import type { CgroupValues } from "../../protocol/cgroup-values.ts";

/** One write to one file of a cgroup. */
export interface CgroupFile {
  readonly controller: string;
  readonly file: string;
  readonly content: string;
}

/** The kernel's own, for a quota that comes without a period. Microseconds. */
const DEFAULT_CPU_PERIOD_US = 100_000;
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_WEIGHT = 1;
const MAX_WEIGHT = 10_000;

/** In the order in which they are to be written: a quota is judged against the period that is set. */
export function v1Files(values: CgroupValues): CgroupFile[] {
  const files: CgroupFile[] = [];
  const add = (controller: string, file: string, value: number | undefined): void => {
    if (value !== undefined) files.push({ controller, file, content: String(value) });
  };
  add("cpu", "cpu.shares", values.cpuShares);
  add("cpu", "cpu.cfs_period_us", values.cpuPeriodUs);
  add("cpu", "cpu.cfs_quota_us", values.cpuQuotaUs);
  add("memory", "memory.limit_in_bytes", values.memoryLimitBytes);
  if (values.pidsLimit !== undefined)
    files.push({ controller: "pids", file: "pids.max", content: limit(values.pidsLimit) });
  return files;
}

export function v2Files(values: CgroupValues): CgroupFile[] {
  const files: CgroupFile[] = [];
  const { cpuShares, cpuQuotaUs, cpuPeriodUs, memoryLimitBytes, pidsLimit } = values;
  if (cpuShares !== undefined)
    files.push({ controller: "cpu", file: "cpu.weight", content: String(weightOfShares(cpuShares)) });
  if (cpuQuotaUs !== undefined)
    files.push({
      controller: "cpu",
      file: "cpu.max",
      content: `${limit(cpuQuotaUs)} ${cpuPeriodUs ?? DEFAULT_CPU_PERIOD_US}`,
    });
  if (memoryLimitBytes !== undefined)
    files.push({ controller: "memory", file: "memory.max", content: limit(memoryLimitBytes) });
  if (pidsLimit !== undefined) files.push({ controller: "pids", file: "pids.max", content: limit(pidsLimit) });
  return files;
}

const limit = (value: number): string => (value < 0 ? "max" : String(value));

/** KEP 2254: [2, 262144] of v1 onto [1, 10000] of v2, linear. */
export function weightOfShares(shares: number): number {
  const clamped = Math.min(Math.max(shares, MIN_SHARES), MAX_SHARES);
  return Math.floor(MIN_WEIGHT + ((clamped - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT)) / (MAX_SHARES - MIN_SHARES));
}
