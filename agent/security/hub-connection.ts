/** One TLS connection to a hub for a request or two: joining, renewal, CAs, time. */
import { Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import { isIP, type Socket } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";
import { MAX_JOIN_ANSWER_BYTES } from "@picolet/protocol/pki/join-messages.ts";
import { apiServerInstead, plainPortInstead } from "../core/hub/hub-address.ts";

export interface HubEndpoint {
  readonly host: string;
  readonly port: number;
}

export interface ClientPair {
  readonly cert: string;
  readonly key: string;
}

/** Opens the connection below TLS through a proxy. @throws retryable `unavailable` */
export type OpenSocket = (hub: HubEndpoint, signal: AbortSignal) => Promise<Socket>;

/** Bounds the chain: a hub sends its certificate and perhaps two above it. */
const MAX_PEER_CHAIN = 8;

/**
 * A TLS connection whose peer is only known to have the key of its certificate: the caller must verify `peerChain`
 * before it sends or trusts anything that matters.
 */
export class HubConnection implements Disposable {
  /** DER, the peer's own first; taken while the connection stands. */
  readonly peerChain: readonly Uint8Array[];
  readonly #socket: TLSSocket;
  readonly #agent: Agent;
  readonly #address: HubEndpoint;

  private constructor(socket: TLSSocket, address: HubEndpoint) {
    this.#socket = socket;
    this.#address = address;
    this.peerChain = peerChainOf(socket);
    this.#agent = new Agent({ keepAlive: true, maxSockets: 1 });
    // All requests use this one socket.
    this.#agent.createConnection = () => socket;
    // There is no other listener between requests; the next request finds the socket closed.
    socket.on("error", () => socket.destroy());
  }

  /** @param openSocket undefined: the hub is reached directly. @throws retryable `unavailable` */
  static async open(
    { host, port }: HubEndpoint,
    pair: ClientPair | undefined,
    signal: AbortSignal,
    openSocket?: OpenSocket,
  ): Promise<HubConnection> {
    const below = await openSocket?.({ host, port }, signal);
    return await new Promise((resolve, reject) => {
      if (signal.aborted) {
        below?.destroy();
        return reject(cancelled("the connection"));
      }
      const socket = connect({
        host,
        port,
        ...(below === undefined ? {} : { socket: below }),
        ...(isIP(host) === 0 ? { servername: host } : {}),
        ...pair,
        minVersion: "TLSv1.3",
        // The caller verifies the chain: OpenSSL would use the machine's clock.
        rejectUnauthorized: false,
        ALPNProtocols: ["http/1.1"],
      });
      const abort = (): void => void socket.destroy(cancelled("the connection"));
      const fail = (cause: unknown): void => {
        signal.removeEventListener("abort", abort);
        socket.destroy();
        if (signal.aborted) reject(cancelled("the connection"));
        else reject(connectError(`${host}:${port}`, cause));
      };
      signal.addEventListener("abort", abort, { once: true });
      socket.once("error", fail);
      socket.once("close", fail);
      socket.once("secureConnect", () => {
        signal.removeEventListener("abort", abort);
        socket.removeListener("error", fail);
        socket.removeListener("close", fail);
        resolve(new HubConnection(socket, { host, port }));
      });
    });
  }

  /** @throws what the hub refused it with, `unavailable` when the connection fails */
  get(path: string, signal: AbortSignal): Promise<string> {
    return this.#exchange("GET", path, undefined, signal);
  }

  /** @returns a JSON object. @throws as `get`, and `invalid` when it is none */
  async post(path: string, body: object, signal: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
    return parseObject(await this.#exchange("POST", path, JSON.stringify(body), signal));
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
    this.#socket.destroy();
  }

  #exchange(method: string, path: string, body: string | undefined, signal: AbortSignal): Promise<string> {
    const { host, port } = this.#address;
    return new Promise((resolve, reject) => {
      const fail = (cause: unknown): void => {
        if (signal.aborted) reject(cancelled("the request"));
        else if (cause instanceof PicoletError) reject(cause);
        else reject(new PicoletError("unavailable", "the connection to the hub broke", { cause, retryable: true }));
      };
      const headers = { host, ...(body === undefined ? {} : { "content-type": "application/json" }) };
      const sent: ClientRequest = request({ agent: this.#agent, method, path, headers, signal }, (response) => {
        readAll(response).then((text) => {
          if (response.statusCode === 200) return resolve(text);
          const mistaken = apiServerInstead(text, `${host}:${port}`);
          if (mistaken === undefined) reject(refusalOf(response.statusCode ?? 0, text));
          else reject(new PicoletError("invalid", mistaken));
        }, fail);
      });
      sent.on("error", fail);
      sent.end(body);
    });
  }
}

function connectError(address: string, cause: unknown): PicoletError {
  const plain = plainPortInstead(cause);
  const message = `cannot connect to ${address}`;
  if (plain === undefined) return new PicoletError("unavailable", message, { cause, retryable: true });
  return new PicoletError("unavailable", `${message}: ${plain}`, { retryable: true });
}

function peerChainOf(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  let certificate = socket.getPeerX509Certificate();
  for (; certificate !== undefined && chain.length < MAX_PEER_CHAIN; certificate = certificate.issuerCertificate) {
    chain.push(certificate.raw);
  }
  return chain;
}

async function readAll(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_JOIN_ANSWER_BYTES) throw new PicoletError("invalid", "the hub's answer is too long");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** @throws `invalid` */
export function parseObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new PicoletError("invalid", "the hub's answer is no JSON", { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new PicoletError("invalid", "the hub's answer is no JSON object");
  }
  return value as Readonly<Record<string, unknown>>;
}

/** The codes that a hub may send; with any other only the HTTP status counts. */
const CODES: readonly ErrorCode[] = [
  "invalid",
  "permission_denied",
  "unimplemented",
  "conflict",
  "resource_exhausted",
  "unavailable",
  "deadline_exceeded",
];
const MAX_MESSAGE_LENGTH = 500;

export function refusalOf(status: number, text: string): PicoletError {
  let error: unknown;
  try {
    ({ error } = parseObject(text));
  } catch {
    error = undefined;
  }
  const { code, message } = typeof error === "object" && error !== null ? (error as Record<string, unknown>) : {};
  const known = CODES.find((each) => each === code) ?? (status >= 500 || status === 429 ? "unavailable" : "failed");
  const said =
    typeof message === "string" && message !== "" ? message.slice(0, MAX_MESSAGE_LENGTH) : `status ${status}`;
  const retryable = ["unavailable", "resource_exhausted", "deadline_exceeded"].includes(known);
  return new PicoletError(known, `the hub refused: ${said}`, { retryable });
}
