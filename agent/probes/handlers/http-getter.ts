/**
 * GET requests of probes and hooks: one connection each, which is read no further than necessary. It uses `node:net`,
 * because with the agent's flags a request of `node:http` takes twice the CPU (246 µs, 128 here, 86 a bare socket) and
 * leaves more than twice the garbage (Node 24.21). `node:http` also refuses long heads, and its errors lack what the
 * kubelet's texts need.
 */
import { connect, type Socket, type TcpNetConnectOpts } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { type ConnectionEnds, connectionError, dialError, goQuote, joinHostPort } from "./go-text.ts";
import { type HttpRequest, redirectedRequest, requestText, urlOf } from "./http-request.ts";
import type { HttpResponse } from "./http-response.ts";
import { lookup } from "./lookup.ts";
import { isProbeTimeout } from "./probe-outcome.ts";

export interface HttpAnswer {
  readonly status: number;
  /** At most 10 KiB; "" unless the status is 3xx. */
  readonly body: string;
  /** Why the body could not be read to its end. */
  readonly bodyError: string | undefined;
}

/** The responses that lead on, when they say where to. */
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** Requests of one `get`, the first included. */
const MAX_REQUESTS = 10;
/** A probe's response fits into one read. All connections share the buffer, because each piece is processed at once. */
const READ_BUFFER_BYTES = 4096;

type Connect = (options: TcpNetConnectOpts) => Socket;

export class HttpGetter {
  #buffer: Buffer | undefined;
  #tls: Promise<Connect> | undefined;
  /** Loaded with the first request: a node without HTTP probes does not need it. */
  #response: Promise<typeof HttpResponse> | undefined;

  /**
   * Follows redirects to the same host. Certificates are not verified.
   * @throws Error with the text of Go's client, the URL included; when the signal aborts as well.
   */
  async get(request: HttpRequest, signal: AbortSignal): Promise<HttpAnswer> {
    let current = request;
    for (let sent = 1; ; sent += 1) {
      const { answer, location } = await this.#exchange(current, signal);
      if (location === "") return answer;
      const next = orFailed(urlOf(current), () => redirectedRequest(current, location));
      if (next.host.toLowerCase() !== request.host.toLowerCase()) return answer;
      if (sent >= MAX_REQUESTS) {
        throw new Error(`Get ${goQuote(location)}: stopped after ${MAX_REQUESTS} redirects`);
      }
      current = next;
    }
  }

  async #exchange(request: HttpRequest, signal: AbortSignal): Promise<Exchanged> {
    const url = urlOf(request);
    const text = orFailed(url, () => requestText(request));
    this.#buffer ??= Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
    const buffer = this.#buffer;
    this.#response ??= import("./http-response.ts").then((module) => module.HttpResponse);
    const response = new (await this.#response)();
    const open = request.scheme === "https" ? await this.#connectTls() : connect;
    return await new Promise((resolve, reject) => {
      const fail = (why: string): void => reject(new Error(`Get ${goQuote(url)}: ${why}`));
      new Exchange({ open, buffer, response, signal, resolve, fail }, request, text);
    });
  }

  #connectTls(): Promise<Connect> {
    this.#tls ??= tlsConnect();
    return this.#tls;
  }
}

/** Loaded when it is first needed: TLS takes 2 MiB, and a context of its own for each connection 100 KiB. */
async function tlsConnect(): Promise<Connect> {
  const { connect: connectTls, createSecureContext } = await import("node:tls");
  // Outdated ciphers are accepted: a probe only asks whether the server answers.
  const secureContext = createSecureContext({ ciphers: "DEFAULT@SECLEVEL=0" });
  const options: ConnectionOptions = { secureContext, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] };
  return (target) => connectTls({ ...(target as ConnectionOptions), ...options });
}

function orFailed<T>(url: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`Get ${goQuote(url)}: ${(error as Error).message}`);
  }
}

interface Exchanged {
  readonly answer: HttpAnswer;
  /** The target of a redirect; "" for any other response. */
  readonly location: string;
}

interface ExchangeInit {
  readonly open: Connect;
  readonly buffer: Buffer;
  readonly response: HttpResponse;
  readonly signal: AbortSignal;
  readonly resolve: (exchanged: Exchanged) => void;
  readonly fail: (why: string) => void;
}

