/**
 * Judges a component's connections by the rules of its pod. The host looks names up, and only judged addresses are
 * connected to: `allows` judges before the look-up, `allowsResolved` each address that it returns.
 *
 * The node itself (loopback and its own addresses), link-local and multicast addresses are reached only by rules that
 * name them: as that address, as a network that lies within, or, for loopback, as `localhost`. A name that resolves to
 * them does not. Metadata services of clouds, which give out credentials of the machine, are reached only by a rule
 * with exactly that address. The two tables below hold for wasi:sockets and wasi:http, of WASI 0.2 and 0.3. Pure.
 */
import {
  contains,
  covers,
  embeddedIpv4Addresses,
  type IpAddress,
  type IpPrefix,
  isInAnyPrefix,
  isSingleAddress,
  parseAddress,
  parsePrefix,
  plainAddress,
  prefixes,
} from "./ip-address.ts";
import type { ConnectRule, ListenRule, NetworkRules, PortRange, Protocol, Transport } from "./network-rules.ts";

/** Linux takes 0.0.0.0 and :: for itself. */
const LOOPBACK = prefixes("127.0.0.0/8", "::1", "0.0.0.0/8", "::");

/** Addresses of no remote host: a rule reaches them as that address, or as a network within one of these. */
const LOCAL = [
  ...LOOPBACK,
  ...prefixes("169.254.0.0/16", "fe80::/10", "fec0::/10", "224.0.0.0/4", "ff00::/8", "255.255.255.255"),
];

/**
 * Metadata and credential services, as the providers document them and cloud-init's data sources use them. Those of
 * GCP, OpenStack, Oracle, DigitalOcean, Hetzner, Tencent, Huawei and IBM over IPv4 are 169.254.169.254 too.
 */
const METADATA = prefixes(
  // AWS and most others: instance metadata.
  "169.254.169.254",
  // AWS: ECS task credentials, EKS Pod Identity.
  "169.254.170.2",
  "169.254.170.23",
  // AWS over IPv6: instance metadata is fd00:ec2::254, EKS Pod Identity fd00:ec2::23.
  "fd00:ec2::/32",
  // Azure: the wire server, which serves certificates and extensions' settings.
  "168.63.129.16",
  // Alibaba Cloud.
  "100.100.100.200",
  // Oracle Cloud Classic is 192.0.0.192; the block is for protocol assignments (RFC 6890), no remote host has an
  // address of it.
  "192.0.0.0/24",
  // Tencent Cloud.
  "169.254.0.23",
  // Scaleway.
  "169.254.42.42",
  "fd00:42::42",
  // GCP over IPv6.
  "fd20:ce::254",
  // Oracle Cloud over IPv6.
  "fd00:c1::a9fe:a9fe",
  // Akamai (Linode) over IPv6.
  "fd00:a9fe:a9fe::1",
  // OpenStack and Hetzner over IPv6.
  "fe80::a9fe:a9fe",
);

export interface Destination {
  readonly protocol: Protocol;
  /** A name or an address, as the component gave it; IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /** For http and https. */
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

  /** @returns whether it may be tried at all. The addresses of a name have to be checked too. */
  allows(destination: Destination): boolean {
    const address = parseAddress(destination.host);
    if (address !== undefined) return this.#allowsAddress(destination, plainAddress(address));
    if (isNoName(destination.host)) return false;
    const name = normalizedName(destination.host);
    return this.#rules.some((rule) => isFor(rule, destination) && namesHost(rule, name));
  }

  /** @returns whether this address, which `destination.host` resolved to, may be connected to */
  allowsResolved(destination: Destination, address: string): boolean {
    const parsed = parseAddress(address);
    if (parsed === undefined || !this.allows(destination)) return false;
    const plainOne = plainAddress(parsed);
    if (parseAddress(destination.host) !== undefined) return this.#allowsAddress(destination, plainOne);
    if (!this.#isSpecial(plainOne)) return true;
    if (normalizedName(destination.host) === "localhost" && this.#namesLocalhost(destination)) {
      return isInAnyPrefix(LOOPBACK, plainOne);
    }
    return this.#allowsAddress(destination, plainOne);
  }

  /** @returns whether sockets may look up this name: a rule for tcp or udp has it */
  allowsLookup(host: string): boolean {
    if (parseAddress(host) !== undefined) return true;
    if (isNoName(host)) return false;
    const name = normalizedName(host);
    return this.#rules.some((rule) => isTransport(rule.protocol) && namesHost(rule, name));
  }

  /** @returns whether there is a rule for such sockets */
  allowsSockets(protocol: Transport): boolean {
    return [...this.#rules, ...this.#listen].some((rule) => rule.protocol === protocol);
  }

  allowsListen(protocol: Transport, port: number): boolean {
    return this.#listen.some((rule) => rule.protocol === protocol && inRange(rule.ports, port));
  }

  #allowsAddress(destination: Destination, address: IpAddress): boolean {
    const special = this.#isSpecial(address);
    const isMetadata = leadsTo(address, (each) => isInAnyPrefix(METADATA, each));
    return this.#rules.some((rule) => {
      if (!isFor(rule, destination)) return false;
      if (rule.prefix !== undefined) {
        if (!contains(rule.prefix, address)) return false;
        return isSingleAddress(rule.prefix) || (!isMetadata && (!special || namesLocal(rule.prefix)));
      }
      if (rule.name === undefined) return !special;
      return rule.name === "localhost" && isInAnyPrefix(LOOPBACK, address);
    });
  }

  #namesLocalhost(destination: Destination): boolean {
    return this.#rules.some((rule) => isFor(rule, destination) && rule.name === "localhost");
  }

  #isSpecial(address: IpAddress): boolean {
    const own = this.#ownAddresses().flatMap((text) => parseAddress(text) ?? []);
    return leadsTo(
      address,
      (each) =>
        isInAnyPrefix(LOCAL, each) ||
        isInAnyPrefix(METADATA, each) ||
        own.some(({ family, bits }) => family === each.family && bits === each.bits),
    );
  }
}

/** @returns whether the address, or one that it embeds, matches */
const leadsTo = (address: IpAddress, matches: (each: IpAddress) => boolean): boolean =>
  [address, ...embeddedIpv4Addresses(address)].some(matches);

/** A network of nothing but local addresses. */
const namesLocal = (prefix: IpPrefix): boolean => LOCAL.some((each) => covers(each, prefix));

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

/** An address with a zone: sockets take it without looking anything up. */
const isNoName = (host: string): boolean => /[:%]/.test(host);

/** Without the dot that ends an absolute name. */
const normalizedName = (host: string): string => host.toLowerCase().replace(/\.$/, "");

/** A mapped address alone is the IPv4 one; a network of them stays as it is. */
const plain = (prefix: IpPrefix): IpPrefix => {
  if (!isSingleAddress(prefix)) return prefix;
  const address = plainAddress(prefix.address);
  return { address, length: address.family === 4 ? 32 : 128 };
};
