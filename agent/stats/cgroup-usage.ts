/** Reads the usage of a cgroup from the kernel's files of either version. */
import type { PressureStalls, Usage } from "../core/node/usage.ts";
import { fieldIn, numberIn, readKernelFile, stallsIn } from "./kernel-text.ts";

export interface CgroupFolders {
  /** The version of the files; `none`: no cgroups on this machine. */
  readonly kind: "v1" | "v2" | "none";
  /**
   * Where a controller's cgroups begin; undefined: the kernel has none of it. v2 counts CPU time without a controller.
   */
  folder(controller: "cpu" | "cpuacct" | "memory" | "pids" | "io"): string | undefined;
}

/** The machine's features: files of missing ones are not opened in each cgroup. */
export interface MachineFeatures {
  readonly swap: boolean;
  readonly pressure: boolean;
}

/** Limits of v1 at or above it mean none. */
const NO_LIMIT_BYTES = 2 ** 60;
const NANOSECONDS_PER_MICROSECOND = 1000;

/** A cgroup that goes while it is read counts as gone: half of its figures would be wrong ones. */
export class CgroupUsages {
  readonly #kind: CgroupFolders["kind"];
  readonly #cpu: string | undefined;
  readonly #cpuacct: string | undefined;
  readonly #memory: string | undefined;
  readonly #pids: string | undefined;

  constructor(folders: CgroupFolders) {
    this.#kind = folders.kind;
    this.#cpu = folders.folder("cpu");
    this.#cpuacct = folders.folder("cpuacct");
    this.#memory = folders.folder("memory");
    this.#pids = folders.folder("pids");
  }

  /** The folder in which the cgroups of containers are visible; undefined: none. */
  get folder(): string | undefined {
    return this.#memory ?? this.#cpuacct ?? this.#cpu;
  }

  /** Undefined: there is no such cgroup (any more). */
  read(path: string, machine: MachineFeatures): Usage | undefined {
    switch (this.#kind) {
      case "v1":
        return this.#readV1(path);
      case "v2":
        return this.#readV2(path, machine);
      case "none":
        return undefined;
    }
  }

  /** Processes right in it; those of other pid namespaces cannot be named. */
  processes(path: string): readonly number[] {
    const { folder } = this;
    const text = folder === undefined ? undefined : readKernelFile(`${folder}${path}/cgroup.procs`);
    return (text ?? "").split("\n").flatMap((line) => numberIn(line) || []);
  }

  #readV1(path: string): Usage | undefined {
    const memory = this.#memory === undefined ? NO_MEMORY : memoryOfV1(`${this.#memory}${path}`);
    if (memory === undefined) return undefined;
    const cpu = this.#cpuacct === undefined ? 0 : numberIn(readKernelFile(`${this.#cpuacct}${path}/cpuacct.usage`));
    if (cpu === undefined || this.folder === undefined) return undefined;
    const stat = this.#cpu === undefined ? undefined : readKernelFile(`${this.#cpu}${path}/cpu.stat`);
    const isLimited = stat !== undefined && (fieldIn(stat, "nr_periods ") ?? 0) > 0;
    return {
      cpuNanoseconds: cpu,
      throttledNanoseconds: isLimited ? (fieldIn(stat, "throttled_time ") ?? 0) : undefined,
      ...memory,
      pids: this.#processes(path),
    };
  }

  #readV2(path: string, { swap, pressure }: MachineFeatures): Usage | undefined {
    const folder = `${this.#cpuacct}${path}`;
    const cpu = readKernelFile(`${folder}/cpu.stat`);
    if (cpu === undefined) return undefined;
    const memory = this.#memory === undefined ? NO_MEMORY : memoryOfV2(folder, swap);
    if (memory === undefined) return undefined;
    const isLimited = (fieldIn(cpu, "nr_periods ") ?? 0) > 0;
    return {
      cpuNanoseconds: (fieldIn(cpu, "usage_usec ") ?? 0) * NANOSECONDS_PER_MICROSECOND,
      throttledNanoseconds: isLimited
        ? (fieldIn(cpu, "throttled_usec ") ?? 0) * NANOSECONDS_PER_MICROSECOND
        : undefined,
      ...memory,
      pids: this.#processes(path),
      pressure: pressure ? pressureOf(`${folder}/`, ".pressure") : undefined,
    };
  }

  #processes(path: string): number | undefined {
    return this.#pids === undefined ? undefined : numberIn(readKernelFile(`${this.#pids}${path}/pids.current`));
  }
}

