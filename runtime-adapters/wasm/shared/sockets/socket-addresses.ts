/** Addresses as the interfaces have them, and as Node has them. */
import { type IpAddress, parseAddress } from "../network/ip-address.ts";
import { networkFailure } from "./socket-errors.ts";

export type Family = "ipv4" | "ipv6";

/** Octets of IPv4, groups of IPv6. */
export type IpAddressValue =
  | { readonly tag: "ipv4"; readonly val: readonly number[] }
  | { readonly tag: "ipv6"; readonly val: readonly number[] };

export type IpSocketAddress =
  | { readonly tag: "ipv4"; readonly val: { readonly port: number; readonly address: readonly number[] } }
  | {
      readonly tag: "ipv6";
      readonly val: {
        readonly port: number;
        readonly flowInfo: number;
        readonly address: readonly number[];
        readonly scopeId: number;
      };
    };

/** As text; IPv6 in full, without brackets. */
export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

const GROUP_BITS = { ipv4: 8, ipv6: 16 } as const;
const GROUP_COUNT = { ipv4: 4, ipv6: 8 } as const;
const MAPPED_TOP = 0xffffn;
const BROADCAST = 0xffff_ffffn;

export function endpointOf({ tag, val }: IpSocketAddress): Endpoint {
  const address = tag === "ipv4" ? val.address.join(".") : val.address.map((group) => group.toString(16)).join(":");
  return { address, port: val.port };
}

/** @param text an address from the system, which may have a zone */
export function addressValue(text: string): IpAddressValue | undefined {
  const parsed = parseAddress(text.split("%")[0] ?? "");
  if (parsed === undefined) return undefined;
  const tag = parsed.family === 4 ? "ipv4" : "ipv6";
  const count = GROUP_COUNT[tag];
  const bits = GROUP_BITS[tag];
  const groups = Array.from({ length: count }, (_, index) =>
    Number(BigInt.asUintN(bits, parsed.bits >> BigInt(bits * (count - 1 - index)))),
  );
  return { tag, val: groups };
}

export function socketAddress({ address, port }: Endpoint): IpSocketAddress {
  const value = addressValue(address);
  if (value === undefined) throw networkFailure("unknown");
  if (value.tag === "ipv4") return { tag: "ipv4", val: { port, address: value.val } };
  return { tag: "ipv6", val: { port, flowInfo: 0, address: value.val, scopeId: 0 } };
}

/** Any address of the node's, any free port. */
export const anywhere = (family: Family): IpSocketAddress =>
  family === "ipv4"
    ? { tag: "ipv4", val: { port: 0, address: [0, 0, 0, 0] } }
    : { tag: "ipv6", val: { port: 0, flowInfo: 0, address: [0, 0, 0, 0, 0, 0, 0, 0], scopeId: 0 } };

/** @throws `invalid-argument` for an address that a socket of this family cannot have, `not-supported` for a zone */
export function localEndpoint(address: IpSocketAddress, family: Family): Endpoint {
  checkUnicast(address, family);
  return endpointOf(address);
}

/** @throws `invalid-argument` for an address that a socket of this family cannot reach */
export function remoteEndpoint(address: IpSocketAddress, family: Family): Endpoint {
  const { bits } = checkUnicast(address, family);
  if (bits === 0n || address.val.port === 0) throw networkFailure("invalid-argument");
  return endpointOf(address);
}

function checkUnicast(address: IpSocketAddress, family: Family): IpAddress {
  const parsed = parseAddress(endpointOf(address).address);
  if (parsed === undefined || address.tag !== family || isManyOrMapped(parsed))
    throw networkFailure("invalid-argument");
  // Node has no way to name a zone by its number.
  if (address.tag === "ipv6" && address.val.scopeId !== 0) throw networkFailure("not-supported");
  return parsed;
}

function isManyOrMapped({ family, bits }: IpAddress): boolean {
  if (family === 4) return bits >> 28n === 0xen || bits === BROADCAST;
  return bits >> 120n === 0xffn || bits >> 32n === MAPPED_TOP;
}
