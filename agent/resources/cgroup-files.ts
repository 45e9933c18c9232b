import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";

/** One write to one file of a cgroup. */
export interface CgroupFile {
  readonly controller: string;
  readonly file: string;
  readonly content: string;
  /** True for a file that many kernels lack, and whose absence is not reported. */
  readonly isOptional?: boolean;
}

/** The kernel's own, for a quota that comes without a period. Microseconds. */
const DEFAULT_CPU_PERIOD_US = 100_000;
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_WEIGHT = 1;
const MAX_WEIGHT = 10_000;

/** Returns the files in the order of writing: the kernel checks a quota against the current period. */
export function v1Files(values: CgroupValues): CgroupFile[] {
  const { cpuShares, cpuPeriodUs, cpuQuotaUs, memoryLimitBytes } = values;
  return [
    ...fileOf("cpu.shares", cpuShares),
    ...fileOf("cpu.cfs_period_us", cpuPeriodUs),
    ...fileOf("cpu.cfs_quota_us", cpuQuotaUs),
    ...fileOf("memory.limit_in_bytes", memoryLimitBytes),
    ...fileOf("pids.max", limitIn(values.pidsLimit)),
    ...fileOf("cpuset.mems", values.cpusetMems),
    ...fileOf("cpuset.cpus", values.cpusetCpus),
    ...hugePageFiles(values, "limit_in_bytes", String),
  ];
}

/** Protection before limits: what is kept of the memory is not to be taken in between. */
export function v2Files(values: CgroupValues): CgroupFile[] {
  const { cpuShares, cpuQuotaUs, cpuPeriodUs = DEFAULT_CPU_PERIOD_US, oomGroup } = values;
  const cpuMax = cpuQuotaUs === undefined ? undefined : `${limit(cpuQuotaUs)} ${cpuPeriodUs}`;
  return [
    ...fileOf("cpu.weight", cpuShares === undefined ? undefined : weightOfShares(cpuShares)),
    ...fileOf("cpu.max", cpuMax),
    ...fileOf("memory.min", values.memoryMinBytes),
    ...fileOf("memory.low", values.memoryLowBytes),
    ...fileOf("memory.high", limitIn(values.memoryHighBytes)),
    ...fileOf("memory.max", limitIn(values.memoryLimitBytes)),
    ...fileOf("memory.swap.max", limitIn(values.swapLimitBytes), true),
    ...fileOf("memory.oom.group", oomGroup === undefined ? undefined : Number(oomGroup)),
    ...fileOf("pids.max", limitIn(values.pidsLimit)),
    ...fileOf("cpuset.mems", values.cpusetMems),
    ...fileOf("cpuset.cpus", values.cpusetCpus),
    ...hugePageFiles(values, "max", limit),
  ];
}

/** A file's name begins with its controller's. */
function fileOf(file: string, value: string | number | undefined, isOptional = false): CgroupFile[] {
  if (value === undefined) return [];
  const controller = file.slice(0, file.indexOf("."));
  return [{ controller, file, content: String(value), ...(isOptional && { isOptional }) }];
}

/**
 * Also limits reservations by mmap(), so that a program gets an error at once instead of a signal at its first access.
 */
function hugePageFiles({ hugePageLimits }: CgroupValues, name: string, text: (bytes: number) => string): CgroupFile[] {
  return Object.entries(hugePageLimits ?? {}).flatMap(([size, bytes]) => [
    ...fileOf(`hugetlb.${size}.${name}`, text(bytes)),
    ...fileOf(`hugetlb.${size}.rsvd.${name}`, text(bytes), true),
  ]);
}

/** The kernel counts memory in pages; those of boards have 64 KiB at most. */
const MAX_PAGE_BYTES = 65_536;

/** @returns whether the file's text is what was written to it, as the kernel rounds it */
export function isWritten({ controller, content }: Pick<CgroupFile, "controller" | "content">, text: string): boolean {
  const actual = text.trim();
  if (actual === content) return true;
  if (controller !== "memory" && controller !== "hugetlb") return false;
  const [wanted, found] = [bytesOf(content), bytesOf(actual)];
  if (wanted === undefined || found === undefined) return false;
  return wanted === found || (wanted > found && wanted - found < MAX_PAGE_BYTES);
}

/** No limit has as many names as the kernel has controllers: `max`, -1, and great numbers of pages. */
function bytesOf(text: string): number | undefined {
  const value = text === "max" ? -1 : numberIn(text);
  return value !== undefined && (value < 0 || value >= V1_UNLIMITED) ? Number.POSITIVE_INFINITY : value;
}

/** The file from which one value is read back. */
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
const limitIn = (value: number | undefined): string | undefined => (value === undefined ? undefined : limit(value));

/** KEP 2254: [2, 262144] of v1 onto [1, 10000] of v2, linear. */
export function weightOfShares(shares: number): number {
  const clamped = Math.min(Math.max(shares, MIN_SHARES), MAX_SHARES);
  return Math.floor(MIN_WEIGHT + ((clamped - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT)) / (MAX_SHARES - MIN_SHARES));
}
