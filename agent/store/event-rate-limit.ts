import type { Clock, MonotonicMs } from "@picolet/protocol/ports.ts";
import type { EventInput } from "../core/store/store-ports.ts";

/** As Kubernetes' EventSourceObjectSpamFilter: 25 at once, and one more every five minutes. */
const OBJECT_RATE: Rate = { burst: 25, refillMs: 5 * 60 * 1000 };
/** Bounds the objects whose rate is known; the least recent one is dropped and starts again. About 100 bytes each. */
const MAX_OBJECTS = 256;
/** The queue of the kubelet's event broadcaster, whose client is limited to a rate. */
const QUEUE_LENGTH = 1000;

interface Rate {
  readonly burst: number;
  readonly refillMs: number;
}

class TokenBucket {
  readonly #rate: Rate;
  #tokens: number;
  #at: MonotonicMs;
  /** Consecutive refusals. */
  refusals = 0;

  constructor(rate: Rate, now: MonotonicMs) {
    this.#rate = rate;
    this.#tokens = rate.burst;
    this.#at = now;
  }

  take(now: MonotonicMs): boolean {
    const { burst, refillMs } = this.#rate;
    this.#tokens = Math.min(burst, this.#tokens + (now - this.#at) / refillMs);
    this.#at = now;
    if (this.#tokens < 1) {
      this.refusals += 1;
      return false;
    }
    this.#tokens -= 1;
    this.refusals = 0;
    return true;
  }
}

export interface NodeEventRate {
  /** `eventRecordQPS`; 0: no limit. */
  readonly perSecond: number;
  /** `eventBurst` */
  readonly burst: number;
}

/** Limits the events, repetitions included, of one object and type, and of the node as a whole. */
export class EventRateLimit {
  readonly #clock: Clock;
  /** By object and type. */
  readonly #objects = new Map<string, TokenBucket>();
  /** Drops the events that the kubelet would drop: those that come while its queue is full. */
  readonly #node: TokenBucket | undefined;

  constructor(clock: Clock, { perSecond, burst }: NodeEventRate) {
    this.#clock = clock;
    const rate = { burst: burst + QUEUE_LENGTH, refillMs: 1000 / perSecond };
    this.#node = perSecond === 0 ? undefined : new TokenBucket(rate, clock.monotonic());
  }

  /** @returns "first" for the first refusal since something was admitted */
  take(event: EventInput): "admitted" | "first" | "refused" {
    const now = this.#clock.monotonic();
    const refusing = [this.#objectOf(event, now), this.#node].find((each) => each?.take(now) === false);
    if (refusing === undefined) return "admitted";
    return refusing.refusals === 1 ? "first" : "refused";
  }

  #objectOf({ regarding: { kind, namespace, name, uid }, type }: EventInput, now: MonotonicMs): TokenBucket {
    const key = `${kind}/${namespace}/${name}/${uid}/${type}`;
    const bucket = this.#objects.get(key) ?? new TokenBucket(OBJECT_RATE, now);
    this.#objects.delete(key);
    this.#objects.set(key, bucket);
    const [leastRecent] = this.#objects.keys();
    if (this.#objects.size > MAX_OBJECTS && leastRecent !== undefined) this.#objects.delete(leastRecent);
    return bucket;
  }
}
