import { type Clock, millis } from "../../protocol/ports.ts";

export interface TokenBucketInit {
  readonly perSecond: number;
  /** As many at once when nothing was taken for a while. */
  readonly burst: number;
}

/** Lets through `perSecond` on average, in the order of asking. Those that wait hold no more than a timer. */
export class TokenBucket {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #creditMs: number;
  /** When the next token would fall due if all that was asked for is given; it may lie back by `burst` tokens at most. */
  #nextMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, { perSecond, burst }: TokenBucketInit) {
    this.#clock = clock;
    this.#intervalMs = 1000 / perSecond;
    this.#creditMs = (burst - 1) * this.#intervalMs;
  }

  async take(signal: AbortSignal): Promise<void> {
    const now = this.#clock.monotonic();
    const due = Math.max(this.#nextMs, now - this.#creditMs);
    this.#nextMs = due + this.#intervalMs;
    if (due > now) await this.#clock.sleep(millis(due - now), signal);
  }
}
