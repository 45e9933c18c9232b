/**
 * Reads a process's figures from /proc. Linux only; sizes in MiB, times in seconds. Source: proc(5), kernel
 * smaps_rollup.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

export interface MemoryFigures {
  readonly rssMiB: number;
  /** Shared pages divided among their users. */
  readonly pssMiB: number;
  /** Anonymous memory. */
  readonly anonMiB: number;
}

const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

export function memoryOf(pid: number): MemoryFigures {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const field = (name: string): number => {
    const kib = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1];
    if (kib === undefined) throw new Error(`/proc/${pid}/smaps_rollup has no ${name}`);
    return round(Number(kib) / 1024);
  };
  return { rssMiB: field("Rss"), pssMiB: field("Pss"), anonMiB: field("Anonymous") };
}

/**
 * User and system time so far, in seconds.
 * @param children those that have ended and were waited for count too
 */
export function cpuSecondsOf(pid: number, children?: "with children"): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The command in parentheses may hold anything; the numbers begin behind its last one.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const own = Number(fields[11]) + Number(fields[12]);
  return (children === undefined ? own : own + Number(fields[13]) + Number(fields[14])) / ticksPerSecond;
}

/** A window is divided into so many parts, for the spread. */
const WINDOW_PARTS = 6;

/**
 * CPU time of a process over a window from now on, in percent of one core.
 * @param onPart the end of each part of the window
 */
export async function cpuPercentOf(
  pid: number,
  windowMs: number,
  onPart?: () => void,
): Promise<{ readonly cpuPercent: number; readonly spread: Spread }> {
  const partMs = windowMs / WINDOW_PARTS;
  const seconds = [cpuSecondsOf(pid)];
  for (let part = 0; part < WINDOW_PARTS; part += 1) {
    await delay(partMs);
    seconds.push(cpuSecondsOf(pid));
    onPart?.();
  }
  const percent = (from: number, to: number, ms: number): number =>
    (((seconds[to] ?? 0) - (seconds[from] ?? 0)) / ms) * 100_000;
  return {
    cpuPercent: round(percent(0, WINDOW_PARTS, windowMs)),
    spread: spreadOf(Array.from({ length: WINDOW_PARTS }, (_, part) => percent(part, part + 1, partMs))),
  };
}

/** The CPU time that the scheduler has given the process's living threads, in nanoseconds. */
export function cpuNanosOf(pid: number): number {
  return sumOfThreads(pid, "schedstat", (text) => Number(text.split(" ")[0]));
}

/** A thread that has just ended is left out. */
function sumOfThreads(pid: number, file: string, read: (text: string) => number): number {
  return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => {
    try {
      return sum + read(readFileSync(`/proc/${pid}/task/${thread}/${file}`, "utf8"));
    } catch {
      return sum;
    }
  }, 0);
}

/** Bytes that a process caused to be written to the block layer so far. */
export function writtenBytesOf(pid: number): number {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
}

/** Times that a thread of it waited, of those that live: each time something woke it up. */
export function wakeupsOf(pid: number): number {
  return sumOfThreads(pid, "status", (text) => Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(text)?.[1]));
}

/**
 * System calls so far of read(2) and write(2) and their like; on sockets recvmsg(2) and sendmsg(2) are none of them.
 */
export function readsAndWritesOf(pid: number): number {
  const text = readFileSync(`/proc/${pid}/io`, "utf8");
  return Number(/^syscr: (\d+)/m.exec(text)?.[1]) + Number(/^syscw: (\d+)/m.exec(text)?.[1]);
}

/** @param share 0.5 for the median. `values` need not be sorted. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const value = sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  if (value === undefined) throw new Error("a percentile of nothing");
  return value;
}

/** How far samples are apart. */
export interface Spread {
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

/** By the figure's name. */
export type Spreads = Readonly<Record<string, Spread>>;

export const mapValues = <Key extends string, T, U>(
  record: Readonly<Record<Key, T>>,
  map: (value: T) => U,
): Record<Key, U> =>
  Object.fromEntries(Object.entries<T>(record).map(([key, value]) => [key, map(value)])) as Record<Key, U>;

export const spreadOf = (samples: readonly number[]): Spread => ({
  min: round(percentile(samples, 0)),
  median: round(percentile(samples, 0.5)),
  max: round(percentile(samples, 1)),
});

/** What is asked of times. */
export interface Quantiles {
  readonly p50: number;
  readonly p95: number;
  readonly min: number;
  readonly max: number;
}

export const quantilesOf = (samples: readonly number[]): Quantiles => ({
  p50: round(percentile(samples, 0.5)),
  p95: round(percentile(samples, 0.95)),
  min: round(percentile(samples, 0)),
  max: round(percentile(samples, 1)),
});

export const round = (value: number): number => Math.round(value * 1000) / 1000;

/** System calls by name, and their sum as `total`, in what `strace -f -c -p PID` prints when it is interrupted. */
export function straceTotals(summary: string): ReadonlyMap<string, number> {
  const totals = new Map<string, number>();
  for (const line of summary.split("\n")) {
    // `% time  seconds  usecs/call  calls  [errors]  name`
    const [, calls, name] = /^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+([a-z_]\w*)$/.exec(line) ?? [];
    if (calls !== undefined && name !== undefined) totals.set(name, Number(calls));
  }
  return totals;
}
