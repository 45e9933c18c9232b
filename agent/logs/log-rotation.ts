import { link, lstat, rename, unlink } from "node:fs/promises";
import { basename, dirname } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import {
  type Clock,
  type Log,
  type Millis,
  type MonotonicMs,
  millis,
  type PodUid,
  seconds,
} from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { nextStamp } from "./log-names.ts";
import { containerLogs, ignoreMissing, type LogFileUsage, logFilesIn } from "./log-usage.ts";

/** A container that runs, and the log it writes to. */
export interface LoggedContainer {
  readonly uid: PodUid;
  readonly id: string;
  /** Absolute. */
  readonly logPath: string;
}

export interface LogRotationComponents {
  /** The containers that run now. */
  readonly containers: () => Iterable<LoggedContainer>;
  /** Fires when others may run; missing: everything is checked at the usual intervals while nothing runs, too. */
  readonly changes?: Watch<unknown>;
  /** The runtime goes on writing to a new file under the old name. */
  readonly reopen: (container: LoggedContainer, signal: AbortSignal) => Promise<void>;
  /** @returns whether a pod is this node's: logs of others in the same folder are left alone */
  readonly owns: (uid: string) => boolean;
  /**
   * @returns whether the container's output waits for the rotation when its log is full (`RuntimeAdapter.boundsLogs`)
   */
  readonly isBounded?: (container: LoggedContainer) => boolean;
  /** The free space of the logs' file system; missing: only the intervals decide when logs are checked. */
  readonly freeBytes?: () => number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface LogRotationInit {
  readonly podLogsDir: string;
  /** `containerLogMaxSize`: a log that is larger is put aside. */
  readonly maxSizeBytes: number;
  /** `containerLogMaxFiles`, at least 2: the one being written and those put aside. */
  readonly maxFiles: number;
  /** `containerLogMonitorInterval`. */
  readonly interval: Millis;
  /** `containerLogMaxWorkers`: bounds the logs that are checked and rotated at once. */
  readonly maxWorkers: number;
  /** Bounds all logs of this node together; `undefined`: no limit. */
  readonly totalMaxBytes: number | undefined;
}

/** While no log will be full by then, the next check may wait for so many intervals. */
const MAX_INTERVALS = 3;
/**
 * A log that grows by more than half its size, and by `MIN_FILLING_BYTES`, within an interval is checked sooner than
 * that, but not sooner than this. A container that writes 100 MB/s through its runtime overshoots by 25 MB then. A
 * check of one log costs 30 µs.
 */
const SHORTEST_CHECK_INTERVAL = millis(250);
const FAST_GROWTH = 0.5;
/**
 * How often the free space is compared between two checks, which finds a sudden burst: one statfs of 3 µs. At 100 MB/s
 * the first burst overshoots by 100 MB, or by a hundredth of what is free, if that is more.
 */
const FREE_SPACE_INTERVAL = seconds(1);
const MAX_FREE_SPACE_INTERVAL = seconds(5);
const BURST_BYTES_PER_MS = 100_000;
const BURST_SHARE = 0.01;
/** Less is what else is written to a disk in a second. */
const MIN_FILLING_BYTES = MEBIBYTE;
/** Files put aside may together be so many times larger than `maxSizeBytes` allows for, as each was found late. */
const ASIDE_TOLERANCE = 2;
/** Below that, limits of a few kilobytes for instance, the number of files is limit enough. */
const MIN_ASIDE_BYTES = 8 * MEBIBYTE;
/** The interval of a full count without another cause: logs of dead containers do not grow. */
const COUNT_INTERVAL_MS = 5 * 60_000;
/** The runs whose logs are kept: the last, and the one before for `logs --previous`. */
const KEPT_ATTEMPTS = 2;
/** What is deleted when the cap is reached goes down to this part of it, so that it is not reached again at once. */
const LOW_WATER = 0.9;

interface Seen {
  sizeBytes: number;
  at: MonotonicMs;
  /** `undefined`: not by this agent. */
  readonly rotatedAt: MonotonicMs | undefined;
}

/**
 * Bounds the logs of containers: each one as the kubelet does, and all of them together. If the agent is killed between
 * the renaming and the runtime's reopening, the next check finds the log missing and has it reopened.
 *
 * A component's log cannot become too large, because its writer waits; rotating it at most once an interval bounds how
 * fast the component can write to flash. A runtime's containers never wait, so their logs are checked as fast as they
 * grow.
 */
export class LogRotation implements Component {
  readonly name = "log rotation";
  readonly #components: LogRotationComponents;
  readonly #init: LogRotationInit;
  /** One for each running container, by log path. */
  #seen = new Map<string, Seen>();
  #countedAt: MonotonicMs | undefined;
  #countedBytes = 0;
  #grownBytes = 0;
  #compressing: { readonly path: string; readonly done: Promise<void> } | undefined;
  /**
   * Paths to compress, oldest first; at most `maxFiles` for each running container, and found again by the next
   * rotation.
   */
  readonly #toCompress = new Set<string>();

