/**
 * Judges what a component wants of the network by the rules of its pod. Names are looked up by the host, and the address
 * that is connected to is the one that was judged: `allows` before the look-up, `allowsResolved` for each address it gave.
 *
 * The node itself (loopback and its own addresses), link-local and multicast addresses are reached only by rules that name
 * them: as that address, as a network that lies within, or, for loopback, as `localhost`. A name that leads there does not. Pure.
 */
import {
  contains,
  covers,
  type IpAddress,
  type IpPrefix,
  inAny,
  isWhole,
  LOOPBACK,
  parseAddress,
  parsePrefix,
  plainAddress,
  SPECIAL,
} from "./ip-address.ts";
import type { ConnectRule, ListenRule, NetworkRules, PortRange, Protocol, Transport } from "./network-rules.ts";

export interface Destination {
  readonly protocol: Protocol;
  /** A name or an address, as the component gave it; IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /** Of http and https. */
  readonly method?: string | undefined;
}

interface Rule extends Omit<ConnectRule, "host"> {
  /** Undefined: any. */
  readonly name: string | undefined;
  /** Undefined: it is about names. */
  readonly prefix: IpPrefix | undefined;
}

export class NetworkPolicy {
  readonly #rules: readonly Rule[];
  readonly #listen: readonly ListenRule[];
  readonly #ownAddresses: () => readonly string[];

  /** @param ownAddresses of the node, at present. */
  constructor(rules: NetworkRules, ownAddresses: () => readonly string[]) {
    this.#rules = rules.connect.map(({ host, ...rest }) => {
      const prefix = parsePrefix(host);
      return {
        ...rest,
        name: prefix === undefined && host !== "*" ? host : undefined,
        prefix: prefix && plain(prefix),
      };
    });
    this.#listen = rules.listen;
    this.#ownAddresses = ownAddresses;
  }

  /** Whether it may be tried at all. Of a name the addresses have to be judged too. */
  allows(destination: Destination): boolean {
    const address = parseAddress(destination.host);
    if (address !== undefined) return this.#allowsAddress(destination, plainAddress(address));
    const name = normalizedName(destination.host);
    return this.#rules.some((rule) => isFor(rule, destination) && namesHost(rule, name));
  }

  /** Whether this address, which `destination.host` was resolved to, may be connected to. */
  allowsResolved(destination: Destination, address: string): boolean {
    const parsed = parseAddress(address);
    if (parsed === undefined || !this.allows(destination)) return false;
    const plainOne = plainAddress(parsed);
    if (parseAddress(destination.host) !== undefined) return this.#allowsAddress(destination, plainOne);
    if (!this.#isSpecial(plainOne)) return true;
    if (normalizedName(destination.host) === "localhost" && this.#namesLocalhost(destination)) {
      return inAny(LOOPBACK, plainOne);
    }
    return this.#allowsAddress(destination, plainOne);
  }

  /** Whether this name may be looked up for sockets: some rule for tcp or udp has it. */
  allowsLookup(host: string): boolean {
    if (parseAddress(host) !== undefined) return true;
    const name = normalizedName(host);
    return this.#rules.some((rule) => isTransport(rule.protocol) && namesHost(rule, name));
  }

  /** Whether there is any rule for such sockets. */
  allowsSockets(protocol: Transport): boolean {
    return [...this.#rules, ...this.#listen].some((rule) => rule.protocol === protocol);
  }

  allowsListen(protocol: Transport, port: number): boolean {
    return this.#listen.some((rule) => rule.protocol === protocol && inRange(rule.ports, port));
  }

  #allowsAddress(destination: Destination, address: IpAddress): boolean {
    const special = this.#isSpecial(address);
    return this.#rules.some((rule) => {
      if (!isFor(rule, destination)) return false;
      if (rule.prefix !== undefined) {
        return contains(rule.prefix, address) && (!special || namesSpecial(rule.prefix));
      }
      if (rule.name === undefined) return !special;
      return rule.name === "localhost" && inAny(LOOPBACK, address);
    });
  }

  #namesLocalhost(destination: Destination): boolean {
    return this.#rules.some((rule) => isFor(rule, destination) && rule.name === "localhost");
  }

  #isSpecial(address: IpAddress): boolean {
    if (inAny(SPECIAL, address)) return true;
    return this.#ownAddresses().some((text) => {
      const own = parseAddress(text);
      return own !== undefined && own.family === address.family && own.bits === address.bits;
    });
  }
}

/** An address, or a network of nothing but special ones. */
const namesSpecial = (prefix: IpPrefix): boolean => isWhole(prefix) || SPECIAL.some((each) => covers(each, prefix));

const isFor = (rule: Rule, { protocol, port, method }: Destination): boolean =>
  rule.protocol === protocol &&
  inRange(rule.ports, port) &&
  (rule.methods === undefined || (method !== undefined && rule.methods.includes(method.toUpperCase())));

const inRange = ({ first, last }: PortRange, port: number): boolean => port >= first && port <= last;
const isTransport = (protocol: Protocol): boolean => protocol === "tcp" || protocol === "udp";

function namesHost(rule: Rule, name: string): boolean {
  if (rule.prefix !== undefined) return false;
  if (rule.name === undefined) return true;
  return rule.name.startsWith("*.")
    ? name.endsWith(rule.name.slice(1)) && name.length >= rule.name.length
    : name === rule.name;
}

/** Without the dot that says that a name is whole. */
const normalizedName = (host: string): string => host.toLowerCase().replace(/\.$/, "");

/** A mapped address alone is the IPv4 one; a network of them stays as it is. */
const plain = (prefix: IpPrefix): IpPrefix => {
  if (!isWhole(prefix)) return prefix;
  const address = plainAddress(prefix.address);
  return { address, length: address.family === 4 ? 32 : 128 };
};
