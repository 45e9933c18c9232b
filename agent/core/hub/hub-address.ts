import { errnoOf } from "@picolet/protocol/guards.ts";

export interface HubAddress {
  /** Name or address; an IPv6 address without brackets. */
  readonly host: string;
  readonly port: number;
  /** As it was written, for people. */
  readonly url: string;
}

const DEFAULT_PORT = 443;

/** @param url `https:` or `wss:`, which are the same here. @returns what is wrong with it as a text */
export function parseHubAddress(url: string): HubAddress | string {
  const parsed = URL.parse(url);
  if (parsed === null || !["https:", "wss:"].includes(parsed.protocol) || parsed.hostname === "") {
    return 'must be a URL such as "https://hub.example:10270"';
  }
  if (parsed.username !== "" || parsed.password !== "") return "may not hold a user or a password";
  if (parsed.pathname !== "/" || parsed.search !== "" || parsed.hash !== "") {
    return "may hold a host and a port only, no path";
  }
  const port = parsed.port === "" ? DEFAULT_PORT : Number(parsed.port);
  return { host: parsed.hostname.replace(/^\[|\]$/g, ""), port, url };
}

/** An HTTP proxy on the way to the hub. */
export interface HubProxy {
  readonly host: string;
  readonly port: number;
  /** `user:password`, decoded; "" for none. */
  readonly credentials: string;
  /** Without them: for messages. */
  readonly name: string;
}

const DEFAULT_PROXY_PORT = 80;

/** @returns what is wrong with it as a text, which does not repeat it: it may hold a password */
export function parseHubProxy(text: string): HubProxy | string {
  const url = URL.parse(text);
  if (url === null || url.hostname === "" || url.protocol !== "http:") {
    return 'must be a URL such as "http://proxy.example:3128": the way to the proxy is plain, what goes through it is TLS';
  }
  if (url.pathname !== "/" || url.search !== "" || url.hash !== "") return "must have no path";
  const [user, password] = [decoded(url.username), decoded(url.password)];
  if (user === undefined || password === undefined) return "has a user or a password with a % that is no escape";
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = url.port === "" ? DEFAULT_PROXY_PORT : Number(url.port);
  return {
    host,
    port,
    credentials: `${user}${password}` === "" ? "" : `${user}:${password}`,
    name: `http://${url.host}`,
  };
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** OpenSSL's codes for an answer to the handshake that is no TLS record. */
const NO_TLS_CODES: ReadonlySet<string> = new Set(["ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"]);

/** @returns the cause of a failed connection and how to mend it, if the peer speaks no TLS; undefined otherwise */
export function plainPortInstead(error: unknown): string | undefined {
  if (!NO_TLS_CODES.has(errnoOf(error))) return undefined;
  return "it speaks no TLS, so it is not a hub's port for boards: set hub.server to what picolet-hub has as --tunnel-address (port 10270 unless it says otherwise)";
}

/**
 * @param text of an answer, or its beginning. @returns what is wrong when it is a Kubernetes API server's; undefined:
 * it is not
 */
export function apiServerInstead(text: string, address: string): string | undefined {
  if (!/^\s*\{/.test(text) || !/"kind":\s*"Status"/.test(text)) return undefined;
  return `${address} is a Kubernetes API server, not a hub's port for boards: set hub.server to what picolet-hub has as --tunnel-address (port 10270 unless it says otherwise)`;
}
