/**
 * The connection to a hub through an HTTP proxy, by CONNECT (RFC 9110, section 9.3.6). The proxy learns the hub's name
 * and port; TLS between board and hub runs inside. Loaded only where `hub.proxy` is set.
 */
import { request } from "node:http";
import { isIPv6, type Socket } from "node:net";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { HubAddress, HubProxy } from "../../core/hub/hub-address.ts";

const PROXY_AUTHENTICATION_REQUIRED = 407;

/** @throws retryable `unavailable` with the proxy's name, never with its password; `cancelled` */
export function connectThrough(
  { host, port, credentials, name }: HubProxy,
  hub: Pick<HubAddress, "host" | "port">,
  signal: AbortSignal,
): Promise<Socket> {
  const target = `${isIPv6(hub.host) ? `[${hub.host}]` : hub.host}:${hub.port}`;
  const authorization = { "proxy-authorization": `Basic ${Buffer.from(credentials).toString("base64")}` };
  const headers = { host: target, ...(credentials === "" ? {} : authorization) };
  return new Promise((resolve, reject) => {
    const asked = request({ host, port, method: "CONNECT", path: target, headers, agent: false, signal });
    const fail = ({ why = "", ...cause }: { readonly why?: string; readonly cause?: unknown }): void => {
      const message = `cannot reach ${target} through the proxy ${name}${why}`;
      const error = new PicoletError("unavailable", message, { ...cause, retryable: true });
      reject(signal.aborted ? cancelled("the connection") : error);
    };
    asked.on("error", (cause) => fail({ cause }));
    asked.once("connect", ({ statusCode = 0 }, socket, head) => {
      if (statusCode < 200 || statusCode >= 300) {
        socket.destroy();
        return fail({ why: refusalOf(statusCode) });
      }
      socket.setNoDelay(true);
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    asked.end();
  });
}

const refusalOf = (status: number): string =>
  status === PROXY_AUTHENTICATION_REQUIRED
    ? ": it wants a user and a password, or others (407): set them in hub.proxy"
    : `: it refuses (${status})`;
