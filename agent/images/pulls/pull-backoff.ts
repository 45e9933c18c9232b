import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Clock, MonotonicMs, Random } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";

/** The kubelet's own, with jitter so that a fleet that lost its registry does not return to it in step. */
const DELAY: BackoffPolicy = { first: seconds(10), max: seconds(300), jitter: [1, 1.1] };
/** Images that failed lately. Beyond that the one that failed longest ago is forgotten, and tried again at once. */
const MAX_IMAGES = 256;

export interface PullFailure {
  /** The message with the kubelet's reason. */
  readonly message: string;
  /** True when no registry answered. */
  readonly isUnreachable: boolean;
}

interface Failure extends PullFailure {
  readonly at: MonotonicMs;
  /** In a row. */
  readonly failures: number;
  readonly until: MonotonicMs;
}

/** The delay after a failed pull: 10 s, doubled by each failure, up to 300 s. */
export class PullBackoff {
  readonly #clock: Clock;
  readonly #random: Random;
  /** In the order of the failures. */
  readonly #failures = new Map<string, Failure>();

  constructor(components: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = components.clock;
    this.#random = components.random;
  }

  /** @returns the last failure while its delay lasts */
  waiting(key: string): PullFailure | undefined {
    const failure = this.#failures.get(key);
    return failure !== undefined && this.#clock.monotonic() < failure.until ? failure : undefined;
  }

  failed(key: string, failure: PullFailure): void {
    const now = this.#clock.monotonic();
    const previous = this.#failures.get(key);
    // As in the kubelet, an entry without failures for twice the longest delay starts again.
    const fresh = previous === undefined || now - previous.at > 2 * DELAY.max;
    const failures = fresh ? 1 : previous.failures + 1;
    const until = (now + backoffDelay(DELAY, failures, this.#random.next())) as MonotonicMs;
    this.#failures.delete(key);
    this.#failures.set(key, { ...failure, at: now, failures, until });
    const [oldest] = this.#failures.keys();
    if (this.#failures.size > MAX_IMAGES && oldest !== undefined) this.#failures.delete(oldest);
  }

  succeeded(key: string): void {
    this.#failures.delete(key);
  }
}
