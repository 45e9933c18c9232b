/**
 * Chooses the address that is dialed for a node's kubelet. A Node's status is written by the node itself: an address in
 * it is a claim, and the embedded API server must not be led by it to itself, to services of its own machine or to a
 * cloud's metadata.
 */
import { type LookupAddress, lookup as lookupName } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";
import type { KubeletTarget } from "@picolet/hub-core/kubelet-connector.ts";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

export interface OwnEndpoint {
  readonly address: string;
  readonly port: number;
  /** The endpoint that the hub writes into the status of this node. */
  readonly advertised: { readonly address: string; readonly port: number };
  /** False: the node is away, and may be connected to another hub by now. */
  readonly isConnected: boolean;
}

/** The nodes that this hub itself answers for. */
export interface OwnKubelets {
  /**
   * Where this process reaches the hub's endpoint of `node`; undefined: the node has not been connected to this hub.
   */
  ownEndpoint(node: string): OwnEndpoint | undefined;
  /** True when a port of this machine is the hub's: its API server's, its tunnel's, an endpoint of any of its nodes. */
  isOwnPort(port: number): boolean;
  /** True for an address that the hub gives to nodes. */
  isNodeAddress(address: string): boolean;
  /** The address that the hub writes into the status of nodes that have no address of their own. */
  readonly advertisedAddress: string;
}

export interface KubeletTargetsInit {
  /** CIDRs. Empty: every address but those of `REFUSED`; else these alone, those of `REFUSED` among them too. */
  readonly networks: readonly string[];
}

/** Address and port to connect to. */
export interface KubeletEndpointAddress {
  readonly host: string;
  readonly port: number;
  /** Resolves `host` to allowed addresses only, so that what was judged is what is connected to. */
  readonly lookup: LookupFunction;
}

/** No kubelet of another machine is there. Kubernetes refuses the same but for the metadata services of clouds. */
const REFUSED: readonly string[] = [
  "0.0.0.0/8",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/4",
  "240.0.0.0/4",
  // Metadata services outside 169.254.0.0/16: Alibaba Cloud, Oracle Cloud, AWS.
  "100.100.100.200/32",
  "192.0.0.192/32",
  "fd00:ec2::254/128",
  "::/128",
  "::1/128",
  "fe80::/10",
  "ff00::/8",
];

const MAX_PORT = 65_535;

export class KubeletTargets {
  readonly #own: OwnKubelets;
  readonly #allowed: BlockList | undefined;
  readonly #refused = blockListOf(REFUSED);

  constructor({ own }: { readonly own: OwnKubelets }, { networks }: KubeletTargetsInit) {
    this.#own = own;
    this.#allowed = networks.length === 0 ? undefined : blockListOf(networks);
  }

