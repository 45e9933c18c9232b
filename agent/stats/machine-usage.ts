/** What the whole machine has used, from /proc. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Usage, valuesOf } from "./cgroup-usage.ts";

export interface NetworkInterface {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly txBytes: number;
  readonly txErrors: number;
}

/** USER_HZ: of every Linux that userspace sees. */
const NANOSECONDS_PER_TICK = 10_000_000;
const KIB = 1024;
/** Fields of a line of /proc/net/dev after the name (proc_net_dev(5)). */
const RX_BYTES = 0;
const RX_ERRORS = 2;
const TX_BYTES = 8;
const TX_ERRORS = 10;

/** @param proc `/proc`; only tests name another one */
export async function machineUsage(proc: string): Promise<Usage> {
  const read = (name: string): Promise<string> => readFile(join(proc, name), "utf8").catch(() => "");
  const [stat, meminfo, vmstat] = [await read("stat"), valuesOf(await read("meminfo")), valuesOf(await read("vmstat"))];
  const bytes = (name: string): number => (meminfo.get(name) ?? 0) * KIB;
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are within user.
  const ticks = (/^cpu +(.*)$/m.exec(stat)?.[1] ?? "").split(" ").map(Number);
  const busy = [0, 1, 2, 5, 6, 7].reduce((sum, index) => sum + (ticks[index] ?? 0), 0);
  const memoryBytes = bytes("MemTotal") - bytes("MemFree");
  return {
    cpuNanoseconds: busy * NANOSECONDS_PER_TICK,
    memoryBytes,
    workingSetBytes: Math.max(0, memoryBytes - bytes("Inactive(file)")),
    rssBytes: bytes("AnonPages"),
    swapBytes: bytes("SwapTotal") - bytes("SwapFree"),
    pageFaults: vmstat.get("pgfault") ?? 0,
    majorPageFaults: vmstat.get("pgmajfault") ?? 0,
    memoryLimitBytes: bytes("MemTotal"),
  };
}

/**
 * Of the network namespace of `pid`; without loopback.
 * @param pid undefined: our own
 */
export async function networkInterfaces(proc: string, pid: number | undefined): Promise<readonly NetworkInterface[]> {
  const text = await readFile(join(proc, String(pid ?? "self"), "net/dev"), "utf8").catch(() => "");
  const lines = text.split("\n").slice(2);
  return lines.flatMap((line) => {
    const [name = "", rest = ""] = line.split(":");
    if (rest === "" || name.trim() === "lo") return [];
    const fields = rest.trim().split(/ +/).map(Number);
    const of = (index: number): number => fields[index] ?? 0;
    return [
      {
        name: name.trim(),
        rxBytes: of(RX_BYTES),
        rxErrors: of(RX_ERRORS),
        txBytes: of(TX_BYTES),
        txErrors: of(TX_ERRORS),
      },
    ];
  });
}

/** How many processes there may be, and are. */
export async function processLimits(proc: string): Promise<{ readonly maxpid: number; readonly curproc: number }> {
  const read = (name: string): Promise<string> => readFile(join(proc, name), "utf8").catch(() => "");
  // `0.20 0.18 0.12 1/80 11206`: of so many scheduling entities.
  const all = /\/(\d+) /.exec(await read("loadavg"))?.[1] ?? "0";
  return { maxpid: Number((await read("sys/kernel/pid_max")).trim()), curproc: Number(all) };
}
