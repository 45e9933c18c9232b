import { isIPv6 } from "node:net";
import type { Clock } from "../../protocol/ports.ts";
import { addressBytes } from "./ip-address.ts";

/** A rack of boards behind one address that come up together join at once; after that one every two seconds. */
const BURST = 200;
const PER_SECOND = 0.5;
/** 100 bytes each. Beyond that the address that was heard of longest ago starts afresh. */
const MAX_ADDRESSES = 16_384;

interface Bucket {
  readonly left: number;
  readonly atMs: number;
}

/** How many attempts of one address are looked at. */
export class AddressLimits {
  readonly #clock: Clock;
  /** In the order of the last attempt. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** @param cost failed attempts cost more: `take` again. @returns whether there was anything left */
  take(address: string, cost = 1): boolean {
    const key = networkOf(address);
    const now = this.#clock.monotonic();
    const old = this.#buckets.get(key) ?? { left: BURST, atMs: now };
    const left = Math.min(BURST, old.left + ((now - old.atMs) / 1000) * PER_SECOND);
    this.#buckets.delete(key);
    this.#buckets.set(key, { left: Math.max(0, left - cost), atMs: now });
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size > MAX_ADDRESSES && oldest !== undefined) this.#buckets.delete(oldest);
    return left >= 1;
  }
}

/** Whoever has an IPv6 address has 2^64 of them. IPv4 as it looks through an IPv6 socket is IPv4. */
function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  return Buffer.from(addressBytes(address).subarray(0, 8)).toString("hex");
}