  /**
   * @throws `unavailable` when nothing is known of the node's kubelet, `permission_denied` with the reason
   *   `AddressNotAllowed` for an address that must not be dialed
   */
  endpointOf({ node, claimed }: KubeletTarget): KubeletEndpointAddress {
    const own = this.#own.ownEndpoint(node);
    if (own !== undefined && (own.isConnected || this.#isClaimed(own, claimed))) {
      return { host: own.address, port: own.port, lookup: lookupName as LookupFunction };
    }
    if (claimed === undefined) {
      throw new PicoletError("unavailable", `no kubelet endpoint is known for node ${node}`, { retryable: true });
    }
    const { address, port } = claimed;
    if (!Number.isInteger(port) || port < 1 || port > MAX_PORT) throw notAllowed(node, `port ${port}`);
    if (isIP(address) !== 0) this.#check(node, address, port);
    return { host: address, port, lookup: this.#lookupOf(node, port) };
  }

  #isClaimed({ advertised }: OwnEndpoint, claimed: KubeletTarget["claimed"]): boolean {
    if (claimed === undefined) return true;
    return claimed.address === advertised.address && claimed.port === advertised.port;
  }

  #check(node: string, address: string, port: number): void {
    const isAllowed =
      this.#allowed === undefined ? !contains(this.#refused, address) : contains(this.#allowed, address);
    const isNodes = this.#own.isNodeAddress(innerIpv4(address) ?? address);
    const isOwn = isNodes || (this.#own.isOwnPort(port) && isOfThisMachine(address));
    if (isAllowed && !isOwn) return;
    // The status is what the hub wrote before it was started again; the node has not come back yet.
    if (isNodes || address === this.#own.advertisedAddress) {
      throw new PicoletError("unavailable", `the agent of node ${node} is not connected to this hub`, {
        retryable: true,
      });
    }
    throw notAllowed(node, address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);
  }

  #lookupOf(node: string, port: number): LookupFunction {
    return (hostname, options, callback) => {
      lookupName(hostname, { ...options, all: true }, (error, found) => {
        if (error !== null) return callback(error, "", 0);
        let problem: Error | undefined;
        const allowed = found.filter(({ address }: LookupAddress) => {
          try {
            this.#check(node, address, port);
            return true;
          } catch (refusal) {
            problem = refusal as Error;
            return false;
          }
        });
        const [first] = allowed;
        if (first === undefined) callback(problem ?? notAllowed(node, hostname), "", 0);
        else if (options.all === true) callback(null, allowed);
        else callback(null, first.address, first.family);
      });
    };
  }
}

/** Kubernetes' text for a proxy's target that is no global unicast address. */
const notAllowed = (node: string, where: string): PicoletError =>
  new PicoletError(
    "permission_denied",
    `address not allowed: the status of node ${node} names ${where}; --kubelet-network can allow it`,
    { reason: "AddressNotAllowed" },
  );

/** @param cidrs `10.0.0.0/8`, `fd00::/8`, or an address alone. @throws `invalid` */
export function blockListOf(cidrs: readonly string[]): BlockList {
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [address = "", length, ...more] = cidr.split("/");
    const family = isIP(address);
    const longest = family === 4 ? 32 : 128;
    const prefix = length === undefined ? longest : /^\d{1,3}$/.test(length) ? Number(length) : Number.NaN;
    if (family === 0 || more.length > 0 || !(prefix <= longest)) {
      throw new PicoletError("invalid", `${cidr} is no network such as 10.0.0.0/8`);
    }
    list.addSubnet(address, prefix, family === 4 ? "ipv4" : "ipv6");
  }
  return list;
}

/** IPv4 within IPv6 counts as IPv4. */
function contains(list: BlockList, address: string): boolean {
  const inner = innerIpv4(address);
  if (inner !== undefined) return list.check(inner, "ipv4");
  const [plain = ""] = address.split("%");
  return list.check(plain, isIP(plain) === 4 ? "ipv4" : "ipv6");
}

/**
 * The IPv4 address in IPv4-compatible, IPv4-mapped, translated (RFC 6052) and 6to4 addresses; `::` and `::1` have none.
 */
function innerIpv4(address: string): string | undefined {
  if (isIP(address) !== 6) return undefined;
  const bytes = addressBytes(address);
  const head = Buffer.from(bytes.subarray(0, 12)).toString("hex");
  const isCompatible = head === "0".repeat(24) && bytes.subarray(12, 15).some((byte) => byte !== 0);
  const isMapped = head === `${"0".repeat(20)}ffff` || head === "0064ff9b0000000000000000";
  if (isCompatible || isMapped) return bytes.subarray(12).join(".");
  return head.startsWith("2002") ? bytes.subarray(2, 6).join(".") : undefined;
}

const isLoopback = blockListOf(["0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"]);

function isOfThisMachine(address: string): boolean {
  if (contains(isLoopback, address)) return true;
  const wanted = bytesOf(innerIpv4(address) ?? address);
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.some((each) => bytesOf(each.address) === wanted);
}

const bytesOf = (address: string): string => Buffer.from(addressBytes(address)).toString("hex");
