/**
 * The annotation `wasm.picolet.io/network`: the peers to which a pod's components may connect, and the ports on which
 * they may listen. Entries are separated by `;` or line breaks:
 *
 *   tcp://db.example.com:5432                a name; *.example.com: any name below it
 *   udp://192.0.2.1:123                      an address; [2001:db8::1] in brackets
 *   tcp://10.20.0.0/16:1883-1884             a network, a range of ports; `*` for any host, any port
 *   https://api.example.com                  by wasi:http; the ports 80 and 443 may be left out
 *   GET,HEAD http://*.example.com:8080       only these methods
 *   listen tcp:8080                          a port, or a range, that may be bound
 *
 * Pure.
 */
import { type IpPrefix, isSingleAddress, parsePrefix } from "./ip-address.ts";

export type Protocol = "tcp" | "udp" | "http" | "https";
export type Transport = "tcp" | "udp";

/** Both ends belong to it. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export interface ConnectRule {
  readonly protocol: Protocol;
  /** `*`, a name, `*.` and a name, an address, or a network in CIDR notation; lower case. */
  readonly host: string;
  readonly ports: PortRange;
  /** Upper case; undefined: any. Only of http and https. */
  readonly methods?: readonly string[] | undefined;
}

export interface ListenRule {
  readonly protocol: Transport;
  readonly ports: PortRange;
}

/** As it goes to the runner, in JSON. */
export interface NetworkRules {
  readonly connect: readonly ConnectRule[];
  readonly listen: readonly ListenRule[];
}

/** A pod talks to a handful of hosts; each connection is compared with all rules. */
export const MAX_NETWORK_RULES = 128;
/** Kubernetes' own limit is 256 KiB for all annotations; 128 rules are some 4 KiB. */
export const MAX_NETWORK_TEXT_LENGTH = 16_384;
const MAX_METHODS = 16;
const MAX_PORT = 65_535;
const MAX_NAME_LENGTH = 253;

const ANY_PORT: PortRange = { first: 1, last: MAX_PORT };
const DEFAULT_PORTS: Readonly<Record<Protocol, number | undefined>> = {
  http: 80,
  https: 443,
  tcp: undefined,
  udp: undefined,
};
const CONNECT = /^(?:(\S+)\s+)?([a-z]+):\/\/(\*|\[[^\]\s]*\]|[^:[\]\s]*)(?::(\S*))?$/i;
const LISTEN = /^listen\s+([a-z]+):(\S*)$/i;
/** RFC 9110, a token. */
const METHOD = /^[\w!#$%&'*+.^`|~-]+$/;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** Resolvers take a last part of digits, or of 0x and hexadecimal digits, for a piece of an address. */
const NUMERIC = /^(?:\d+|0x[\da-f]*)$/;

type Parsed<T> = { readonly value: T } | { readonly problem: string };

/** @returns all problems; the rules are of use only without any */
export function parseNetworkRules(text: string): {
  readonly rules: NetworkRules;
  readonly problems: readonly string[];
} {
  const none: NetworkRules = { connect: [], listen: [] };
  if (text.length > MAX_NETWORK_TEXT_LENGTH) {
    return { rules: none, problems: [`longer than ${MAX_NETWORK_TEXT_LENGTH} characters`] };
  }
  const entries = text
    .split(/[;\n]/)
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length > MAX_NETWORK_RULES) return { rules: none, problems: [`more than ${MAX_NETWORK_RULES} entries`] };
  const connect: ConnectRule[] = [];
  const listen: ListenRule[] = [];
  const problems: string[] = [];
  for (const entry of entries) {
    const parsed = /^listen\s/i.test(entry) ? parseListen(entry) : parseConnect(entry);
    if ("problem" in parsed) problems.push(`"${entry}": ${parsed.problem}`);
    else if ("host" in parsed.value) connect.push(parsed.value);
    else listen.push(parsed.value);
  }
  return { rules: { connect, listen }, problems };
}

