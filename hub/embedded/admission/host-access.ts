/**
 * picolet's own check of the level baseline: annotations that give a container or a component what pods get only by
 * `hostPath`, `hostNetwork` or `hostPort`.
 *
 * - `picolet.io/devices`: gives a container device nodes of the board, as a hostPath volume of /dev does.
 * - `wasm.picolet.io/devices`: opens serial ports, GPIO lines and I2C addresses of the board, likewise.
 * - `wasm.picolet.io/network` with `listen`: binds ports of the node, for a component has the node's network; as a
 *   hostPort does.
 * - `wasm.picolet.io/network` with a loopback, link-local, multicast or cloud metadata address: reaches what listens on
 *   the node alone, or asks for the node's credentials, as hostNetwork does. Entries without such an address (`*` too)
 *   never reach it: the component's host refuses them.
 *
 * An entry that cannot be read counts as forbidden: what the agent would make of it is not known here. Pure.
 */
import { BlockList, isIP } from "node:net";
import { type Evaluate, plural, quoteAll } from "./pod-security-view.ts";

const DEVICES = ["picolet.io/devices", "wasm.picolet.io/devices"];
const NETWORK = "wasm.picolet.io/network";

export const JUDGED_ANNOTATIONS: readonly string[] = [...DEVICES, NETWORK];

/** Entries named in one message; annotations hold up to 256 KiB. */
const MAX_SHOWN_ENTRIES = 8;
const MAX_SHOWN_LENGTH = 128;

/** `[METHODS ]scheme://HOST[:PORT]`, as the annotation's reader has it. */
const CONNECT = /^(?:\S+\s+)?[a-z]+:\/\/(\*|\[[^\]\s]*\]|[^:[\]\s]*)(?::\S*)?$/i;
/** The last part of a host that resolvers and URL parsers take for a number of an address. */
const NUMERIC_END = /(?:^|\.)(?:\d+|0x[\da-f]*)\.?$/i;

/**
 * Services of clouds that give credentials of the machine, beside the link-local ones: Azure, Alibaba, Oracle Classic.
 */
const METADATA_IPV4 = [
  ["168.63.129.16", 32],
  ["100.100.100.200", 32],
  ["192.0.0.0", 24],
] as const;
/** The same over IPv6 (AWS, Scaleway, GCP, Oracle, Akamai), and what carries an IPv4 address (6to4, Teredo). */
const METADATA_IPV6 = blockList("ipv6", [
  ["fd00:ec2::", 32],
  ["fd00:42::42", 128],
  ["fd20:ce::254", 128],
  ["fd00:c1::a9fe:a9fe", 128],
  ["fd00:a9fe:a9fe::1", 128],
  ["2002::", 16],
  ["2001::", 32],
]);
/** IPv4 that leads to the node itself or stays on its link: network and length. */
const LOCAL_IPV4 = (
  [["0.0.0.0", 8], ["127.0.0.0", 8], ["169.254.0.0", 16], ["224.0.0.0", 3], ...METADATA_IPV4] as const
).map(([network, length]) => ({ length, list: blockList("ipv4", [[network, length]]) }));
/** IPv6 beyond the node and its link: global unicast and unique local addresses. */
const REMOTE_IPV6 = blockList("ipv6", [
  ["2000::", 3],
  ["fc00::", 7],
]);
/** A wider IPv6 network holds remote addresses, and the component's host leaves local ones out of it. */
const MAX_WIDE_IPV6_LENGTH = 7;

function blockList(family: "ipv4" | "ipv6", networks: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList();
  for (const [network, length] of networks) list.addSubnet(network, length, family);
  return list;
}

export const hostAccess: Evaluate = ({ annotations }) => {
  const network = entriesOf(annotations[NETWORK]);
  const listening = network.filter((entry) => /^listen\s/i.test(entry));
  const local = network.filter((entry) => !/^listen\s/i.test(entry) && reachesNode(entry));
  const details: string[] = [];
  for (const name of DEVICES) {
    const devices = entriesOf(annotations[name]);
    if (devices.length > 0) details.push(`annotation ${name} opens ${devicesText(devices)} of the board`);
  }
  if (listening.length > 0) details.push(`annotation ${NETWORK} binds ports of the node by ${shown(listening)}`);
  if (local.length > 0)
    details.push(`annotation ${NETWORK} reaches the node itself or its metadata service by ${shown(local)}`);
  return details.length === 0 ? undefined : { reason: "picolet host access", detail: details.join("; ") };
};

const entriesOf = (annotation: unknown): readonly string[] =>
  (typeof annotation === "string" ? annotation : "")
    .split(/[;\n]/)
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");

function reachesNode(entry: string): boolean {
  const host = CONNECT.exec(entry)?.[1]?.toLowerCase();
  if (host === undefined) return true;
  if (host === "*") return false;
  const bracketed = /^\[(.*)\]$/.exec(host)?.[1];
  const isAddress = bracketed !== undefined || host.includes("/") || NUMERIC_END.test(host);
  if (isAddress) return isLocalNetwork(bracketed ?? host);
  const name = host.replace(/^\*\./, "").replace(/\.$/, "");
  return name === "localhost" || name.endsWith(".localhost");
}

/** Also of an address in a form that only some parsers take, and of an IPv4 address inside an IPv6 one. */
function isLocalNetwork(text: string): boolean {
  const [address = "", prefix] = text.split("/");
  const family = isIP(address);
  if (family === 4) {
    const length = Number(prefix ?? 32);
    return LOCAL_IPV4.some((local) => !(length < local.length) && local.list.check(address, "ipv4"));
  }
  if (family !== 6) return true;
  if (Number(prefix ?? 128) <= MAX_WIDE_IPV6_LENGTH) return false;
  return !REMOTE_IPV6.check(address, "ipv6") || METADATA_IPV6.check(address, "ipv6");
}

const devicesText = (devices: readonly string[]): string =>
  `${plural("device", "devices", devices.length)} ${shown(devices)}`;

function shown(entries: readonly string[]): string {
  const kept = entries.slice(0, MAX_SHOWN_ENTRIES).map((entry) => entry.slice(0, MAX_SHOWN_LENGTH));
  const left = entries.length - kept.length;
  return left === 0 ? quoteAll(kept) : `${quoteAll(kept)} and ${left} more`;
}
