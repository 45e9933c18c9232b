/** Figures of a cgroup for /metrics/cadvisor alone, from the kernel's files of either version. Loaded with a scrape. */

import { readdirSync, readlinkSync } from "node:fs";
import { ignore } from "@picolet/protocol/errors.ts";
import type { CgroupDetails, DeviceTraffic } from "../core/node/cgroup-details.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { fieldIn, numberIn, readKernelFile } from "./kernel-text.ts";

/** USER_HZ: of every Linux that userspace sees. */
const TICKS_PER_SECOND = 100;
const MICROSECONDS = 1e6;
const NANOSECONDS = 1e9;
/** Bounds a scrape: descriptors of a container beyond these are not counted. */
const MAX_DESCRIPTORS = 4096;
/** Bounds a scrape: processes of a container whose descriptors are counted. */
const MAX_PROCESSES = 256;
/** The kernel's limits of v1 at or above it mean none. */
const NO_LIMIT = 2 ** 60;
/** By its longest line. */
const MAX_DEVICES = 64;

/** Reads one cgroup. Files that are missing leave their figures out. */
export class CgroupDetailsReader {
  readonly #folders: CgroupFolders;
  readonly #proc: string;
  #devices: ReadonlyMap<string, string> | undefined;

  /** @param proc `/proc`; only tests name another one */
  constructor(folders: CgroupFolders, proc = "/proc") {
    this.#folders = folders;
    this.#proc = proc;
  }

  /** @param processes of the cgroup, for descriptors and limits; none for a cgroup above those of containers */
  read(path: string, processes: readonly number[]): CgroupDetails {
    const figures = this.#folders.kind === "v2" ? this.#readV2(path) : this.#readV1(path);
    return { ...figures, ...this.#ofProcesses(processes) };
  }

  #file(controller: Parameters<CgroupFolders["folder"]>[0], path: string, name: string): string | undefined {
    const folder = this.#folders.folder(controller);
    return folder === undefined ? undefined : readKernelFile(`${folder}${path}/${name}`);
  }

