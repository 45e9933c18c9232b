/** An `httpGet` action made into a request, by the kubelet's rules (and Go's, as far as they show). */
import type { Container, Probe } from "@picolet/protocol/pod/pod.ts";
import { KUBERNETES_VERSION } from "@picolet/protocol/version.ts";
import { resolvePort } from "./container-port.ts";
import { goQuote, joinHostPort } from "./go-text.ts";

export type HttpGetAction = NonNullable<Probe["httpGet"]>;

export interface HttpRequest {
  readonly scheme: "http" | "https";
  /** An address without brackets, or a name. */
  readonly host: string;
  readonly port: number;
  /** Path and query, escaped. */
  readonly target: string;
  /** The header `Host`; "": host and port. */
  readonly hostHeader: string;
  /** In the order of the wire; names as they are written. Neither `Host` nor `Connection: close`. */
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/** Written by the connection itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(["Host", "Content-Length", "Transfer-Encoding", "Trailer"]);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/;

/**
 * @param podIp for an action that names no host.
 * @throws Error with the kubelet's text when its port is unknown.
 */
export function httpRequestOf(
  action: HttpGetAction,
  container: Container,
  podIp: string,
  purpose: "probe" | "lifecycle",
): HttpRequest {
  const { host = "", path, scheme, httpHeaders = [] } = action;
  const headers = new Map<string, string[]>();
  for (const { name, value } of httpHeaders) {
    const key = canonical(name);
    const values = headers.get(key);
    if (values === undefined) headers.set(key, [value]);
    else values.push(value);
  }
  const agent = headers.get("User-Agent")?.[0] ?? `kube-${purpose}/${KUBERNETES_VERSION}`;
  if (!headers.has("Accept")) headers.set("Accept", ["*/*"]);
  else if (headers.get("Accept")?.[0] === "") headers.delete("Accept");
  headers.delete("User-Agent");
  const written = [...headers.keys()].filter((name) => !OWN_HEADERS.has(name)).sort();
  return {
    scheme: scheme === "HTTPS" ? "https" : "http",
    host: host === "" ? podIp : host,
    port: resolvePort(action.port, container),
    target: targetOf(path),
    hostHeader: headers.get("Host")?.[0] ?? "",
    headers: [
      // An empty one leaves the header out.
      ...(agent === "" ? [] : [["User-Agent", agent] as const]),
      ...written.flatMap((name) => (headers.get(name) ?? []).map((value) => [name, value] as const)),
    ],
  };
}

export const urlOf = ({ scheme, host, port, target }: HttpRequest): string =>
  `${scheme}://${joinHostPort(host, port)}${target}`;

/** @throws Error with Go's text when a header cannot be sent. */
export function requestText(request: HttpRequest): string {
  const { target, hostHeader, host, port, headers } = request;
  let text = `GET ${target} HTTP/1.1\r\nHost: ${hostHeader === "" ? joinHostPort(host, port) : hostHeader}\r\n`;
  for (const [name, value] of [...headers, ["Host", hostHeader] as const]) {
    if (!TOKEN.test(name)) throw new Error(`net/http: invalid header field name ${goQuote(name)}`);
    if (CONTROL.test(value)) throw new Error(`net/http: invalid header field value for ${goQuote(name)}`);
    if (name !== "Host") text += `${name}: ${value}\r\n`;
  }
  return `${text}Connection: close\r\n\r\n`;
}

/**
 * Makes the request of a redirect. It keeps the headers, and a `Host` of the action's own if the location is relative.
 * @throws Error with Go's text for a location that is no URL.
 */
export function redirectedRequest(from: HttpRequest, location: string): HttpRequest {
  const url = URL.parse(location, urlOf(from));
  if (url === null) throw new Error(`failed to parse Location header ${goQuote(location)}: invalid URL`);
  const scheme = url.protocol.slice(0, -1);
  if (scheme !== "http" && scheme !== "https") throw new Error(`unsupported protocol scheme ${goQuote(scheme)}`);
  const isAbsolute = /^[a-z][a-z0-9+.-]*:/i.test(location);
  return {
    ...from,
    scheme,
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? (scheme === "http" ? 80 : 443) : Number(url.port),
    target: `${url.pathname}${url.search}`,
    hostHeader: isAbsolute ? "" : from.hostHeader,
    headers: withReferer(from, scheme),
  };
}

/** As browsers do, and Go: where the way came from, unless it leads out of TLS. */
function withReferer(from: HttpRequest, scheme: "http" | "https"): HttpRequest["headers"] {
  if (from.scheme === "https" && scheme === "http") return from.headers;
  return [...from.headers.filter(([name]) => name !== "Referer"), ["Referer", urlOf(from)]];
}

/** `x-custom-header` is written as `X-Custom-Header`. */
const canonical = (name: string): string =>
  TOKEN.test(name) ? name.toLowerCase().replaceAll(/(?:^|-)[a-z]/g, (start) => start.toUpperCase()) : name;

/** Matches what must be escaped in a path; `%` unless two digits follow. */
const UNSAFE_IN_PATH = /%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9!$&'()*+,;=:@[\]/_.~%-]/gu;
const UNSAFE_IN_QUERY = /[^\u0021-\u007e]/gu;

/** Path and query of the action's `path`, which may be a whole URL; a fragment is not sent. */
function targetOf(text: string): string {
  const path = text.replace(/^[a-z][a-z0-9+.-]*:(?=\/\/)/i, "").replace(/^\/\/[^/?#]*/, "");
  const [before = ""] = path.split("#", 1);
  const mark = before.indexOf("?");
  const query = mark < 0 ? "" : before.slice(mark).replaceAll(UNSAFE_IN_QUERY, percentEncode);
  const escaped = before.slice(0, mark < 0 ? undefined : mark).replaceAll(UNSAFE_IN_PATH, percentEncode);
  return `${escaped.startsWith("/") ? "" : "/"}${escaped}${query}`;
}

function percentEncode(char: string): string {
  let text = "";
  for (const byte of Buffer.from(char)) text += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  return text;
}
