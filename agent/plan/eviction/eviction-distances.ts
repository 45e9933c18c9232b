import { type Observations, quantityOfThreshold } from "./eviction-signals.ts";
import type { EvictionSignal, EvictionThreshold } from "./eviction-thresholds.ts";

/**
 * @returns for each signal with a hard threshold what is left until it is met, in bytes, inodes or processes; 0: it is
 *   met. A signal that could not be observed is missing.
 */
export function evictionDistances(
  thresholds: readonly EvictionThreshold[],
  observations: Observations,
): ReadonlyMap<EvictionSignal, number> {
  const distances = new Map<EvictionSignal, number>();
  for (const threshold of thresholds) {
    const observed = observations.get(threshold.signal);
    if (observed === undefined || threshold.gracePeriod !== undefined) continue;
    const distance = Math.max(0, observed.available - quantityOfThreshold(threshold, observed));
    distances.set(threshold.signal, Math.min(distance, distances.get(threshold.signal) ?? Infinity));
  }
  return distances;
}
