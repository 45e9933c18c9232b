/**
 * Dials a hub: TCP, TLS 1.3 with the node's certificate, a check of the hub's, and only then the WebSocket. Loaded when
 * there is a hub to dial: `node:tls` takes 1.8 MiB of anonymous memory, `ws` on top of it 0.3 (bundled, Node 24.21).
 */
import type { IncomingMessage } from "node:http";
import { isIPv6, type Socket } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { ignore, isPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, millis, seconds } from "@picolet/protocol/ports.ts";
import { MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import { TUNNEL_PATH, TUNNEL_SUBPROTOCOL } from "@picolet/protocol/tunnel/messages.ts";
import { type ClientOptions, WebSocket } from "ws";
import { apiServerInstead, type HubAddress, plainPortInstead } from "../../core/hub/hub-address.ts";
import type { NodeCredentials, NodeIdentity } from "../../core/hub/identity.ts";
import type { Connection, Dialer } from "./dialer.ts";
import { TunnelError } from "./tunnel-error.ts";
import { CLOSE_LIMIT_MS, WebSocketConnection } from "./web-socket-connection.ts";

/** Four round trips and 4 KB of certificates take 12 s at 2 s latency and 10 kbit/s. */
const DIAL_LIMIT = seconds(30);
/** A frame of the mux is one message in one WebSocket frame; only the network cuts it, at worst into single bytes. */
const MAX_FRAGMENTS = 1;
const MAX_CHUNKS = MAX_FRAME_BYTES + 64;
/** Bounds the text of a refusal. */
const MAX_REFUSAL_BYTES = 512;
/** More hubs than a configuration may name; the oldest ticket is dropped then. */
const MAX_TICKETS = 16;

/**
 * Alerts by which a TLS peer refuses a certificate (RFC 8446, section 6.2), as OpenSSL names them. They are encrypted
 * and come after the peer was authenticated, so that no one on the way can forge them.
 */
const CERTIFICATE_ALERT = /ALERT_(?:BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_\w+|UNKNOWN_CA|ACCESS_DENIED)$/;

/** A session ticket with which the next handshake with one hub needs no certificates. */
interface Ticket {
  readonly credentials: NodeCredentials;
  readonly session: Buffer;
  /** The chain of the full handshake: a resumed one shows only its first certificate. */
  readonly chain: readonly Uint8Array[];
}

/** `closeTimeout` is missing in the package's types. */
const WEB_SOCKET_OPTIONS: ClientOptions & { readonly closeTimeout: number } = {
  perMessageDeflate: false,
  maxPayload: MAX_FRAME_BYTES,
  maxFragments: MAX_FRAGMENTS,
  maxBufferedChunks: MAX_CHUNKS,
  closeTimeout: CLOSE_LIMIT_MS,
  // Masks keep a browser's bytes from looking like requests to a proxy in between. Inside of TLS there is none; a mask
  // of zeros saves a pass over every byte at both ends.
  generateMask: (mask: Buffer) => void mask.fill(0),
};

export interface TlsDialerComponents {
  readonly clock: Clock;
  readonly identity: Pick<NodeIdentity, "tlsOptions" | "verify">;
  /** Opens the connection below TLS through a proxy; undefined: there is none. @throws retryable `unavailable` */
  readonly openSocket?: ((hub: HubAddress, signal: AbortSignal) => Promise<Socket>) | undefined;
}

export class TlsDialer implements Dialer {
  readonly #clock: Clock;
  readonly #identity: Pick<NodeIdentity, "tlsOptions" | "verify">;
  readonly #openSocket: TlsDialerComponents["openSocket"];
  readonly #tickets = new Map<string, Ticket>();

  constructor(components: TlsDialerComponents) {
    this.#clock = components.clock;
    this.#identity = components.identity;
    this.#openSocket = components.openSocket;
  }

  dial(hub: HubAddress, credentials: NodeCredentials, signal: AbortSignal): Promise<Connection> {
    const task = (inner: AbortSignal): Promise<Connection> => this.#dial(hub, credentials, inner);
    return withDeadline(this.#clock, DIAL_LIMIT, `reach hub ${hub.url}`, task, signal);
  }

  async #dial(hub: HubAddress, credentials: NodeCredentials, signal: AbortSignal): Promise<Connection> {
    const below = await this.#openSocket?.(hub, signal).catch((error: unknown) => {
      throw toTunnelError(hub, error);
    });
    const socket = await this.#connect(hub, credentials, below, signal);
    try {
      return await upgrade(hub, socket, signal);
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  #connect(
    hub: HubAddress,
    credentials: NodeCredentials,
    below: Socket | undefined,
    signal: AbortSignal,
  ): Promise<TLSSocket> {
    const { host, port, url } = hub;
    const ticket = this.#ticketFor(url, credentials);
    return new Promise((resolve, reject) => {
      const socket = connect({
        ...this.#identity.tlsOptions(credentials, host),
        host,
        port,
        ...(below === undefined ? {} : { socket: below }),
        minVersion: "TLSv1.3",
        ...(ticket === undefined ? {} : { session: ticket.session }),
      });
      socket.setNoDelay(true);
      let chain: readonly Uint8Array[] = [];
      const fail = (error: unknown): void => {
        socket.destroy();
        reject(toTunnelError(hub, error));
      };
      const onAbort = (): void => fail(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      const settle = (): void => signal.removeEventListener("abort", onAbort);
      // Stays attached: the WebSocket's close reports later errors.
      socket.on("error", fail);
      socket.once("close", () => {
        settle();
        fail(new Error("the connection was closed"));
      });
      socket.once("secureConnect", () => {
        settle();
        try {
          chain = ticket !== undefined && socket.isSessionReused() ? ticket.chain : peerChain(socket);
          this.#identity.verify(chain, host);
          resolve(socket);
        } catch (error) {
          fail(error);
        }
      });
      // Comes when the hub has verified our certificate, maybe several times.
      socket.on("session", (session) => {
        if (chain.length > 0) this.#keep(url, { credentials, session, chain });
      });
      if (signal.aborted) onAbort();
    });
  }

  #ticketFor(url: string, credentials: NodeCredentials): Ticket | undefined {
    const ticket = this.#tickets.get(url);
    // A ticket stands for the certificate it was given to.
    return ticket?.credentials === credentials ? ticket : undefined;
  }

  #keep(url: string, ticket: Ticket): void {
    this.#tickets.delete(url);
    this.#tickets.set(url, ticket);
    const [oldest] = this.#tickets.keys();
    if (this.#tickets.size > MAX_TICKETS && oldest !== undefined) this.#tickets.delete(oldest);
  }
}

