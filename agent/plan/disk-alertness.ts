/** When to look at file systems again. Pure. */
import { type Millis, type MonotonicMs, millis, seconds } from "../../protocol/ports.ts";
import { type Observations, quantityOfThreshold } from "./eviction-signals.ts";
import type { EvictionThreshold } from "./eviction-thresholds.ts";

/** The kubelet's monitoring interval. */
export const DISK_LOOK_LONGEST = seconds(10);
/** An SD card writes some 20 MB a second; a look asks the runtime where its images are, some milliseconds. */
export const DISK_LOOK_SHORTEST = seconds(1);

export interface DisksAt {
  readonly observations: Observations;
  readonly at: MonotonicMs;
}

/** Half of the time that is left until a threshold is met, if disks go on filling as they did between the two looks. */
export function diskLookIn(
  thresholds: readonly EvictionThreshold[],
  before: DisksAt | undefined,
  now: DisksAt | undefined,
): Millis {
  if (before === undefined || now === undefined || now.at <= before.at) return DISK_LOOK_LONGEST;
  let soonest: number = DISK_LOOK_LONGEST;
  for (const threshold of thresholds) {
    const [was, is] = [before, now].map(({ observations }) => observations.get(threshold.signal));
    if (was === undefined || is === undefined || was.available <= is.available) continue;
    const perMs = (was.available - is.available) / (now.at - before.at);
    soonest = Math.min(soonest, (is.available - quantityOfThreshold(threshold, is)) / perMs / 2);
  }
  return millis(Math.max(DISK_LOOK_SHORTEST, Math.floor(soonest)));
}
