/**
 * Chooses the proxy of a request by the rules that containerd's users know (Go's httpproxy): `httpsProxy` for HTTPS,
 * `httpProxy` for HTTP, none for the loopback and for hosts in `noProxy`. Pure.
 */
import { BlockList, isIP } from "node:net";

/** As configured, `wasm.proxy`, or in the agent's environment; "" for none. */
export interface ProxySettings {
  /** A URL, or `host:port`. */
  readonly httpProxy: string;
  readonly httpsProxy: string;
  /** Divided by commas: `*`, `host`, `.domain`, addresses, networks; all but networks with a port or without. */
  readonly noProxy: string;
}

export interface RegistryProxy {
  /** With user and password, which are for it alone. */
  readonly url: URL;
  /** Without them: for messages. */
  readonly name: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** The names in capitals go first, as with Go. */
export function proxiesOf(environment: Environment): ProxySettings {
  const named = (name: string): string => environment[name] || environment[name.toLowerCase()] || "";
  return { httpProxy: named("HTTP_PROXY"), httpsProxy: named("HTTPS_PROXY"), noProxy: named("NO_PROXY") };
}

/** @returns why it can be no proxy; undefined: it can. */
export function proxyProblem(text: string): string | undefined {
  const url = urlOf(text);
  if (url === undefined) return 'must be a URL such as "http://proxy.example:3128"';
  if (url.protocol !== "http:" && url.protocol !== "https:")
    return "must be an http or https URL: SOCKS is not spoken here";
  if (url.pathname !== "/" || url.search !== "" || url.hash !== "") return "must have no path";
  return undefined;
}

/** @returns undefined when `target` is called directly. An invalid proxy counts as none: see `proxyProblem`. */
export function proxyFor(target: URL, { httpProxy, httpsProxy, noProxy }: ProxySettings): RegistryProxy | undefined {
  const text = target.protocol === "https:" ? httpsProxy : httpProxy;
  if (text === "" || proxyProblem(text) !== undefined || isExempt(target, noProxy)) return undefined;
  const url = urlOf(text);
  return url && { url, name: `${url.protocol}//${url.host}` };
}

function urlOf(text: string): URL | undefined {
  const trimmed = text.trim();
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`;
  if (!URL.canParse(full)) return undefined;
  const url = new URL(full);
  return url.hostname === "" ? undefined : url;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { "http:": "80", "https:": "443" };

function isExempt(target: URL, noProxy: string): boolean {
  const host = bare(target.hostname).replace(/\.$/, "");
  const port = target.port || DEFAULT_PORTS[target.protocol] || "";
  if (host === "localhost" || isLoopback(host)) return true;
  return noProxy
    .split(",")
    .map((each) => each.trim().toLowerCase())
    .some((each) => each !== "" && matches(each, host, port));
}

function isLoopback(host: string): boolean {
  const family = isIP(host);
  return (family === 4 && host.startsWith("127.")) || (family === 6 && host === "::1");
}

function matches(entry: string, host: string, port: string): boolean {
  if (entry === "*") return true;
  const network = /^([0-9a-f.:]+)\/(\d{1,3})$/.exec(entry);
  if (network !== null) return isWithin(host, network[1] ?? "", Number(network[2]));
  if (isIP(bare(entry)) !== 0) return sameAddress(bare(entry), host);
  const [, name = entry, wanted] = /^(.*?):(\d{1,5})$/.exec(entry) ?? [];
  if (wanted !== undefined && wanted !== port) return false;
  if (isIP(bare(name)) !== 0) return sameAddress(bare(name), host);
  const suffix = name.replace(/^\*\./, ".");
  // `.example.com` matches names below it; `example.com` itself too.
  return suffix.startsWith(".")
    ? suffix !== "." && host.endsWith(suffix)
    : host === suffix || host.endsWith(`.${suffix}`);
}

const bare = (host: string): string => host.replace(/^\[|\]$/g, "");

function sameAddress(one: string, other: string): boolean {
  const family = isIP(one);
  return family === isIP(other) && isWithin(other, one, family === 4 ? 32 : 128);
}

function isWithin(host: string, network: string, prefix: number): boolean {
  const family = isIP(network);
  if (family === 0 || isIP(host) !== family || prefix > (family === 4 ? 32 : 128)) return false;
  const type = family === 4 ? "ipv4" : "ipv6";
  const list = new BlockList();
  list.addSubnet(network, prefix, type);
  return list.check(host, type);
}
