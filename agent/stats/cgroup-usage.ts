/** What a cgroup has used, from the kernel's own files of either version. */

export interface CgroupReader {
  /** Which files there are; `none`: no cgroups on this machine. */
  readonly kind: "v1" | "v2" | "none";
  /** A file's content; undefined when it is not there. `controller` says in which hierarchy of v1. */
  read(path: string, controller: string, file: string): Promise<string | undefined>;
}

export interface Usage {
  /** Of all time. */
  readonly cpuNanoseconds: number;
  readonly memoryBytes: number;
  /** What cannot be given back at once: memory without inactive page cache, as cAdvisor and the kubelet have it. */
  readonly workingSetBytes: number;
  readonly rssBytes: number;
  readonly swapBytes: number;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
  /** Undefined: none. */
  readonly memoryLimitBytes: number | undefined;
}

/** Limits of v1 at or above it mean none. */
const NO_LIMIT_BYTES = 2 ** 60;

const numberOf = (text: string | undefined): number | undefined => {
  const number = text === undefined ? Number.NaN : Number(text.trim());
  return Number.isFinite(number) ? number : undefined;
};

/** `name value` lines. */
export function valuesOf(text: string): ReadonlyMap<string, number> {
  const lines = text.split("\n").map((line) => line.split(/[ \t:]+/));
  return new Map(lines.map(([name = "", value = ""]) => [name, Number(value)]));
}

/** Undefined: there is no such cgroup (any more). */
export async function readUsage(cgroups: CgroupReader, path: string): Promise<Usage | undefined> {
  if (cgroups.kind === "none") return undefined;
  return cgroups.kind === "v1" ? await readV1(cgroups, path) : await readV2(cgroups, path);
}

async function readV1(cgroups: CgroupReader, path: string): Promise<Usage | undefined> {
  const cpu = numberOf(await cgroups.read(path, "cpuacct", "cpuacct.usage"));
  const memory = numberOf(await cgroups.read(path, "memory", "memory.usage_in_bytes"));
  if (cpu === undefined || memory === undefined) return undefined;
  // `total_…` is with the cgroups below it.
  const stat = valuesOf((await cgroups.read(path, "memory", "memory.stat")) ?? "");
  const limit = numberOf(await cgroups.read(path, "memory", "memory.limit_in_bytes"));
  return {
    cpuNanoseconds: cpu,
    memoryBytes: memory,
    workingSetBytes: Math.max(0, memory - (stat.get("total_inactive_file") ?? 0)),
    rssBytes: stat.get("total_rss") ?? 0,
    swapBytes: stat.get("total_swap") ?? 0,
    pageFaults: stat.get("total_pgfault") ?? 0,
    majorPageFaults: stat.get("total_pgmajfault") ?? 0,
    memoryLimitBytes: limit === undefined || limit >= NO_LIMIT_BYTES ? undefined : limit,
  };
}

const NANOSECONDS_PER_MICROSECOND = 1000;

async function readV2(cgroups: CgroupReader, path: string): Promise<Usage | undefined> {
  const cpu = await cgroups.read(path, "cpu", "cpu.stat");
  const memory = numberOf(await cgroups.read(path, "memory", "memory.current"));
  if (cpu === undefined || memory === undefined) return undefined;
  const stat = valuesOf((await cgroups.read(path, "memory", "memory.stat")) ?? "");
  return {
    cpuNanoseconds: (valuesOf(cpu).get("usage_usec") ?? 0) * NANOSECONDS_PER_MICROSECOND,
    memoryBytes: memory,
    workingSetBytes: Math.max(0, memory - (stat.get("inactive_file") ?? 0)),
    rssBytes: stat.get("anon") ?? 0,
    swapBytes: numberOf(await cgroups.read(path, "memory", "memory.swap.current")) ?? 0,
    pageFaults: stat.get("pgfault") ?? 0,
    majorPageFaults: stat.get("pgmajfault") ?? 0,
    // `max` is no number.
    memoryLimitBytes: numberOf(await cgroups.read(path, "memory", "memory.max")),
  };
}