  constructor(components: LogRotationComponents, init: LogRotationInit) {
    this.#components = components;
    this.#init = init;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        const next = await this.scan(signal);
        if (this.#seen.size === 0) await this.#untilOneRuns(signal);
        await this.#wait(next, signal);
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  /** Compressions end first; those that `signal` of their scan aborted at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#compressing !== undefined) await this.#compressing.done;
  }

  /** Checks all logs. @returns the time until the next check */
  async scan(signal: AbortSignal): Promise<Millis> {
    const { log } = this.#components;
    const before = this.#seen;
    this.#seen = new Map();
    let next = this.#init.interval * MAX_INTERVALS;
    const containers = [...this.#components.containers()];
    // All at once: each by itself would wake this thread and the one of all file access.
    const sizes = await Promise.all(containers.map(({ logPath }) => sizeOf(logPath)));
    const queue = containers.entries();
    const work = async (): Promise<void> => {
      for (const [index, container] of queue) {
        if (signal.aborted) break;
        try {
          const seen = { size: sizes[index], before: before.get(container.logPath) };
          next = Math.min(next, await this.#check(container, seen, signal));
        } catch (error) {
          if (isCancelled(error)) throw error;
          log.warn("cannot rotate a log", { path: container.logPath, error: describeError(error) });
          next = Math.min(next, this.#init.interval);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.#init.maxWorkers, containers.length) }, work));
    await this.#countWhenDue(signal);
    this.#compressNext(signal);
    return millis(next);
  }

  /** Waits until a container runs: no other log grows. */
  async #untilOneRuns(signal: AbortSignal): Promise<void> {
    const { changes, containers } = this.#components;
    const runs = (): boolean => [...containers()].length > 0;
    if (changes === undefined || runs()) return;
    for await (const _ of changes.changes(signal)) if (runs()) return;
  }

  /** Waits until the next check is due, or the disk fills, possibly by a log. */
  async #wait(duration: Millis, signal: AbortSignal): Promise<void> {
    const { clock, freeBytes } = this.#components;
    if (freeBytes === undefined) return await clock.sleep(duration, signal);
    const until = clock.monotonic() + duration;
    const before = freeBytes();
    const filling = Math.max(this.#init.maxSizeBytes / 2, MIN_FILLING_BYTES);
    const harmless = (before * BURST_SHARE) / BURST_BYTES_PER_MS;
    const interval = Math.min(MAX_FREE_SPACE_INTERVAL, Math.max(FREE_SPACE_INTERVAL, Math.floor(harmless)));
    for (let left: number = duration; left > 0; left = until - clock.monotonic()) {
      await clock.sleep(millis(Math.min(left, interval)), signal);
      if (before - freeBytes() >= filling) return;
    }
  }

  /** Removes logs of this node's pods, of any age and with any free space. */
  async removeDead(
    isDead: (uid: string, container: string, attempt: number) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { podLogsDir } = this.#init;
    for await (const { folder, files } of containerLogs(podLogsDir, this.#components.owns)) {
      if (signal.aborted) return;
      const pod = basename(dirname(folder));
      const uid = pod.slice(pod.lastIndexOf("_") + 1);
      for (const { path, name } of files) if (isDead(uid, basename(folder), name.attempt)) await this.#remove(path);
    }
  }

  /** @returns milliseconds until it must be checked again */
  async #check(
    container: LoggedContainer,
    { size, before }: { readonly size: number | Error | undefined; readonly before: Seen | undefined },
    signal: AbortSignal,
  ): Promise<number> {
    const { logPath } = container;
    const { maxSizeBytes, interval } = this.#init;
    const now = this.#components.clock.monotonic();
    if (size instanceof Error) throw size;
    if (size === undefined) {
      this.#components.log.info("a running container's log is missing: reopening it", { path: logPath });
      await this.#components.reopen(container, signal);
      return interval;
    }
    const grown = Math.max(0, size - (before?.sizeBytes ?? 0));
    this.#grownBytes += grown;
    const isBounded = this.#components.isBounded?.(container) ?? false;
    const isFull = size > maxSizeBytes;
    const paused = isBounded && before?.rotatedAt !== undefined ? before.rotatedAt + interval - now : 0;
    if (isFull && paused <= 0) {
      await this.#rotate(container, size, signal);
      this.#seen.set(logPath, { sizeBytes: 0, at: now, rotatedAt: now });
    } else this.#seen.set(logPath, { sizeBytes: size, at: now, rotatedAt: before?.rotatedAt });
    if (isFull && isBounded) return paused > 0 ? paused : interval;
    if (before === undefined) {
      if (!isFull) await this.#removeOldAttempts(dirname(logPath), await logFilesIn(dirname(logPath)));
      return interval;
    }
    if (grown === 0) return Number.POSITIVE_INFINITY;
    const bytesPerMs = grown / Math.max(1, now - before.at);
    const fastBytes = Math.max(maxSizeBytes * FAST_GROWTH, MIN_FILLING_BYTES);
    const isFast = !isBounded && bytesPerMs * interval > fastBytes;
    const untilFull = (isFull ? maxSizeBytes : maxSizeBytes - size) / bytesPerMs;
    return Math.max(untilFull / 2, isFast ? SHORTEST_CHECK_INTERVAL : interval);
  }

  /** Makes room, puts the log aside and has the runtime begin a new one; older ones are left to be compressed. */
  async #rotate(container: LoggedContainer, sizeBytes: number, signal: AbortSignal): Promise<void> {
    const { logPath } = container;
    const files = await logFilesIn(dirname(logPath));
    const aside = await this.#tidy(files.filter(({ path }) => path.startsWith(`${logPath}.`)));
    const excess = excessFiles(aside, sizeBytes, this.#init);
    for (const { path } of aside.slice(0, excess)) await this.#remove(path);
    const stamp = nextStamp(
      this.#components.clock.wall(),
      aside.map(({ name }) => name.stamp),
    );
    const target = `${logPath}.${stamp}`;
    await rename(logPath, target);
    try {
      await this.#components.reopen(container, signal);
    } catch (error) {
      // The runtime goes on writing to what it has open, so it gets its name back; unless it has reopened after all.
      await putBack(target, logPath);
      throw error;
    }
    for (const { path, name } of aside.slice(excess)) if (name.kind === "rotated") this.#toCompress.add(path);
  }

  /**
   * Removes what a crash left: halves of compressions, and logs whose gzip is complete. @returns the rest, oldest
   * first.
   */
  async #tidy(files: readonly LogFileUsage[]): Promise<LogFileUsage[]> {
    const compressed = new Set(files.filter(({ name }) => name.kind === "compressed").map(({ path }) => path));
    const kept: LogFileUsage[] = [];
    for (const file of files) {
      const { path, name } = file;
      const isHalf = name.kind === "leftover" && !path.startsWith(`${this.#compressing?.path}.`);
      const isDouble = name.kind === "rotated" && compressed.has(`${path}.gz`) && this.#compressing?.path !== path;
      if (isHalf || isDouble) await this.#remove(path);
      else if (name.kind === "rotated" || name.kind === "compressed") kept.push(file);
    }
    return kept.sort((a, b) => (a.name.stamp < b.name.stamp ? -1 : 1));
  }

  /** One at a time: a board has one core to spare for it at best. */
  #compressNext(signal: AbortSignal): void {
    const [path] = this.#toCompress;
    if (path === undefined || this.#compressing !== undefined || signal.aborted) return;
    this.#toCompress.delete(path);
    // Loaded when it is needed: zlib and its streams are 0.6 MiB that most boards need once a day, if at all.
    const done = import("./compress-log.ts")
      .then(({ compressLog }) => compressLog(path, signal))
      .catch((error: unknown) => {
        if (signal.aborted || errnoOf(error) === "ENOENT") return;
        this.#components.log.warn("cannot compress a log", { path, error: describeError(error) });
      })
      .finally(() => {
        this.#compressing = undefined;
        this.#compressNext(signal);
      });
    this.#compressing = { path, done };
  }

  async #removeOldAttempts(folder: string, files: readonly LogFileUsage[]): Promise<readonly LogFileUsage[]> {
    const attempts = [...new Set(files.map(({ name }) => name.attempt))].sort((a, b) => b - a);
    const oldest = attempts[KEPT_ATTEMPTS - 1] ?? 0;
    const running = new Set(this.#runningPaths());
    const kept: LogFileUsage[] = [];
    for (const file of files) {
      const isOfRunning = running.has(`${folder}/${file.name.attempt}.log`);
      if (file.name.attempt < oldest && !isOfRunning) await this.#remove(file.path);
      else kept.push(file);
    }
    return kept;
  }

  *#runningPaths(): Iterable<string> {
    for (const { logPath } of this.#components.containers()) yield logPath;
  }

  /** Everything on disk is counted now and then, and when what has grown since may have reached the cap. */
  async #countWhenDue(signal: AbortSignal): Promise<void> {
    const now = this.#components.clock.monotonic();
    const cap = this.#init.totalMaxBytes ?? Number.POSITIVE_INFINITY;
    const isDue = this.#countedAt === undefined || now - this.#countedAt >= COUNT_INTERVAL_MS;
    if (!isDue && this.#countedBytes + this.#grownBytes <= cap) return;
    this.#countedAt = now;
    this.#grownBytes = 0;
    const files = await this.#count();
    if (this.#countedBytes <= cap) return;
    await this.#reduce(files, cap);
    if (this.#countedBytes <= cap) return;
    await this.#rotateLargest(cap, signal);
    await this.#reduce(await this.#count(), cap);
  }

  async #count(): Promise<LogFileUsage[]> {
    const { podLogsDir } = this.#init;
    const all: LogFileUsage[] = [];
    for await (const { folder, files } of containerLogs(podLogsDir, this.#components.owns))
      all.push(...(await this.#removeOldAttempts(folder, files)));
    this.#countedBytes = all.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    return all;
  }

  /** Logs put aside go first, then those of containers that run no more, oldest first; never one that is written to. */
  async #reduce(files: readonly LogFileUsage[], cap: number): Promise<void> {
    const running = new Set(this.#runningPaths());
    const rank = ({ name }: LogFileUsage): number => (name.kind === "current" ? 1 : 0);
    const candidates = files
      .filter(({ path }) => !running.has(path))
      .sort((a, b) => rank(a) - rank(b) || a.modifiedAtMs - b.modifiedAtMs || (a.path < b.path ? -1 : 1));
    let removed = 0;
    for (const { path, sizeBytes } of candidates) {
      if (this.#countedBytes <= cap * LOW_WATER) break;
      await this.#remove(path);
      this.#countedBytes -= sizeBytes;
      removed += 1;
    }
    if (removed > 0)
      this.#components.log.warn("all logs together are too large: the oldest were deleted", {
        files: removed,
        limitBytes: cap,
        leftBytes: this.#countedBytes,
      });
  }

  /** Rotates early the logs with more than their share when the logs being written are too large together. */
  async #rotateLargest(cap: number, signal: AbortSignal): Promise<void> {
    const running = [...this.#components.containers()];
    const share = cap / (2 * Math.max(1, running.length));
    for (const container of running) {
      const seen = this.#seen.get(container.logPath);
      if (seen === undefined || seen.sizeBytes <= share) continue;
      try {
        await this.#rotate(container, seen.sizeBytes, signal);
        seen.sizeBytes = 0;
      } catch (error) {
        if (isCancelled(error)) throw error;
        this.#components.log.warn("cannot rotate a log", { path: container.logPath, error: describeError(error) });
      }
    }
  }

  async #remove(path: string): Promise<void> {
    this.#toCompress.delete(path);
    await unlink(path).catch(ignoreMissing);
  }
}

/** Undefined: it is not there. */
const sizeOf = (path: string): Promise<number | Error | undefined> =>
  lstat(path).then(
    ({ size }) => size,
    (error: Error) => {
      try {
        return ignoreMissing(error);
      } catch {
        return error;
      }
    },
  );

/** Computes how many rotated files, oldest first, must be removed before another one of `sizeBytes` is added. Pure. */
function excessFiles(
  aside: readonly LogFileUsage[],
  sizeBytes: number,
  { maxFiles, maxSizeBytes }: LogRotationInit,
): number {
  const mostBytes = Math.max(maxSizeBytes * (maxFiles - 1) * ASIDE_TOLERANCE, MIN_ASIDE_BYTES);
  let excess = Math.max(0, aside.length - (maxFiles - 2));
  let total = aside.slice(excess).reduce((sum, each) => sum + each.sizeBytes, sizeBytes);
  for (; excess < aside.length && total > mostBytes; excess += 1) total -= aside[excess]?.sizeBytes ?? 0;
  return excess;
}

async function putBack(aside: string, path: string): Promise<void> {
  try {
    await link(aside, path);
    await unlink(aside);
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
  }
}
