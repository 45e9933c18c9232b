import { PicoletError } from "../../protocol/errors.ts";
import { TUNNEL_PATH } from "../../protocol/tunnel/messages.ts";

export interface HubAddress {
  /** Name or address, an IPv6 address without brackets. */
  readonly host: string;
  readonly port: number;
  /** Of the tunnel, below the hub's own. */
  readonly path: string;
  /** For people. */
  readonly url: string;
}

const DEFAULT_PORT = 443;

/** @param url `https:` or `wss:`, which are the same here. @throws `invalid` */
export function parseHubAddress(url: string): HubAddress {
  const parsed = URL.parse(url);
  if (parsed === null || !["https:", "wss:"].includes(parsed.protocol) || parsed.hostname === "") {
    throw new PicoletError("invalid", `cannot use ${url} as a hub: it is no https URL`);
  }
  return {
    host: parsed.hostname.replace(/^\[|\]$/g, ""),
    port: parsed.port === "" ? DEFAULT_PORT : Number(parsed.port),
    path: `${parsed.pathname.replace(/\/+$/, "")}${TUNNEL_PATH}`,
    url,
  };
}
