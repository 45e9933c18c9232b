import { backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { type Clock, type Millis, type MonotonicMs, millis, type Random, seconds } from "@picolet/protocol/ports.ts";

const FIRST_DELAY = seconds(1);

/** The wait between failed attempts: doubled each time up to a bound, with jitter. */
export class AttemptDelays {
  readonly #clock: Clock;
  readonly #random: Random;
  #notBefore = 0 as MonotonicMs;
  #failures = 0;

  constructor(components: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = components.clock;
    this.#random = components.random;
  }

  /** @param forLong it was refused: an operator must act first */
  failed(max: Millis, forLong = false): void {
    this.#failures += 1;
    const policy = { first: forLong ? max : FIRST_DELAY, max, jitter: EQUAL_JITTER };
    this.#notBefore = (this.#clock.monotonic() +
      backoffDelay(policy, this.#failures, this.#random.next())) as MonotonicMs;
  }

  /** The next failure is the first one again. */
  forget(): void {
    this.#failures = 0;
  }

  /** The next attempt may be at once. */
  reset(): void {
    this.#failures = 0;
    this.#notBefore = 0 as MonotonicMs;
  }

  untilNext(): Millis {
    return millis(Math.max(0, this.#notBefore - this.#clock.monotonic()));
  }
}
