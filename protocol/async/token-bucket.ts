import { type Clock, type MonotonicMs, millis } from "../ports.ts";

export interface TokenBucketInit {
  /** A second; 0: no limit. */
  readonly rate: number;
  /** The tokens that can be taken at once after a pause. */
  readonly burst: number;
}

/**
 * Lets through so many a second, in the order of asking; a caller that comes too soon waits for its turn, which costs a
 * timer.
 */
export class TokenBucket {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  readonly #rate: number;
  readonly #burst: number;
  /** Below 0: as many wait. */
  #tokens: number;
  #at: MonotonicMs;

  constructor(components: { readonly clock: Pick<Clock, "monotonic" | "sleep"> }, { rate, burst }: TokenBucketInit) {
    this.#clock = components.clock;
    this.#rate = rate;
    this.#burst = Math.max(1, burst);
    this.#tokens = this.#burst;
    this.#at = components.clock.monotonic();
  }

  /** True when no token is missing. */
  get isFull(): boolean {
    this.#refill();
    return this.#tokens === this.#burst;
  }

  /** @throws `cancelled`; the turn is another one's then */
  async take(signal: AbortSignal): Promise<void> {
    if (this.#rate <= 0) return;
    this.#refill();
    this.#tokens -= 1;
    if (this.#tokens >= 0) return;
    try {
      await this.#clock.sleep(millis((-this.#tokens / this.#rate) * 1000), signal);
    } catch (error) {
      this.#tokens += 1;
      throw error;
    }
  }

  #refill(): void {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#at) * this.#rate) / 1000);
    this.#at = now;
  }
}
