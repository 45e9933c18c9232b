/** The state of the eviction manager between samples, and its transition with each sample. Pure. */
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import {
  conditionOf,
  isMemorySignal,
  type Observations,
  type PressureType,
  quantityOfThreshold,
} from "./eviction-signals.ts";
import { amountOf, type EvictionThreshold } from "./eviction-thresholds.ts";

export interface EvictionState {
  /** Thresholds that were due at the last sample: they stay until their minimum reclaim is free too. */
  readonly due: readonly EvictionThreshold[];
  /** Time since which each met threshold is met. */
  readonly metSince: ReadonlyMap<EvictionThreshold, MonotonicMs>;
  /** When a condition was last true by what was observed. */
  readonly lastSeen: ReadonlyMap<PressureType, MonotonicMs>;
}

export const NO_EVICTION: EvictionState = { due: [], metSince: new Map(), lastSeen: new Map() };

export interface EvictionVerdict {
  readonly state: EvictionState;
  /** Those that are in force, with those that were so within the transition period. */
  readonly conditions: ReadonlySet<PressureType>;
  /** Thresholds for which pods must be evicted now, most urgent first: memory before all others. */
  readonly due: readonly EvictionThreshold[];
  /** When a grace period or a transition period ends, if nothing else happens; undefined: none runs. */
  readonly wakeIn: Millis | undefined;
}

export interface EvictionRules {
  /** The same list for all samples: its members are compared by identity. */
  readonly thresholds: readonly EvictionThreshold[];
  readonly transitionPeriod: Millis;
}

/** @param withReclaim whether the minimum reclaim has to be free beyond the threshold */
export function isMet(threshold: EvictionThreshold, observations: Observations, withReclaim: boolean): boolean {
  const observed = observations.get(threshold.signal);
  if (observed === undefined) return false;
  const { minReclaim } = threshold;
  const reclaim = withReclaim && minReclaim !== undefined ? amountOf(minReclaim, observed.capacity) : 0;
  return quantityOfThreshold(threshold, observed) + reclaim > observed.available;
}

/**
 * A threshold whose signal cannot be observed now stays as it was: neither is a pod evicted for it, nor is the node
 * said to have recovered.
 */
export function judgeEviction(
  { thresholds, transitionPeriod }: EvictionRules,
  state: EvictionState,
  observations: Observations,
  now: MonotonicMs,
): EvictionVerdict {
  const isUnknown = ({ signal }: EvictionThreshold): boolean => !observations.has(signal);
  const wasDue = new Set(state.due);
  const met = thresholds.filter((each) =>
    isUnknown(each) ? state.metSince.has(each) : isMet(each, observations, wasDue.has(each)),
  );
  const metSince = new Map(met.map((each) => [each, state.metSince.get(each) ?? now]));
  const lastSeen = new Map(state.lastSeen);
  for (const { signal } of met) lastSeen.set(conditionOf(signal), now);
  for (const [condition, at] of lastSeen) if (now - at >= transitionPeriod && at !== now) lastSeen.delete(condition);
  const due = met.filter((each) => now - (metSince.get(each) ?? now) >= (each.gracePeriod ?? 0));
  const actionable = due.filter((each) => !isUnknown(each)).sort(byUrgency);
  const pending = [
    ...met.filter((each) => !due.includes(each)).map((each) => (metSince.get(each) ?? now) + (each.gracePeriod ?? 0)),
    ...[...lastSeen.values()].filter((at) => at !== now).map((at) => at + transitionPeriod),
  ];
  const next = Math.min(...pending);
  return {
    state: { due, metSince, lastSeen },
    conditions: new Set(lastSeen.keys()),
    due: actionable,
    wakeIn: Number.isFinite(next) ? millis(Math.max(0, next - now)) : undefined,
  };
}

/** Stable: of equals the one that stands first in the configuration. Hard before soft, for it may end a pod at once. */
function byUrgency(left: EvictionThreshold, right: EvictionThreshold): number {
  const memory = Number(isMemorySignal(right.signal)) - Number(isMemorySignal(left.signal));
  return memory || Number(right.gracePeriod === undefined) - Number(left.gracePeriod === undefined);
}
