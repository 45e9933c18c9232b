import type { Clock, Millis, MonotonicMs } from "../ports.ts";
import { millis } from "../ports.ts";

/** How long a transfer has not come on at a least rate, however many single bytes still come. */
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

  /** @param bytes that there are by now; fewer than before: it began again, which is no progress */
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
