/** Schedules the next sample of memory and processes, and decides when a sample is reason to act. Pure. */

import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { MemoryReading, MemorySpace } from "../../core/node/memory-reading.ts";
import { isMemorySignal } from "./eviction-signals.ts";
import { amountOf, type EvictionThreshold } from "./eviction-thresholds.ts";

/**
 * As fast as memory is taken to fill: a Raspberry Pi 4 touches new pages at some 700 MiB/s with all of its cores, one
 * process that leaks with a purpose at 100. Memory that fills faster is seen later, by the difference: at twice the
 * rate, 300 MiB away from the threshold, 0.3 s.
 */
const FILL_RATE_BYTES_PER_SECOND = 512 * MEBIBYTE;
/**
 * One core forks some 10,000 times a second on a PC, four of a Raspberry Pi 4 together as often. On 512 MB the kernel
 * allows some 4,000 processes: a fork bomb has them in less than a second.
 */
const FORK_RATE_PER_SECOND = 10_000;
/** Twenty samples a second cost 0.1 % of a core here and 1 % on a small board, while memory is nearly gone. */
export const MEMORY_SAMPLE_MIN_INTERVAL = millis(50);
/** With memory in plenty: 0.002 % of a core. */
const LONGEST = millis(5_000);
/**
 * Interval while the pods' limit is missing: it appears shortly after the first pod, and a board with much memory would
 * otherwise sample again after 5 s. Where it never appears this costs 0.01 % of a core.
 */
const UNSEEN = millis(1_000);
/** While a soft threshold is met already: nothing is gained by looking faster than its grace period goes by. */
const STARVED = millis(250);

/**
 * Share of time in which all tasks waited for memory (PSI full). A board that thrashes is above 0.5, one with a busy
 * disk below 0.1.
 */
const STALL_SHARE = 0.3;
/** Over which the share is taken. */
const STALL_WINDOW_MS = 1_000;
/**
 * Stalls alone are no reason, for a slow disk makes them too: what is left must be little, in thresholds. Nor are those
 * of a pod that is held at a limit of its own, which needs no memory of the others.
 */
const STALL_NEARNESS = 2;

export interface MemorySampling {
  /** To be judged now. */
  readonly crossed: readonly EvictionThreshold[];
  /** Nothing can go on, though the threshold is not crossed. */
  readonly stalled: boolean;
  readonly nextSampleIn: Millis;
}

/** Where the window of stalls began. */
export interface StallWindow {
  readonly at: MonotonicMs;
  readonly stalledUs: number;
  readonly heldUs: number;
}

export interface MemorySamplingView {
  readonly reading: MemoryReading;
  readonly window: StallWindow | undefined;
  /**
   * The sum of the stalls of pods that are held at limits of their own, in microseconds. Missing unless
   * `needsHeldStalls` returns true.
   */
  readonly heldUs?: number | undefined;
  readonly now: MonotonicMs;
  /** There is no pod: what is not there is not expected. */
  readonly isEmpty?: boolean;
}

const US_PER_MS = 1000;

/** @returns also the window for the next sample */
export function planMemorySampling(
  thresholds: readonly EvictionThreshold[],
  view: MemorySamplingView,
): MemorySampling & { readonly window: StallWindow | undefined } {
  const { reading, isEmpty = false } = view;
  const spaces = thresholds.flatMap((threshold) => {
    const space = spaceOf(threshold, reading);
    return space === undefined
      ? []
      : [{ threshold, space, left: space.available - amountOf(threshold.value, space.capacity) }];
  });
  const soonest = Math.min(...spaces.map(({ threshold, left }) => left / rateOf(threshold)));
  const crossed = spaces.filter(({ left }) => left < 0);
  const { stalled, next } = stalls(thresholds, view);
  return {
    crossed: crossed.map(({ threshold }) => threshold),
    stalled,
    nextSampleIn: crossed.length > 0 ? STARVED : untilCrossing(soonest, !isEmpty && spaces.length < thresholds.length),
    window: next,
  };
}

const rateOf = ({ signal }: EvictionThreshold): number =>
  isMemorySignal(signal) ? FILL_RATE_BYTES_PER_SECOND : FORK_RATE_PER_SECOND;

function untilCrossing(soonestSeconds: number, isOneUnseen: boolean): Millis {
  const longest = isOneUnseen ? UNSEEN : LONGEST;
  if (!Number.isFinite(soonestSeconds)) return longest;
  return millis(Math.min(longest, Math.max(MEMORY_SAMPLE_MIN_INTERVAL, Math.floor(soonestSeconds * 1000))));
}

function spaceOf({ signal }: EvictionThreshold, reading: MemoryReading): MemorySpace | undefined {
  switch (signal) {
    case "memory.available":
      return reading.node;
    case "allocatableMemory.available":
      return reading.pods;
    case "pid.available":
      return reading.pids;
    default:
      return undefined;
  }
}

/** @returns whether a window of stalls ends or begins with this reading */
export function needsHeldStalls(
  thresholds: readonly EvictionThreshold[],
  { reading, window, now }: MemorySamplingView,
): boolean {
  const isOver = window === undefined || now - window.at >= STALL_WINDOW_MS;
  return isOver && reading.stalledUs !== undefined && isNear(thresholds, reading);
}

const isNear = (thresholds: readonly EvictionThreshold[], reading: MemoryReading): boolean =>
  thresholds.some((threshold) => {
    const space = spaceOf(threshold, reading);
    const { signal, value, gracePeriod } = threshold;
    if (space === undefined || gracePeriod !== undefined || !isMemorySignal(signal)) return false;
    return space.available < amountOf(value, space.capacity) * STALL_NEARNESS;
  });

function stalls(
  thresholds: readonly EvictionThreshold[],
  { reading, window, heldUs = 0, now }: MemorySamplingView,
): { readonly stalled: boolean; readonly next: StallWindow | undefined } {
  const { stalledUs } = reading;
  // Stalls count from when little memory is left: until then those of pods at their own limits are not read.
  if (stalledUs === undefined || !isNear(thresholds, reading)) return { stalled: false, next: undefined };
  const next = { at: now, stalledUs, heldUs };
  // A counter that went back is another one.
  if (window === undefined || stalledUs < window.stalledUs) return { stalled: false, next };
  const took = now - window.at;
  if (took < STALL_WINDOW_MS) return { stalled: false, next: window };
  const share = (stalledUs - window.stalledUs - (heldUs - window.heldUs)) / US_PER_MS / took;
  return { stalled: share >= STALL_SHARE, next };
}
