/** The TLS port that boards reach the hub on: joining, renewal and the tunnel. */
import { createServer, type Server } from "node:https";
import type { TlsOptions } from "node:tls";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Serving, ServingIdentity } from "./serving.ts";

export interface NodeServerComponents {
  readonly serving: Serving;
  /** PEM: the CAs of boards' certificates, named to boards in the handshake. */
  readonly clientCa: Watch<string>;
}

/** From connection to the end of the handshake: boards on bad radio links need some round trips. */
export const HANDSHAKE_TIMEOUT_MS = 30_000;
export const HEADERS_TIMEOUT_MS = 20_000;
export const REQUEST_TIMEOUT_MS = 30_000;
/** Sessions can be resumed for a day; whether the certificate still counts is asked each time. */
const SESSION_SECONDS = 86_400;
/** Keep-alive of requests other than the tunnel's: nonce, then renewal. */
const KEEP_ALIVE_TIMEOUT_MS = 10_000;
/** A join's head has 300 bytes. A longer one gets 431. */
export const MAX_HEADER_BYTES = 8192;
/** The one protocol below WebSocket and joining. */
const HTTP_1 = "http/1.1";

/**
 * Client certificates are asked for and judged by `NodeAuthenticator`, not by OpenSSL: one that ran out has to get as
 * far as its renewal, one that is missing as far as joining. Every other handler has to call `authenticate` first.
 * Sessions are resumed by tickets, whose keys live as long as the certificate: a ticket key is as good as every
 * client's key, so it is neither stored nor shared.
 */
export const nodeTlsOptions = (serving: ServingIdentity, clientCa: string): TlsOptions => ({
  cert: serving.certificateChain,
  key: serving.privateKey,
  ca: clientCa,
  requestCert: true,
  rejectUnauthorized: false,
  // Client certificates, and with them nodes' names, are encrypted from 1.3 on; both ends are ours.
  minVersion: "TLSv1.3",
  handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
  sessionTimeout: SESSION_SECONDS,
});

/** A server with those options; `follow` keeps it up to date. Handlers for `request` and `upgrade` are the caller's. */
export function createNodeServer({ serving, clientCa }: NodeServerComponents): Server {
  return createServer({
    ...nodeTlsOptions(serving.current, clientCa.current),
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    // Not `ALPNProtocols`, which is the default: of them each connection keeps a copy of its own in Node's pool of
    // small buffers, nine bytes that hold a slab of 64 KiB for as long as it is open (Node 24.21): 27 to 55 KiB for
    // each agent.
    ALPNCallback: ({ protocols }) => (protocols.includes(HTTP_1) ? HTTP_1 : undefined),
  });
}

/** Gives `server` each new certificate and client CA, for the connections that come then, until `signal` aborts. */
export async function followCertificates(
  server: Pick<Server, "setSecureContext">,
  { serving, clientCa }: NodeServerComponents,
  signal: AbortSignal,
): Promise<void> {
  using life = joinSignals(signal);
  const follow = async (changes: Watch<unknown>): Promise<void> => {
    for await (const _ of changes.changes(life.signal)) {
      server.setSecureContext(nodeTlsOptions(serving.current, clientCa.current));
    }
  };
  try {
    await Promise.all([follow(serving), follow(clientCa)]);
  } finally {
    life.abort();
  }
}