function parseListen(entry: string): Parsed<ListenRule> {
  const [, transport = "", portText = ""] = LISTEN.exec(entry) ?? [];
  const protocol = transport.toLowerCase();
  if (protocol !== "tcp" && protocol !== "udp") {
    return { problem: "write listen tcp:PORT or listen udp:PORT; PORT may be a range (8000-8010) or *" };
  }
  const ports = parsePorts(portText);
  return "problem" in ports ? ports : { value: { protocol, ports: ports.value } };
}

function parseConnect(entry: string): Parsed<ConnectRule> {
  const matched = CONNECT.exec(entry);
  if (matched === null) {
    return { problem: "write [METHODS] tcp|udp|http|https://HOST[:PORT], without a path, or listen tcp|udp:PORT" };
  }
  const [, methodText, scheme = "", hostText = "", portText] = matched;
  const protocol = scheme.toLowerCase();
  if (!isProtocol(protocol)) return { problem: `there is no protocol ${scheme}; known are tcp, udp, http, https` };
  const host = parseHost(hostText.toLowerCase());
  if ("problem" in host) return host;
  const ports = parsePorts(portText ?? String(DEFAULT_PORTS[protocol] ?? ""));
  if ("problem" in ports) return ports;
  const methods = parseMethods(methodText, protocol);
  if ("problem" in methods) return methods;
  return { value: { protocol, host: host.value, ports: ports.value, methods: methods.value } };
}

const isProtocol = (text: string): text is Protocol => Object.hasOwn(DEFAULT_PORTS, text);

function parseMethods(text: string | undefined, protocol: Protocol): Parsed<readonly string[] | undefined> {
  if (text === undefined) return { value: undefined };
  if (protocol === "tcp" || protocol === "udp") return { problem: "methods belong to http and https alone" };
  const methods = text.split(",").map((method) => method.toUpperCase());
  const wrong = methods.find((method) => !METHOD.test(method));
  if (wrong !== undefined) return { problem: `"${wrong}" is no HTTP method; divide several by commas, without blanks` };
  return methods.length > MAX_METHODS ? { problem: `more than ${MAX_METHODS} methods` } : { value: methods };
}

function parsePorts(text: string): Parsed<PortRange> {
  if (text === "*") return { value: ANY_PORT };
  const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  if (first !== undefined && range.first >= 1 && range.last <= MAX_PORT && range.first <= range.last) {
    return { value: range };
  }
  return {
    problem: `${text === "" ? "there is no port" : `${text} is no port`}: write 1 to ${MAX_PORT}, a range, or *`,
  };
}

function parseHost(text: string): Parsed<string> {
  const bracketed = /^\[(.*)\]$/.exec(text)?.[1];
  const isNetwork = bracketed !== undefined || text.includes("/") || NUMERIC.test(text.split(".").at(-1) ?? "");
  if (isNetwork) return parseNetwork(bracketed ?? text);
  if (text === "*") return { value: text };
  const name = text.startsWith("*.") ? text.slice(2) : text;
  if (name.length <= MAX_NAME_LENGTH && name.split(".").every((label) => LABEL.test(label))) return { value: text };
  return {
    problem: `"${text}" is no host: write a name in ASCII, *.NAME, *, an address, or a network such as 10.0.0.0/8; IPv6 in brackets`,
  };
}

function parseNetwork(text: string): Parsed<string> {
  const prefix = parsePrefix(text);
  if (prefix === undefined) return { problem: `"${text}" is neither an address nor a network in CIDR notation` };
  if (hasHostBits(prefix))
    return { problem: `${text} has bits set beyond its length: name the network, or one address` };
  return { value: text };
}

function hasHostBits(prefix: IpPrefix): boolean {
  if (isSingleAddress(prefix)) return false;
  const { family, bits } = prefix.address;
  const shift = BigInt((family === 4 ? 32 : 128) - prefix.length);
  return (bits >> shift) << shift !== bits;
}