/** One request and its response. */
class Exchange {
  readonly #init: ExchangeInit;
  readonly #request: HttpRequest;
  readonly #response: HttpResponse;
  readonly #socket: Socket;
  readonly #onAbort = (): void => this.#end(this.#abortText());
  #state: "dialing" | "handshaking" | "open" | "over" = "dialing";
  #local: Pick<ConnectionEnds, "localAddress" | "localPort"> = {};

  constructor(init: ExchangeInit, request: HttpRequest, text: string) {
    const { open, buffer, signal } = init;
    const { host, port, scheme } = request;
    this.#init = init;
    this.#response = init.response;
    this.#request = request;
    const onread = { buffer, callback: (count: number) => this.#read(buffer.subarray(0, count)) };
    this.#socket = open({ host, port, lookup, onread });
    signal.addEventListener("abort", this.#onAbort, { once: true });
    if (signal.aborted) this.#onAbort();
    this.#socket
      .on("connect", () => {
        const { localAddress, localPort } = this.#socket;
        this.#local = { localAddress, localPort };
        this.#become(scheme === "https" ? "handshaking" : "open");
        if (scheme === "http") this.#socket.write(text);
      })
      .on("secureConnect", () => {
        this.#become("open");
        this.#socket.write(text);
      })
      .on("error", (error) => this.#end(this.#errorText(error)))
      .on("end", () => this.#atEnd())
      .on("close", () => this.#atEnd());
  }

  #become(state: "handshaking" | "open"): void {
    if (this.#state !== "over") this.#state = state;
  }

  /** @returns whether to read on */
  #read(bytes: Buffer): boolean {
    if (this.#state === "over") return false;
    try {
      this.#response.feed(bytes);
    } catch (error) {
      this.#end((error as Error).message);
      return false;
    }
    if (this.#response.isDone) this.#end(undefined);
    return true;
  }

  #atEnd(): void {
    if (this.#state === "over") return;
    try {
      this.#response.end();
      this.#end(undefined);
    } catch (error) {
      this.#end((error as Error).message);
    }
  }

  #end(why: string | undefined): void {
    if (this.#state === "over") return;
    this.#state = "over";
    const { signal, resolve, fail } = this.#init;
    signal.removeEventListener("abort", this.#onAbort);
    this.#socket.destroy();
    const { status, body } = this.#response;
    if (status === undefined) fail(why ?? "EOF");
    else {
      const location = REDIRECTS.has(status) ? this.#response.location : "";
      resolve({ answer: { status, body, bodyError: why }, location });
    }
  }

  #abortText(): string {
    if (!isProbeTimeout(this.#init.signal)) return "context canceled";
    const { host, port } = this.#request;
    if (this.#response.status !== undefined) {
      return "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    }
    const what = this.#state === "dialing" ? dialTimeout(host, port) : "context deadline exceeded";
    return `${what} (Client.Timeout exceeded while awaiting headers)`;
  }

  #errorText(error: NodeJS.ErrnoException & { readonly reason?: string }): string {
    const { host, port } = this.#request;
    switch (this.#state) {
      case "dialing":
        return dialError(error, host, port);
      case "handshaking":
        return handshakeError(error) ?? connectionError(error, { ...this.#local, host, port });
      default:
        return connectionError(error, { ...this.#local, host, port });
    }
  }
}

export const dialTimeout = (host: string, port: number): string => `dial tcp ${joinHostPort(host, port)}: i/o timeout`;

/** The error after which a hook is repeated without TLS, as the kubelet does. */
export const PLAIN_ANSWER = "http: server gave HTTP response to HTTPS client";

/** `undefined` for an error of the connection below. */
function handshakeError(error: NodeJS.ErrnoException & { readonly reason?: string }): string | undefined {
  const { code = "", reason } = error;
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER" || code === "ERR_SSL_PACKET_LENGTH_TOO_LONG") return PLAIN_ANSWER;
  if (reason === undefined) return undefined;
  const alert = /alert (.*)$/.exec(reason)?.[1];
  return alert === undefined ? `tls: ${reason}` : `remote error: tls: ${alert}`;
}
