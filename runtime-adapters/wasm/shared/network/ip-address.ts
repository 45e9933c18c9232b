/** IP addresses as numbers, for the comparisons of a network policy. Pure. RFC 4291, RFC 4632. */

export interface IpAddress {
  readonly family: 4 | 6;
  /** 32 or 128 bits. */
  readonly bits: bigint;
}

/** All addresses with the same first `length` bits. */
export interface IpPrefix {
  readonly address: IpAddress;
  readonly length: number;
}

const MAX_TEXT_LENGTH = 45;
const GROUPS = 8;
const WIDTH = { 4: 32, 6: 128 } as const;
const BYTE = /^(?:0|[1-9]\d{0,2})$/;
const GROUP = /^[\da-f]{1,4}$/i;

/**
 * IPv4 inside IPv6: mapped (::ffff:0:0/96), translated (RFC 6052, 64:ff9b::/96) and the "compatible" form of old
 * (::/96), which lead to the same host as the IPv4 address by itself.
 */
const EMBEDDING_TOPS: ReadonlySet<bigint> = new Set([0xffffn, 0x64_ff9b_0000_0000_0000_0000n, 0n]);
/** `::` and `::1`, which are no IPv4 addresses. */
const HIGHEST_OF_IPV6_ITSELF = 1n;

/** Dotted decimal or RFC 4291 text, without a zone; undefined for anything else. */
export function parseAddress(text: string): IpAddress | undefined {
  if (text.length > MAX_TEXT_LENGTH) return undefined;
  const bits = text.includes(":") ? parseV6(text) : parseV4(text);
  return bits === undefined ? undefined : { family: text.includes(":") ? 6 : 4, bits };
}

function parseV4(text: string): bigint | undefined {
  const parts = text.split(".");
  if (parts.length !== 4 || parts.some((part) => !BYTE.test(part) || Number(part) > 255)) return undefined;
  return parts.reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
}

function parseV6(text: string): bigint | undefined {
  const [head = "", tail, ...more] = text.split("::");
  if (more.length > 0) return undefined;
  const first = groupsOf(head, tail === undefined);
  const last = tail === undefined ? [] : groupsOf(tail, true);
  if (first === undefined || last === undefined) return undefined;
  const missing = GROUPS - first.length - last.length;
  // "::" replaces at least one group.
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined;
  const groups = [...first, ...Array.from({ length: missing }, () => 0n), ...last];
  return groups.reduce((bits, group) => (bits << 16n) | group, 0n);
}

/** @param atEnd whether an IPv4 address may stand for the last two groups. */
function groupsOf(text: string, atEnd: boolean): bigint[] | undefined {
  if (text === "") return [];
  const parts = text.split(":");
  const dotted = atEnd && parts.at(-1)?.includes(".") === true ? parts.pop() : undefined;
  if (parts.some((part) => !GROUP.test(part))) return undefined;
  const groups = parts.map((part) => BigInt(`0x${part}`));
  if (dotted === undefined) return groups;
  const bits = parseV4(dotted);
  return bits === undefined ? undefined : [...groups, bits >> 16n, bits & 0xffffn];
}

/** `10.0.0.0/8`; one without a length is the address alone. */
export function parsePrefix(text: string): IpPrefix | undefined {
  const [host = "", length, ...more] = text.split("/");
  const address = parseAddress(host);
  if (address === undefined || more.length > 0) return undefined;
  if (length === undefined) return { address, length: WIDTH[address.family] };
  if (!BYTE.test(length) || Number(length) > WIDTH[address.family]) return undefined;
  return { address, length: Number(length) };
}

/** The address that is really reached: an IPv4 address that an IPv6 one maps is itself. */
export function plainAddress(address: IpAddress): IpAddress {
  if (address.family === 4 || !EMBEDDING_TOPS.has(address.bits >> 32n)) return address;
  if (address.bits <= HIGHEST_OF_IPV6_ITSELF) return address;
  return { family: 4, bits: address.bits & 0xffff_ffffn };
}

export function contains({ address: { family, bits }, length }: IpPrefix, address: IpAddress): boolean {
  if (address.family !== family) return false;
  const shift = BigInt(WIDTH[family] - length);
  return address.bits >> shift === bits >> shift;
}

/** @returns whether `outer` contains all of `inner` */
export const covers = (outer: IpPrefix, inner: IpPrefix): boolean =>
  outer.length <= inner.length && contains(outer, inner.address);

export const isSingleAddress = ({ address, length }: IpPrefix): boolean => length === WIDTH[address.family];

/**
 * IPv4 addresses that an IPv6 address carries although it is another host's: 6to4 (RFC 3056), local NAT64 prefixes (RFC
 * 8215, in all forms of RFC 6052 from /48 on), IPv4-translated (RFC 2765), Teredo (RFC 4380) and ISATAP (RFC 5214). A
 * translator or relay on the way may deliver to them.
 */
export function embeddedIpv4Addresses({ family, bits }: IpAddress): readonly IpAddress[] {
  if (family === 4) return [];
  const v4 = (value: bigint): IpAddress => ({ family: 4, bits: value & 0xffff_ffffn });
  if (bits >> 112n === 0x2002n) return [v4(bits >> 80n)];
  if (bits >> 96n === 0x2001_0000n) return [v4(bits >> 32n), v4(~bits)];
  if (bits >> 32n === 0xffff_0000n) return [v4(bits)];
  if (((bits >> 32n) & 0xfcff_ffffn) === 0x5efen) return [v4(bits)];
  if (bits >> 80n !== 0x64_ff9b_0001n) return [];
  // Bits 64 to 71 are zero and belong to no address; with prefixes of 48 and 56 bits they divide it.
  const around = (before: bigint): IpAddress =>
    v4(
      (((bits >> 64n) & ((1n << before) - 1n)) << (32n - before)) |
        ((bits >> (24n + before)) & ((1n << (32n - before)) - 1n)),
    );
  return [around(16n), around(8n), v4(bits >> 24n), v4(bits)];
}

export const prefixes = (...texts: readonly string[]): readonly IpPrefix[] =>
  texts.flatMap((text) => parsePrefix(text) ?? []);

export const isInAnyPrefix = (list: readonly IpPrefix[], address: IpAddress): boolean =>
  list.some((prefix) => contains(prefix, address));
