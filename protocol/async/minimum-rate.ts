import type { Clock, Millis, MonotonicMs } from "../ports.ts";
import { millis } from "../ports.ts";

/** Measures for how long a transfer has been slower than a minimum rate, even if single bytes still arrive. */
export class MinimumRate {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #bytesPerSecond: number;
  #bytes = 0;
  #at: MonotonicMs;

  constructor(clock: Pick<Clock, "monotonic">, bytesPerSecond: number) {
    this.#clock = clock;
    this.#bytesPerSecond = bytesPerSecond;
    this.#at = clock.monotonic();
  }

  /** @param bytes received so far. Fewer than before: the transfer began again, which is no progress. */
  update(bytes: number): void {
    const now = this.#clock.monotonic();
    const came = bytes - this.#bytes;
    if (came <= 0 || came < ((now - this.#at) / 1000) * this.#bytesPerSecond) return;
    this.#bytes = bytes;
    this.#at = now;
  }

  get idle(): Millis {
    return millis(this.#clock.monotonic() - this.#at);
  }
}
