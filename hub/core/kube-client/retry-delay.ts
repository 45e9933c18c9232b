import { type Millis, millis, type Random } from "@picolet/protocol/ports.ts";

export interface RetryDelayInit {
  readonly first: Millis;
  readonly most: Millis;
}

/** Doubling waits with full jitter, never less than half of `first`, so that nothing spins. */
export class RetryDelay {
  readonly #random: Random;
  readonly #init: RetryDelayInit;
  #failures = 0;

  constructor(random: Random, init: RetryDelayInit) {
    this.#random = random;
    this.#init = init;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Of the failure that has just been. */
  next(): Millis {
    const { first, most } = this.#init;
    const ceiling = Math.min(most, first * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    return millis(Math.max(first / 2, ceiling * this.#random.next()));
  }

  reset(): void {
    this.#failures = 0;
  }
}
