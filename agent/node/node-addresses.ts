import { networkInterfaces } from "node:os";
import { type Clock, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";

/** Bounds the age of the list; reading it for every status would cost more than it is worth. */
const MAX_AGE = seconds(30);

/** The node's own addresses, IPv4 first, as `status.hostIPs` shows them. Link-local ones are left out. */
export class NodeAddresses {
  readonly #clock: Clock;
  #addresses: readonly string[] = [];
  #readAt: MonotonicMs | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get current(): readonly string[] {
    const now = this.#clock.monotonic();
    if (this.#readAt === undefined || now - this.#readAt > MAX_AGE) {
      this.#addresses = readAddresses();
      this.#readAt = now;
    }
    return this.#addresses;
  }
}

/**
 * One of each family: the first that an interface has, in the order of the kernel, cards before the bridges made later.
 */
function readAddresses(): readonly string[] {
  const outside = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith("fe80:") && !address.startsWith("169.254."));
  const first = (family: string): readonly string[] => {
    const found = outside.find((each) => each.family === family);
    return found === undefined ? [] : [found.address];
  };
  return [...first("IPv4"), ...first("IPv6")];
}
