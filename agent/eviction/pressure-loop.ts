import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { Observations, PressureType } from "../plan/eviction/eviction-signals.ts";
import { type EvictionState, judgeEviction, NO_EVICTION } from "../plan/eviction/eviction-state.ts";
import type { EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";

export interface PressureLoopComponents {
  /** @throws `cancelled` alone; what cannot be seen is missing in it */
  readonly observe: (signal: AbortSignal) => Promise<Observations>;
  readonly thresholds: () => readonly EvictionThreshold[];
  readonly conditionsChanged: () => void;
  /** @returns whether anything was done: if not, nothing will have changed for a while. @throws `cancelled` alone */
  readonly relieve: (due: EvictionThreshold, observations: Observations, signal: AbortSignal) => Promise<boolean>;
  /** @returns whether a measure is possible now. Called while none was, so it must be cheap. */
  readonly canRelieve: (due: EvictionThreshold) => boolean;
  /** The interval to the next sample unless something wakes the loop; called after each sample. */
  readonly interval: () => Millis;
  readonly clock: Clock;
  readonly log: Log;
}

export interface PressureLoopInit {
  readonly transitionPeriod: Millis;
}

/** The kubelet tries again after its monitoring interval. */
const FRUITLESS = seconds(10);

/**
 * Samples, judges the thresholds, and starts one measure. Each kind of resource that takes its own time to sample has a
 * loop.
 */
export class PressureLoop {
  readonly #components: PressureLoopComponents;
  readonly #init: PressureLoopInit;
  readonly #alarm: Alarm;
  #state: EvictionState = NO_EVICTION;
  #conditions: ReadonlySet<PressureType> = new Set();
  #fruitlessUntil = 0 as MonotonicMs;
  /** The signal of a measure for a soft threshold; a hard threshold aborts it. */
  #patience: JoinedSignal | undefined;
  #urged: EvictionThreshold | undefined;

  constructor(components: PressureLoopComponents, init: PressureLoopInit) {
    this.#components = components;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
  }

  get conditions(): ReadonlySet<PressureType> {
    return this.#conditions;
  }

  /** No threshold is met, and none was met lately. */
  get isCalm(): boolean {
    return this.#conditions.size === 0 && this.#state.metSince.size === 0;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { observe, interval } = this.#components;
    while (!signal.aborted) {
      const observations = await observe(signal);
      const { due, wakeIn } = this.#judge(observations);
      const urged = this.#urged;
      this.#urged = undefined;
      const first = due ?? urged;
      if (first !== undefined && !this.#isFruitless(first)) await this.#relieve(first, observations, signal);
      const longest = interval();
      this.#alarm.set(millis(Math.min(longest, wakeIn ?? longest)));
      await this.#alarm.ring(signal);
    }
  }

  /**
   * Reports thresholds that another sample found crossed. A threshold that was crossed before is waited for: it has its
   * own time.
   */
  crossed(thresholds: readonly EvictionThreshold[]): void {
    const isNews = thresholds.some(
      (each) => (!this.#state.metSince.has(each) || this.#state.due.includes(each)) && !this.#isFruitless(each),
    );
    if (!isNews) return;
    if (thresholds.some(({ gracePeriod }) => gracePeriod === undefined)) this.#patience?.abort();
    this.#alarm.set(millis(0));
  }

  /**
   * As if this threshold were met, once.
   * @returns false while no measure helps
   */
  urge(threshold: EvictionThreshold): boolean {
    if (this.#isFruitless(threshold)) return false;
    this.#patience?.abort();
    this.#urged = threshold;
    this.#alarm.set(millis(0));
    return true;
  }

  #isFruitless(due: EvictionThreshold): boolean {
    const { clock, canRelieve } = this.#components;
    return clock.monotonic() < this.#fruitlessUntil && !canRelieve(due);
  }

  async #relieve(due: EvictionThreshold, observations: Observations, signal: AbortSignal): Promise<void> {
    const { relieve, clock } = this.#components;
    using patience = joinSignals(signal);
    if (due.gracePeriod !== undefined) this.#patience = patience;
    try {
      const isDone = await relieve(due, observations, patience.signal);
      if (isDone) this.#alarm.set(millis(0));
      else this.#fruitlessUntil = (clock.monotonic() + FRUITLESS) as MonotonicMs;
    } catch (error) {
      // A hard threshold has been met meanwhile.
      if (signal.aborted || !patience.signal.aborted || !isCancelled(error)) throw error;
    } finally {
      this.#patience = undefined;
    }
  }

  #judge(observations: Observations): {
    readonly due: EvictionThreshold | undefined;
    readonly wakeIn: Millis | undefined;
  } {
    const { clock, log, thresholds, conditionsChanged } = this.#components;
    const before = this.#state;
    const rules = { thresholds: thresholds(), transitionPeriod: this.#init.transitionPeriod };
    const { state, conditions, due, wakeIn } = judgeEviction(rules, before, observations, clock.monotonic());
    this.#state = state;
    for (const threshold of state.metSince.keys()) {
      if (before.metSince.has(threshold)) continue;
      const { signal, value, gracePeriod } = threshold;
      log.warn("an eviction threshold is met", { signal, value: value.text, gracePeriodMs: gracePeriod ?? 0 });
    }
    const isSame =
      conditions.size === this.#conditions.size && [...conditions].every((each) => this.#conditions.has(each));
    this.#conditions = conditions;
    if (!isSame) conditionsChanged();
    return { due: due[0], wakeIn };
  }
}
