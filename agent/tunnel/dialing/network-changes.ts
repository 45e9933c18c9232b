import { readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";

/** Changes of this machine's network that affect connections. */
export interface NetworkChanges {
  /** Resolves when routes or addresses have become other than they were at the call. @throws `cancelled` */
  changed(signal: AbortSignal): Promise<void>;
  /** Resolves when `address` is no longer one of this machine's. @throws `cancelled` */
  lost(address: string, signal: AbortSignal): Promise<void>;
}

/**
 * Interval without a session. Node has no netlink; a check costs 0.1 ms on a fast machine and some 0.5 ms on a small
 * board: 0.02 % of a core, and a tenth of that during a session. A user who plugs in a cable does not notice 3 s.
 */
const LOOK_INTERVAL = seconds(3);
/** With a session: a third of the default heartbeat, which finds the same a little later. */
const ADDRESS_INTERVAL = seconds(10);

/** Flag RTF_GATEWAY apart, a default route is one with destination 0 (proc(5), /proc/net/route). */
const IPV4_DEFAULT = "00000000";
const IPV6_DEFAULT = `${"0".repeat(32)} 00`;

/** Interfaces that come and go with pods. */
const OF_PODS = /^(?:veth|cali|lxc|tap)/;

/** Reads /proc and the interfaces' addresses every few seconds, only while a caller waits. */
export class SystemNetworkChanges implements NetworkChanges {
  readonly #clock: Clock;
  readonly #fingerprint: () => string;

  constructor(clock: Clock, fingerprint: () => string = networkFingerprint) {
    this.#clock = clock;
    this.#fingerprint = fingerprint;
  }

  async changed(signal: AbortSignal): Promise<void> {
    const before = this.#fingerprint();
    do await this.#clock.sleep(LOOK_INTERVAL, signal);
    while (this.#fingerprint() === before);
  }

  async lost(address: string, signal: AbortSignal): Promise<void> {
    do await this.#clock.sleep(ADDRESS_INTERVAL, signal);
    while (hasAddress(address));
  }
}

/** An IPv4 address may come as the kernel shows it on an IPv6 socket: `::ffff:10.0.0.1`. */
function hasAddress(address: string): boolean {
  const plain = address.replace(/^::ffff:/, "").replace(/%.*$/, "");
  if (plain === "") return true;
  // Node makes 1.8 KB of each interface, and every pod has one.
  const routes = plain.includes(":") ? "" : readProc("fib_trie");
  return routes === "" ? isOfInterface(plain) : isLocalIn(routes, plain);
}

/** True when the address is one of the machine's own in the text of /proc/net/fib_trie. Exported for its tests. */
export function isLocalIn(trie: string, address: string): boolean {
  const leaf = `|-- ${address}\n`;
  for (let at = trie.indexOf(leaf); at >= 0; at = trie.indexOf(leaf, at + 1)) {
    const local = trie.indexOf("/32 host LOCAL", at);
    const next = trie.indexOf("-- ", at + leaf.length);
    if (local >= 0 && (next < 0 || local < next)) return true;
  }
  return false;
}

function isOfInterface(plain: string): boolean {
  return Object.values(networkInterfaces()).some((each) => each?.some((one) => one.address === plain));
}

/** Default routes, and the addresses by which anything outside could be reached. */
export function networkFingerprint(): string {
  const addresses = Object.entries(networkInterfaces())
    .filter(([name]) => !OF_PODS.test(name))
    .flatMap(([name, each]) => (each ?? []).map(({ address, internal }) => ({ name, address, internal })))
    .filter(({ address, internal }) => !internal && !address.startsWith("fe80:"))
    .map(({ name, address }) => `${name} ${address}`);
  return [...defaultRoutes(readProc("route"), readProc("ipv6_route")), ...addresses].sort().join("\n");
}

/** `eth0 <gateway>` for each default route of /proc/net/route and /proc/net/ipv6_route. Exported for its tests. */
export function defaultRoutes(ipv4: string, ipv6: string): string[] {
  const routes: string[] = [];
  for (const line of ipv4.split("\n").slice(1)) {
    const [name = "", destination, gateway, , , , , mask] = line.split("\t");
    if (destination === IPV4_DEFAULT && mask === IPV4_DEFAULT) routes.push(`${name} ${gateway}`);
  }
  for (const line of ipv6.split("\n")) {
    const fields = line.split(/\s+/);
    // The kernel always keeps one on lo that refuses.
    if (line.startsWith(IPV6_DEFAULT) && fields[9] !== "lo") routes.push(`${fields[9]} ${fields[4]}`);
  }
  return routes;
}

/** "" where it cannot be read: no IPv6, no /proc. */
function readProc(name: string): string {
  try {
    return readFileSync(`/proc/net/${name}`, "utf8");
  } catch {
    return "";
  }
}
