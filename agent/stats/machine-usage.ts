/** Reads the usage of the whole machine from /proc. */
import { join } from "node:path";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { Usage } from "../core/node/usage.ts";
import { pressureOf } from "./cgroup-usage.ts";
import { fieldIn, lineOf, numberIn, readKernelFile } from "./kernel-text.ts";
import { perCpuFreeBytes } from "./per-cpu-pages.ts";

export interface NetworkInterface {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxPackets: number;
  readonly rxErrors: number;
  readonly rxDropped: number;
  readonly txBytes: number;
  readonly txPackets: number;
  readonly txErrors: number;
  readonly txDropped: number;
}

/** USER_HZ: of every Linux that userspace sees. */
const NANOSECONDS_PER_TICK = 10_000_000;
const NANOSECONDS_PER_MICROSECOND = 1000;
/** Fields of a line of /proc/net/dev after the name (proc_net_dev(5)). */
const RX_BYTES = 0;
const TX_BYTES = 8;
/** Fields of a direction, counted from its bytes. */
const PACKETS = 1;
const ERRORS = 2;
const DROPPED = 3;
/** As cAdvisor has it: what goes through them is counted where it comes from, and a pod has one of them on the node. */
const UNCOUNTED = ["lo", "veth", "docker", "nerdctl"];
/** user, nice, system, idle, iowait, irq, softirq, steal; guests are within user. */
const BUSY_FIELDS = [0, 1, 2, 5, 6, 7];
/** Far more than the numbers of the machine's first line are long. */
const MAX_STAT_LINE = 256;

/**
 * Reads the machine's usage. Memory is what the kernel cannot reclaim: free memory, inactive page cache and the caches
 * of file system entries are excluded. The kubelet also excludes the kernel's own memory, about 50 MB on a small board.
 * @param proc `/proc`; only tests name another one
 */
export function machineUsage(proc: string): Usage {
  const read = (name: string): string => readKernelFile(`${proc}/${name}`) ?? "";
  const meminfo = read("meminfo");
  const vmstat = read("vmstat");
  const bytes = (name: string): number => (fieldIn(meminfo, name) ?? 0) * KIBIBYTE;
  const totalBytes = bytes("MemTotal:");
  const memoryBytes = Math.max(0, totalBytes - bytes("MemFree:") - perCpuFreeBytes(proc, totalBytes));
  return {
    cpuNanoseconds: busyTicks(read("stat")) * NANOSECONDS_PER_TICK,
    memoryBytes,
    workingSetBytes: Math.max(0, memoryBytes - bytes("Inactive(file):") - bytes("SReclaimable:")),
    rssBytes: bytes("AnonPages:"),
    swapBytes: Math.max(0, bytes("SwapTotal:") - bytes("SwapFree:")),
    swapLimitBytes: bytes("SwapTotal:"),
    pageFaults: fieldIn(vmstat, "pgfault ") ?? 0,
    majorPageFaults: fieldIn(vmstat, "pgmajfault ") ?? 0,
    memoryLimitBytes: totalBytes,
    pids: threadsOf(read("loadavg")),
    pressure: pressureOf(`${proc}/pressure/`, ""),
  };
}

function busyTicks(stat: string): number {
  const name = "cpu ";
  const from = lineOf(stat, name);
  if (from < 0) return 0;
  const [line = ""] = stat.slice(from + name.length, from + MAX_STAT_LINE).split("\n", 1);
  const ticks = line.trim().split(/ +/).map(Number);
  return BUSY_FIELDS.reduce((sum, index) => sum + finite(ticks[index]), 0);
}

/** `0.20 0.18 0.12 1/80 11206`: one runs, of so many. */
export function threadsOf(loadavg: string): number | undefined {
  const slash = loadavg.indexOf("/");
  return slash < 0 ? undefined : numberIn(loadavg.slice(slash + 1));
}

/**
 * Reads the interfaces of the network namespace of `pid`.
 * @param pid undefined: our own
 */
export function networkInterfaces(proc: string, pid: number | undefined): readonly NetworkInterface[] {
  const text = readKernelFile(join(proc, String(pid ?? "self"), "net/dev")) ?? "";
  const interfaces: NetworkInterface[] = [];
  for (const line of text.split("\n").slice(2)) {
    // The name itself may hold a colon (`eth0:1`), the numbers never do.
    const colon = line.lastIndexOf(":");
    const name = line.slice(0, Math.max(0, colon)).trim();
    const fields = line
      .slice(colon + 1)
      .trim()
      .split(/ +/)
      .map(Number);
    if (name === "" || fields.length <= TX_BYTES + DROPPED || UNCOUNTED.some((prefix) => name.startsWith(prefix)))
      continue;
    const of = (index: number): number => finite(fields[index]);
    interfaces.push({
      name,
      rxBytes: of(RX_BYTES),
      rxPackets: of(RX_BYTES + PACKETS),
      rxErrors: of(RX_BYTES + ERRORS),
      rxDropped: of(RX_BYTES + DROPPED),
      txBytes: of(TX_BYTES),
      txPackets: of(TX_BYTES + PACKETS),
      txErrors: of(TX_BYTES + ERRORS),
      txDropped: of(TX_BYTES + DROPPED),
    });
  }
  return interfaces;
}

const finite = (value: number | undefined): number =>
  value !== undefined && value >= 0 && value < Infinity ? value : 0;

/** 0 where the kernel does not say. */
export const machineUptimeMs = (proc: string): number => (numberIn(readKernelFile(`${proc}/uptime`)) ?? 0) * 1000;

/** cgroupfs path of this process' cgroup; undefined: it is in none of its own. */
export function ownCgroup(proc: string): string | undefined {
  const paths = new Set<string>();
  for (const line of (readKernelFile(`${proc}/self/cgroup`) ?? "").split("\n")) {
    // `4:memory:/a`; v2's has neither number nor name, and beside v1 nothing in it.
    const [, controllers, ...rest] = line.split(":");
    if (controllers === undefined || !COUNTING.some((each) => controllers.split(",").includes(each))) continue;
    paths.add(rest.join(":"));
  }
  const [path, ...others] = paths;
  return others.length > 0 || path === "/" ? undefined : path;
}

const COUNTING = ["", "memory", "cpuacct"];

/** Reads the usage of this process alone. */
export function ownUsage(proc: string): Usage {
  const status = readKernelFile(`${proc}/self/status`) ?? "";
  const bytes = (name: string): number => (fieldIn(status, name) ?? 0) * KIBIBYTE;
  const { user, system } = process.cpuUsage();
  const { majorPageFault, minorPageFault } = process.resourceUsage();
  return {
    cpuNanoseconds: (user + system) * NANOSECONDS_PER_MICROSECOND,
    memoryBytes: bytes("VmRSS:"),
    workingSetBytes: bytes("VmRSS:"),
    rssBytes: bytes("RssAnon:"),
    swapBytes: bytes("VmSwap:"),
    pageFaults: majorPageFault + minorPageFault,
    majorPageFaults: majorPageFault,
    memoryLimitBytes: undefined,
    pids: fieldIn(status, "Threads:"),
  };
}

/** The limit of processes and threads; undefined where the kernel has none. */
export function maxProcesses(proc: string): number | undefined {
  const limits = ["pid_max", "threads-max"].flatMap(
    (name) => numberIn(readKernelFile(`${proc}/sys/kernel/${name}`)) ?? [],
  );
  return limits.length === 0 ? undefined : Math.min(...limits);
}