type MemoryUsage = Pick<
  Usage,
  | "memoryBytes"
  | "workingSetBytes"
  | "rssBytes"
  | "swapBytes"
  | "swapLimitBytes"
  | "pageFaults"
  | "majorPageFaults"
  | "memoryLimitBytes"
>;

/** With a kernel that does not count memory. */
const NO_MEMORY: MemoryUsage = {
  ...{ memoryBytes: 0, workingSetBytes: 0, rssBytes: 0, swapBytes: 0, pageFaults: 0, majorPageFaults: 0 },
  memoryLimitBytes: undefined,
};

function memoryOfV1(folder: string): MemoryUsage | undefined {
  const bytes = numberIn(readKernelFile(`${folder}/memory.usage_in_bytes`));
  if (bytes === undefined) return undefined;
  const limit = numberIn(readKernelFile(`${folder}/memory.limit_in_bytes`));
  const stat = readKernelFile(`${folder}/memory.stat`);
  if (stat === undefined) return undefined;
  // `total_…` is with the cgroups below it.
  return {
    memoryBytes: bytes,
    workingSetBytes: Math.max(0, bytes - (fieldIn(stat, "total_inactive_file ") ?? 0)),
    rssBytes: fieldIn(stat, "total_rss ") ?? 0,
    swapBytes: fieldIn(stat, "total_swap ") ?? 0,
    pageFaults: fieldIn(stat, "total_pgfault ") ?? 0,
    majorPageFaults: fieldIn(stat, "total_pgmajfault ") ?? 0,
    memoryLimitBytes: limit === undefined || limit >= NO_LIMIT_BYTES ? undefined : limit,
  };
}

function memoryOfV2(folder: string, swap: boolean): MemoryUsage | undefined {
  const bytes = numberIn(readKernelFile(`${folder}/memory.current`));
  if (bytes === undefined) return undefined;
  const limit = numberIn(readKernelFile(`${folder}/memory.max`));
  const swapBytes = swap ? (numberIn(readKernelFile(`${folder}/memory.swap.current`)) ?? 0) : 0;
  const swapLimitBytes = swap ? numberIn(readKernelFile(`${folder}/memory.swap.max`)) : undefined;
  const stat = readKernelFile(`${folder}/memory.stat`);
  if (stat === undefined) return undefined;
  return {
    memoryBytes: bytes,
    workingSetBytes: Math.max(0, bytes - (fieldIn(stat, "inactive_file ") ?? 0)),
    rssBytes: fieldIn(stat, "anon ") ?? 0,
    swapBytes,
    swapLimitBytes,
    pageFaults: fieldIn(stat, "pgfault ") ?? 0,
    majorPageFaults: fieldIn(stat, "pgmajfault ") ?? 0,
    // `max` is no number.
    memoryLimitBytes: limit,
  };
}

/** Reads the pressure files of a cgroup or of the machine. Undefined: none of the three exists. */
export function pressureOf(prefix: string, suffix: string): PressureStalls | undefined {
  const memory = stallsIn(readKernelFile(`${prefix}memory${suffix}`));
  if (memory === undefined) return undefined;
  const cpu = stallsIn(readKernelFile(`${prefix}cpu${suffix}`));
  const io = stallsIn(readKernelFile(`${prefix}io${suffix}`));
  return { memory, ...(cpu === undefined ? {} : { cpu }), ...(io === undefined ? {} : { io }) };
}
