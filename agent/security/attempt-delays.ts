import { type Clock, type Millis, type MonotonicMs, millis, type Random } from "@picolet/protocol/ports.ts";

const FIRST_DELAY_MS = 1000;

/** How long to wait between attempts that fail: twice as long each time, up to a bound, with jitter. */
export class AttemptDelays {
  readonly #clock: Clock;
  readonly #random: Random;
  #notBefore = 0 as MonotonicMs;
  #failures = 0;

  constructor(components: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = components.clock;
    this.#random = components.random;
  }

  /** @param forLong it was refused: somebody has to do something about it first */
  failed(maxMs: number, forLong = false): void {
    const delay = forLong ? maxMs : Math.min(FIRST_DELAY_MS * 2 ** Math.min(this.#failures, 20), maxMs);
    this.#failures += 1;
    this.#notBefore = (this.#clock.monotonic() + delay * (0.5 + 0.5 * this.#random.next())) as MonotonicMs;
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