  #readV2(path: string): CgroupDetails {
    const cpu = this.#file("cpuacct", path, "cpu.stat") ?? "";
    const memory = this.#file("memory", path, "memory.stat") ?? "";
    const events = this.#file("memory", path, "memory.events") ?? "";
    const [quota, period] = (this.#file("cpu", path, "cpu.max") ?? "").trim().split(" ");
    const weight = numberIn(this.#file("cpu", path, "cpu.weight"));
    const seconds = (name: string): number | undefined => scaled(fieldIn(cpu, name), MICROSECONDS);
    return {
      userSeconds: seconds("user_usec "),
      systemSeconds: seconds("system_usec "),
      periods: fieldIn(cpu, "nr_periods "),
      throttledPeriods: fieldIn(cpu, "nr_throttled "),
      throttledSeconds: seconds("throttled_usec "),
      cpuPeriodUs: numberIn(period),
      cpuQuotaUs: numberIn(quota),
      cpuShares: weight === undefined ? undefined : sharesOf(weight),
      cacheBytes: fieldIn(memory, "file "),
      mappedFileBytes: fieldIn(memory, "file_mapped "),
      kernelBytes: fieldIn(memory, "kernel "),
      activeFileBytes: fieldIn(memory, "active_file "),
      inactiveFileBytes: fieldIn(memory, "inactive_file "),
      maxUsageBytes: numberIn(this.#file("memory", path, "memory.peak")),
      failures: fieldIn(events, "max "),
      oomKills: fieldIn(events, "oom_kill "),
      memoryLimitBytes: numberIn(this.#file("memory", path, "memory.max")),
      memorySwapLimitBytes: numberIn(this.#file("memory", path, "memory.swap.max")),
      memoryReservationBytes: numberIn(this.#file("memory", path, "memory.low")),
      maxThreads: numberIn(this.#file("pids", path, "pids.max")),
      traffic: this.#named(ioStat(this.#file("io", path, "io.stat") ?? "")),
    };
  }

  #readV1(path: string): CgroupDetails {
    const cpu = this.#file("cpu", path, "cpu.stat") ?? "";
    const ticks = this.#file("cpuacct", path, "cpuacct.stat") ?? "";
    const memory = this.#file("memory", path, "memory.stat") ?? "";
    const limit = (name: string): number | undefined => {
      const value = numberIn(this.#file("memory", path, name));
      return value === undefined || value >= NO_LIMIT ? undefined : value;
    };
    const quota = numberIn(this.#file("cpu", path, "cpu.cfs_quota_us"));
    return {
      userSeconds: scaled(fieldIn(ticks, "user "), TICKS_PER_SECOND),
      systemSeconds: scaled(fieldIn(ticks, "system "), TICKS_PER_SECOND),
      periods: fieldIn(cpu, "nr_periods "),
      throttledPeriods: fieldIn(cpu, "nr_throttled "),
      throttledSeconds: scaled(fieldIn(cpu, "throttled_time "), NANOSECONDS),
      cpuPeriodUs: numberIn(this.#file("cpu", path, "cpu.cfs_period_us")),
      cpuQuotaUs: quota !== undefined && quota > 0 ? quota : undefined,
      cpuShares: numberIn(this.#file("cpu", path, "cpu.shares")),
      cacheBytes: fieldIn(memory, "total_cache "),
      mappedFileBytes: fieldIn(memory, "total_mapped_file "),
      kernelBytes: numberIn(this.#file("memory", path, "memory.kmem.usage_in_bytes")),
      activeFileBytes: fieldIn(memory, "total_active_file "),
      inactiveFileBytes: fieldIn(memory, "total_inactive_file "),
      maxUsageBytes: numberIn(this.#file("memory", path, "memory.max_usage_in_bytes")),
      failures: numberIn(this.#file("memory", path, "memory.failcnt")),
      oomKills: fieldIn(this.#file("memory", path, "memory.oom_control") ?? "", "oom_kill "),
      memoryLimitBytes: limit("memory.limit_in_bytes"),
      memorySwapLimitBytes: limit("memory.memsw.limit_in_bytes"),
      memoryReservationBytes: limit("memory.soft_limit_in_bytes"),
      maxThreads: numberIn(this.#file("pids", path, "pids.max")),
      traffic: this.#named(
        blkio(
          this.#file("io", path, "blkio.throttle.io_service_bytes_recursive") ?? "",
          this.#file("io", path, "blkio.throttle.io_serviced_recursive") ?? "",
        ),
      ),
    };
  }

  #ofProcesses(processes: readonly number[]): Partial<CgroupDetails> {
    const [first] = processes;
    if (first === undefined) return {};
    let [descriptors, sockets] = [0, 0];
    for (const pid of processes.slice(0, MAX_PROCESSES)) {
      for (const target of descriptorsOf(`${this.#proc}/${pid}/fd`, MAX_DESCRIPTORS - descriptors)) {
        descriptors += 1;
        if (target.startsWith("socket:")) sockets += 1;
      }
    }
    const limits = readKernelFile(`${this.#proc}/${first}/limits`) ?? "";
    const openFiles = /^Max open files +(\S+)/m.exec(limits)?.[1];
    return {
      processes: processes.length,
      descriptors,
      sockets,
      maxOpenFiles: openFiles === "unlimited" ? -1 : numberIn(openFiles),
    };
  }

  /** Devices by the names of their files, as cAdvisor shows them. */
  #named(traffic: ReadonlyMap<string, DeviceTraffic>): readonly DeviceTraffic[] {
    if (traffic.size === 0) return [];
    this.#devices ??= deviceNames(readKernelFile(`${this.#proc}/diskstats`) ?? "");
    return [...traffic.values()].map((each) => ({
      ...each,
      device: this.#devices?.get(`${each.major}:${each.minor}`) ?? "",
    }));
  }
}

const scaled = (value: number | undefined, divisor: number): number | undefined =>
  value === undefined ? undefined : value / divisor;

/** The inverse of runc's conversion of shares to a weight. */
const sharesOf = (weight: number): number => Math.round(2 + ((weight - 1) * 262_142) / 9999);

const noTraffic = (numbers: string): DeviceTraffic => {
  const [major = "", minor = ""] = numbers.split(":");
  return { device: "", major, minor, readBytes: 0, writtenBytes: 0, reads: 0, writes: 0 };
};

/** `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0` */
function ioStat(text: string): ReadonlyMap<string, DeviceTraffic> {
  const found = new Map<string, DeviceTraffic>();
  for (const line of text.split("\n", MAX_DEVICES)) {
    const [numbers = "", ...fields] = line.trim().split(" ");
    if (!/^\d+:\d+$/.test(numbers)) continue;
    const of = (name: string): number =>
      numberIn(fields.find((field) => field.startsWith(`${name}=`))?.slice(name.length + 1)) ?? 0;
    const [readBytes, writtenBytes] = [of("rbytes"), of("wbytes")];
    found.set(numbers, { ...noTraffic(numbers), readBytes, writtenBytes, reads: of("rios"), writes: of("wios") });
  }
  return found;
}

/** `8:0 Read 1`, `8:0 Write 2` … */
function blkio(bytes: string, operations: string): ReadonlyMap<string, DeviceTraffic> {
  const found = new Map<string, DeviceTraffic>();
  const add = (text: string, [read, write]: readonly [keyof DeviceTraffic, keyof DeviceTraffic]): void => {
    // Five lines a device.
    for (const line of text.split("\n", 6 * MAX_DEVICES)) {
      const [numbers = "", operation, value] = line.trim().split(" ");
      const field = operation === "Read" ? read : operation === "Write" ? write : undefined;
      if (field === undefined || !/^\d+:\d+$/.test(numbers)) continue;
      found.set(numbers, { ...(found.get(numbers) ?? noTraffic(numbers)), [field]: numberIn(value) ?? 0 });
    }
  };
  add(bytes, ["readBytes", "writtenBytes"]);
  add(operations, ["reads", "writes"]);
  return found;
}

/** `   8       0 sda 1 2 …` */
function deviceNames(diskstats: string): ReadonlyMap<string, string> {
  const names = diskstats.split("\n").flatMap((line): [string, string][] => {
    const [major, minor, name] = line.trim().split(/ +/, 3);
    return name === undefined ? [] : [[`${major}:${minor}`, `/dev/${name}`]];
  });
  return new Map(names);
}

function* descriptorsOf(folder: string, limit: number): Generator<string> {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    // The process is gone.
    return;
  }
  for (const name of names.slice(0, Math.max(0, limit))) {
    try {
      yield readlinkSync(`${folder}/${name}`);
    } catch {
      ignore("it was closed in between, and counts no more");
    }
  }
}
