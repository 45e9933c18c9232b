import { isIPv6 } from "node:net";
import type { Clock } from "@picolet/protocol/ports.ts";
import { addressBytes } from "../address-bytes.ts";
import { RateLimits } from "./rate-limits.ts";

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

/** A host with an IPv6 address has 2^64 of them. An IPv4 address as an IPv6 socket shows it is IPv4. */
export function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  return Buffer.from(addressBytes(address).subarray(0, 8)).toString("hex");
}
