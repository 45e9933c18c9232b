/** Where the images of a registry come from: its own address and those of its mirrors. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";

/** As configured, `wasm.registries`. */
export interface RegistryConfiguration {
  /** As images name it, with its port. */
  readonly host: string;
  /** Over plain HTTP. Those of the loopback are so unless they have a `caFile`. */
  readonly insecure?: boolean | undefined;
  /** PEM; trusted beside the machine's own authorities. Absolute. */
  readonly caFile?: string | undefined;
  /** URLs, asked before the registry itself; each by its own scheme. */
  readonly mirrors?: readonly string[] | undefined;
}

export interface RegistryEndpoint {
  /** With scheme, host and port, and the path before `/v2/`; no slash at its end. */
  readonly url: string;
  readonly caFile: string | undefined;
}

/** At least one; the registry itself is the last. */
export function endpointsOf(domain: string, configured: readonly RegistryConfiguration[]): readonly RegistryEndpoint[] {
  const found = configured.find(({ host }) => host === domain);
  const { insecure, caFile, mirrors = [] } = found ?? {};
  const isPlain = insecure ?? (caFile === undefined && isLoopback(hostnameOf(domain)));
  const own = `${isPlain ? "http" : "https"}://${domain}`;
  return [...mirrors.map((url) => ({ url: url.replace(/\/+$/, ""), caFile })), { url: own, caFile }];
}

/** @throws `invalid` for a name that no URL can have, such as a port above 65535 */
export function hostnameOf(domain: string): string {
  if (!URL.canParse(`http://${domain}`)) throw new PicoletError("invalid", `${domain} is no address of a registry`);
  return new URL(`http://${domain}`).hostname;
}

export const isLoopback = (hostname: string): boolean =>
  hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);
