import type { Clock } from "../ports.ts";

export interface Rate {
  /** The amount that a key may take at once after a pause. */
  readonly burst: number;
  readonly perSecond: number;
}

interface Bucket {
  readonly left: number;
  readonly atMs: number;
}

/** 100 bytes each. Beyond it the key that was used longest ago starts again with a full bucket. */
const MAX_KEYS = 16_384;

/** One token bucket for each key: a user, a node, a network. Refuses at once, and never waits. */
export class RateLimits {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #rate: Rate;
  readonly #maxKeys: number;
  /** In the order of the last use. */
  readonly #buckets = new Map<string, Bucket>();

  /** @param maxKeys default: `MAX_KEYS` */
  constructor(components: { readonly clock: Pick<Clock, "monotonic"> }, rate: Rate, maxKeys = MAX_KEYS) {
    this.#clock = components.clock;
    this.#rate = rate;
    this.#maxKeys = maxKeys;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** The amount left for `key`; below 0 when it has spent more than it had. */
  left(key: string): number {
    const { burst, perSecond } = this.#rate;
    const bucket = this.#buckets.get(key);
    if (bucket === undefined) return burst;
    return Math.min(burst, bucket.left + ((this.#clock.monotonic() - bucket.atMs) / 1000) * perSecond);
  }

  /** Takes `cost` whether it is there or not. */
  spend(key: string, cost = 1, floor = Number.NEGATIVE_INFINITY): void {
    const left = Math.max(floor, this.left(key) - cost);
    this.#buckets.delete(key);
    this.#buckets.set(key, { left, atMs: this.#clock.monotonic() });
    if (this.#buckets.size <= this.#maxKeys) return;
    const [oldest] = this.#buckets.keys();
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }

  /**
   * Takes `cost` if it is there. What costs more than the burst is let through by a full bucket, and is paid off
   * afterwards.
   * @returns 0, or, with nothing taken, the milliseconds until it would be there
   */
  take(key: string, cost = 1): number {
    const missing = Math.min(cost, this.#rate.burst) - this.left(key);
    // A remainder of the arithmetic is no reason to wait.
    if (missing > 1e-9) return Math.max(1, Math.ceil((missing / this.#rate.perSecond) * 1000));
    this.spend(key, cost);
    return 0;
  }
}
