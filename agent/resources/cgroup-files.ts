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

/** Where one value is read back from. */
export interface CgroupReading {
  readonly controller: string;
  readonly file: string;
  /** In v1's units, -1 for no limit; `undefined` for what is no number. */
  readonly parse: (text: string) => number | undefined;
}

type Readings = Readonly<Record<"cpuShares" | "cpuQuotaUs" | "memoryLimitBytes" | "memoryUsageBytes", CgroupReading>>;

/** v1 has no word for "no limit" of memory: it is the greatest number of whole pages. */
const V1_UNLIMITED = 2 ** 60;

const numberIn = (text: string): number | undefined => {
  const value = text === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : undefined;
};
const bytesOfV1 = (text: string): number | undefined => {
  const value = numberIn(text);
  return value !== undefined && value >= V1_UNLIMITED ? -1 : value;
};
const limitOfV2 = (text: string): number | undefined => {
  const [value = ""] = text.split(" ");
  return value === "max" ? -1 : numberIn(value);
};

export const V1_READINGS: Readings = {
  cpuShares: { controller: "cpu", file: "cpu.shares", parse: numberIn },
  cpuQuotaUs: { controller: "cpu", file: "cpu.cfs_quota_us", parse: numberIn },
  memoryLimitBytes: { controller: "memory", file: "memory.limit_in_bytes", parse: bytesOfV1 },
  memoryUsageBytes: { controller: "memory", file: "memory.usage_in_bytes", parse: numberIn },
};

export const V2_READINGS: Readings = {
  cpuShares: { controller: "cpu", file: "cpu.weight", parse: sharesOfWeightText },
  cpuQuotaUs: { controller: "cpu", file: "cpu.max", parse: limitOfV2 },
  memoryLimitBytes: { controller: "memory", file: "memory.max", parse: limitOfV2 },
  memoryUsageBytes: { controller: "memory", file: "memory.current", parse: numberIn },
};

/** The least shares that have this weight. */
function sharesOfWeightText(text: string): number | undefined {
  const weight = numberIn(text);
  if (weight === undefined) return undefined;
  return Math.ceil(MIN_SHARES + ((weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES)) / (MAX_WEIGHT - MIN_WEIGHT));
}

const limit = (value: number): string => (value < 0 ? "max" : String(value));

/** KEP 2254: [2, 262144] of v1 onto [1, 10000] of v2, linear. */
export function weightOfShares(shares: number): number {
  const clamped = Math.min(Math.max(shares, MIN_SHARES), MAX_SHARES);
  return Math.floor(MIN_WEIGHT + ((clamped - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT)) / (MAX_SHARES - MIN_SHARES));
}
