/** Schedules the next sample of the file systems. Pure. */
import { type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { type Observations, quantityOfThreshold } from "./eviction-signals.ts";
import type { EvictionThreshold } from "./eviction-thresholds.ts";

/** The kubelet's monitoring interval. */
export const DISK_SAMPLE_INTERVAL = seconds(10);
/** Where nothing could fill the disks within a minute. */
export const DISK_SAMPLE_MAX_INTERVAL = seconds(60);
/** An SD card writes some 20 MB a second; a sample asks the runtime for its image folder, some milliseconds. */
export const DISK_SAMPLE_MIN_INTERVAL = seconds(1);
/**
 * No disk of a board takes more: an NVMe card writes 1 GB a second. So the usual interval is exceeded with more than 10
 * GB left.
 */
const FILL_RATE_BYTES_PER_MS = 1_000_000;
/** A file system in memory makes some 100,000 files a second. */
const FILL_RATE_INODES_PER_MS = 100;

export interface DiskSample {
  readonly observations: Observations;
  readonly at: MonotonicMs;
}

/** Half of the time that is left until a threshold is met, at the rate between the last two samples. */
export function nextDiskSampleIn(
  thresholds: readonly EvictionThreshold[],
  before: DiskSample | undefined,
  now: DiskSample | undefined,
): Millis {
  if (before === undefined || now === undefined || now.at <= before.at) return DISK_SAMPLE_INTERVAL;
  let soonest = Math.max(DISK_SAMPLE_INTERVAL, Math.min(DISK_SAMPLE_MAX_INTERVAL, soonestFull(thresholds, now)));
  for (const threshold of thresholds) {
    const [was, is] = [before, now].map(({ observations }) => observations.get(threshold.signal));
    if (was === undefined || is === undefined || was.available <= is.available) continue;
    const perMs = (was.available - is.available) / (now.at - before.at);
    soonest = Math.min(soonest, (is.available - quantityOfThreshold(threshold, is)) / perMs / 2);
  }
  return millis(Math.max(DISK_SAMPLE_MIN_INTERVAL, Math.floor(soonest)));
}

/** Milliseconds until a threshold could be met. File systems that do not count inodes have no thresholds of them. */
function soonestFull(thresholds: readonly EvictionThreshold[], { observations }: DiskSample): number {
  const times = thresholds.flatMap((threshold) => {
    const seen = observations.get(threshold.signal);
    if (seen === undefined) return [];
    const rate = threshold.signal.endsWith(".inodesFree") ? FILL_RATE_INODES_PER_MS : FILL_RATE_BYTES_PER_MS;
    return [(seen.available - quantityOfThreshold(threshold, seen)) / rate];
  });
  return times.length === 0 ? DISK_SAMPLE_INTERVAL : Math.min(...times);
}
