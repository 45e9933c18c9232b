import { networkOf } from "@picolet/kubelet-api/fairness/network-of.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

/** A rack of boards behind one address that come up together join at once; after that one every two seconds. */
export const JOIN_ATTEMPTS = { burst: 200, perSecond: 0.5 };

/** Bounds attempts by address. */
export class AddressLimits {
  readonly #limits: RateLimits;

  constructor(components: { readonly clock: Pick<Clock, "monotonic"> }) {
    this.#limits = new RateLimits(components, JOIN_ATTEMPTS);
  }

  get size(): number {
    return this.#limits.size;
  }

  /** @param cost failed attempts cost more: `take` again. @returns whether there was anything left */
  take(address: string, cost = 1): boolean {
    const network = networkOf(address);
    const hasAny = this.#limits.left(network) >= 1;
    // An attempt that is refused counts too, but no debt is kept.
    this.#limits.spend(network, cost, 0);
    return hasAny;
  }
}
