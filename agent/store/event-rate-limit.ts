import type { Clock } from "../../protocol/ports.ts";
import type { ObjectReference } from "../core/store.ts";

/** As Kubernetes' EventSourceObjectSpamFilter: 25 at once, and one more every five minutes. */
const BURST = 25;
const REFILL_MS = 5 * 60 * 1000;
/** Objects of which the rate is known; the least recent one starts anew. Some 100 bytes each. */
const MAX_OBJECTS = 256;

interface Bucket {
  tokens: number;
  /** Monotonic, of `tokens`. */
  at: number;
  refusals: number;
}

/** How many new events one object may have; repetitions of one event are not new. */
export class EventRateLimit {
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  admits(object: ObjectReference): boolean {
    const bucket = this.#bucket(object);
    const now = this.#clock.monotonic();
    bucket.tokens = Math.min(BURST, bucket.tokens + (now - bucket.at) / REFILL_MS);
    bucket.at = now;
    if (bucket.tokens < 1) {
      bucket.refusals += 1;
      return false;
    }
    bucket.tokens -= 1;
    bucket.refusals = 0;
    return true;
  }

  /** Since one was admitted. */
  isFirstRefusal(object: ObjectReference): boolean {
    return this.#bucket(object).refusals === 1;
  }

  #bucket({ kind, namespace, name, uid }: ObjectReference): Bucket {
    const key = `${kind}/${namespace}/${name}/${uid}`;
    const bucket = this.#buckets.get(key) ?? { tokens: BURST, at: this.#clock.monotonic(), refusals: 0 };
    this.#buckets.delete(key);
    this.#buckets.set(key, bucket);
    const [leastRecent] = this.#buckets.keys();
    if (this.#buckets.size > MAX_OBJECTS && leastRecent !== undefined) this.#buckets.delete(leastRecent);
    return bucket;
  }
}
