/**
 * The rights of a container's sockets, of all its instances together: by its pod's policy, and by the names that were
 * looked up for it.
 */
import type { NetworkPolicy } from "../network/network-policy.ts";
import type { Transport } from "../network/network-rules.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import type { Endpoint } from "./socket-addresses.ts";
import { networkFailure } from "./socket-errors.ts";

/**
 * Names whose addresses are remembered, the oldest forgotten first; a component that needs one longer looks it up
 * again.
 */
const MAX_NAMES = 64;
/** Bounds the addresses of one name that the component gets. */
export const MAX_ADDRESSES = 32;
/** Look-ups at once; one without an answer keeps its place for as long as the resolver tries, some 10 s. */
const MAX_LOOKUPS = 16;
/**
 * Sockets of one container, those included that still send their last: each is a file descriptor and up to 144 KiB of
 * buffers.
 */
const MAX_SOCKETS = 128;

export class NetworkAccess {
  readonly #policy: NetworkPolicy;
  /** The one looked up last is the last. */
  readonly #addressesByName = new Map<string, ReadonlySet<string>>();
  #sockets = 0;
  #lookups = 0;
  readonly #unused = new WakeListeners();

  constructor(policy: NetworkPolicy) {
    this.#policy = policy;
  }

  /**
   * Takes a socket out of the container's stock.
   * @throws `new-socket-limit`
   * @returns a function that gives it back, once
   */
  takeSocket(): () => void {
    if (this.#sockets >= MAX_SOCKETS) throw networkFailure("new-socket-limit");
    this.#sockets += 1;
    let held = true;
    return () => {
      if (held) this.#sockets -= 1;
      held = false;
      if (this.#sockets === 0) this.#unused.all();
    };
  }

  /** Resolves when none of them is left. */
  async unused(): Promise<void> {
    while (this.#sockets > 0) await new Promise<void>((resolve) => void this.#unused.add(resolve));
  }

  /** @throws `access-denied` when the pod has no such rule at all */
  checkSockets(protocol: Transport): void {
    if (!this.#policy.allowsSockets(protocol)) throw networkFailure("access-denied");
  }

  /** @throws `access-denied` */
  checkConnect(protocol: Transport, remote: Endpoint): void {
    if (!this.mayReach(protocol, remote)) throw networkFailure("access-denied");
  }

  mayReach(protocol: Transport, { address, port }: Endpoint): boolean {
    if (this.#policy.allows({ protocol, host: address, port })) return true;
    for (const [host, addresses] of this.#addressesByName) {
      if (addresses.has(address) && this.#policy.allowsResolved({ protocol, host, port }, address)) return true;
    }
    return false;
  }

  /** A port that the system chooses is for connecting and sending. @throws `access-denied` */
  checkBind(protocol: Transport, { port }: Endpoint): void {
    if (port !== 0 && !this.mayListen(protocol, port)) throw networkFailure("access-denied");
  }

  mayListen(protocol: Transport, port: number): boolean {
    return this.#policy.allowsListen(protocol, port);
  }

  /** @throws `access-denied` */
  checkLookup(name: string): void {
    if (!this.#policy.allowsLookup(name)) throw networkFailure("access-denied");
  }

  /** @throws `temporary-resolver-failure` when too many are under way @returns runs when one has ended */
  takeLookup(): () => void {
    if (this.#lookups >= MAX_LOOKUPS) throw networkFailure("temporary-resolver-failure");
    this.#lookups += 1;
    return () => {
      this.#lookups -= 1;
    };
  }

  /** @param addresses as `endpointOf` writes them. */
  remember(name: string, addresses: readonly string[]): void {
    this.#addressesByName.delete(name);
    this.#addressesByName.set(name, new Set(addresses));
    const [oldest] = this.#addressesByName.keys();
    if (this.#addressesByName.size > MAX_NAMES && oldest !== undefined) this.#addressesByName.delete(oldest);
  }
}