function toTunnelError(hub: HubAddress, error: unknown): unknown {
  if (isPicoletError(error, "cancelled")) return error;
  const message = `cannot connect to hub ${hub.url}`;
  if (isPicoletError(error)) return new TunnelError(error.code, message, { cause: error });
  const plain = plainPortInstead(error);
  if (plain !== undefined) return new TunnelError("unavailable", `${message}: ${plain}`);
  return new TunnelError("unavailable", message, { cause: error, isRefusal: isCertificateAlert(error) });
}

const isCertificateAlert = (error: unknown): boolean => CERTIFICATE_ALERT.test(errnoOf(error));

/** More certificates than any chain has. */
const MAX_CHAIN = 10;

/** DER, the hub's certificate first; ends at one that is its own issuer. */
function peerChain(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  let current = socket.getPeerCertificate(true);
  while (current?.raw !== undefined && chain.length < MAX_CHAIN) {
    chain.push(current.raw);
    if (current.issuerCertificate === current) break;
    current = current.issuerCertificate;
  }
  return chain;
}

function upgrade(hub: HubAddress, socket: TLSSocket, signal: AbortSignal): Promise<Connection> {
  const { host, port, url } = hub;
  return new Promise((resolve, reject) => {
    const authority = `${isIPv6(host) ? `[${host}]` : host}:${port}`;
    const options = { ...WEB_SOCKET_OPTIONS, createConnection: () => socket };
    // "ws:" since the socket does TLS already.
    const webSocket = new WebSocket(`ws://${authority}${TUNNEL_PATH}`, [TUNNEL_SUBPROTOCOL], options);
    const onAbort = (): void => webSocket.terminate();
    const settle = (): void => signal.removeEventListener("abort", onAbort);
    signal.addEventListener("abort", onAbort, { once: true });
    webSocket.once("open", () => {
      settle();
      webSocket.off("error", onError);
      // At once: what the hub has sent with its answer is read next.
      resolve(new WebSocketConnection(webSocket, socket));
    });
    const onError = (cause: unknown): void => {
      settle();
      const message = `cannot open a tunnel to hub ${url}`;
      reject(
        signal.aborted
          ? signal.reason
          : new TunnelError("unavailable", message, { cause, isRefusal: isCertificateAlert(cause) }),
      );
    };
    webSocket.on("error", onError);
    webSocket.once("unexpected-response", (_request, response) => {
      void refusalText(response).then((text) => {
        settle();
        reject(refusalError(url, response, text));
        webSocket.terminate();
      });
    });
  });
}

/** @returns the hub's message in one line; "" when it does not arrive at once */
async function refusalText(response: IncomingMessage): Promise<string> {
  try {
    for await (const chunk of response) {
      return (chunk as Buffer).subarray(0, MAX_REFUSAL_BYTES).toString().replace(/\s+/g, " ").trim();
    }
  } catch {
    ignore("the status says enough");
  }
  return "";
}

function refusalError(url: string, { statusCode = 0, headers }: IncomingMessage, text: string): TunnelError {
  const mistaken = apiServerInstead(text, url);
  if (mistaken !== undefined) return new TunnelError("invalid", mistaken);
  const message = `cannot open a tunnel to hub ${url}`;
  const cause = new Error(`the hub answered ${statusCode}${text === "" ? "" : `: ${text}`}`);
  const retryAfterSeconds = Number(headers["retry-after"] ?? 0);
  const retryAfter = millis(retryAfterSeconds > 0 ? retryAfterSeconds * 1000 : 0);
  switch (statusCode) {
    case 401:
    case 403:
      return new TunnelError("permission_denied", message, { cause, retryAfter, isRefusal: true });
    case 426:
      return new TunnelError("unimplemented", message, { cause, retryAfter });
    default:
      return new TunnelError("unavailable", message, { cause, retryAfter });
  }
}
