import type { Clock, MonotonicMs } from "../../protocol/ports.ts";
import { millis } from "../../protocol/ports.ts";

export interface TokenBucketInit {
  /** A second; 0: no limit. */
  readonly rate: number;
  /** At once, after a pause. */
  readonly burst: number;
}

/** The kubelet's `registryPullQPS` and `registryBurst`; who comes too soon waits for its turn. */
export class TokenBucket {
  readonly #clock: Clock;
  readonly #init: TokenBucketInit;
  /** Below 0: as many wait. */
  #tokens: number;
  #at: MonotonicMs;

  constructor(components: { readonly clock: Clock }, init: TokenBucketInit) {
    this.#clock = components.clock;
    this.#init = init;
    this.#tokens = Math.max(1, init.burst);
    this.#at = components.clock.monotonic();
  }

  async take(signal: AbortSignal): Promise<void> {
    const { rate, burst } = this.#init;
    if (rate <= 0) return;
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(Math.max(1, burst), this.#tokens + ((now - this.#at) * rate) / 1000) - 1;
    this.#at = now;
    if (this.#tokens >= 0) return;
    try {
      await this.#clock.sleep(millis((-this.#tokens / rate) * 1000), signal);
    } catch (error) {
      this.#tokens += 1;
      throw error;
    }
  }
}
