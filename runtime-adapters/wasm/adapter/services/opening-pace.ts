import { TokenBucket } from "@picolet/protocol/async/token-bucket.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

/** A component opens what its pod names when it begins, a dozen lines or so. */
const BURST = 32;
/**
 * A second, from then on. Each starts a process of the node's, outside of the pod's limits, which takes a board's core
 * for a tenth of a second and more: a component that opens in a loop what is not there takes no more of it than a
 * twentieth.
 */
const RATE = 0.5;
/** Containers remembered; those that have all of theirs again are forgotten first. */
const MAX_CONTAINERS = 256;

/** How often a container may have something opened: who asks for more waits. */
export class OpeningPace {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  /** In the order of the last opening. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(clock: Pick<Clock, "monotonic" | "sleep">) {
    this.#clock = clock;
  }

  /** @throws `cancelled` */
  async wait(containerId: string, signal: AbortSignal): Promise<void> {
    const known = this.#buckets.get(containerId);
    const bucket = known ?? new TokenBucket({ clock: this.#clock }, { rate: RATE, burst: BURST });
    this.#buckets.delete(containerId);
    this.#forget();
    this.#buckets.set(containerId, bucket);
    await bucket.take(signal);
  }

  #forget(): void {
    if (this.#buckets.size < MAX_CONTAINERS) return;
    for (const [id, bucket] of this.#buckets) if (bucket.isFull) this.#buckets.delete(id);
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size >= MAX_CONTAINERS && oldest !== undefined) this.#buckets.delete(oldest);
  }
}
