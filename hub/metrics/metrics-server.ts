import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { answerFailure, httpFailure } from "@picolet/kubelet-api/serving/http-answers.ts";
import type { KubeletUser } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { ListenAddress } from "@picolet/protocol/command-line/flag-values.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { formatOf, OPENMETRICS_TEXT, PROMETHEUS_TEXT } from "@picolet/protocol/metrics/content-type.ts";
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { MetricsAccess, MetricsQuestion } from "./metrics-access.ts";

/** PEM. */
export interface MetricsTls {
  readonly certificateChain: string;
  readonly privateKey: string;
}

/** One request, whose user is known. */
export interface MetricsCall {
  readonly url: URL;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** @throws `permission_denied` */
  readonly require: (question: MetricsQuestion) => Promise<void>;
  readonly signal: AbortSignal;
}

/** @returns false when the path is none of it; nothing was done then */
export type MetricsHandler = (call: MetricsCall) => boolean | Promise<boolean>;

export interface MetricsServerComponents {
  readonly handlers: readonly MetricsHandler[];
  /** Undefined: the address is loopback's, plain HTTP, and any process of this machine may read. */
  readonly secure: { readonly tls: Watch<MetricsTls>; readonly access: MetricsAccess } | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

const HANDSHAKE_TIMEOUT_MS = 10_000;
const HEADERS_TIMEOUT_MS = 10_000;
/** Requests have no body. */
const REQUEST_TIMEOUT_MS = 15_000;
/** Scrapers come every 15 to 60 s. */
const KEEP_ALIVE_TIMEOUT_MS = 90_000;
const MAX_HEADER_BYTES = 32 * KIBIBYTE;
/** Some Prometheus servers, API servers of a cluster, people. Beyond it the client with most connections gives way. */
export const METRICS_PORT_LIMITS = { name: "metrics port", maxConnections: 256, maxPending: 64 };
/** Answers at a time: each has some 100 KiB in memory. Beyond it: 429. */
const MAX_ANSWERS = 16;
/** Answers to one user at a time or, on loopback, to all. */
const MAX_USER_ANSWERS = 8;
/** A client that takes longer for its answer is disconnected. */
const ANSWER_LIMIT = millis(60_000);
/** Loopback's names: a page in a browser that resolves its own name to 127.0.0.1 is not answered. */
const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const LOCAL_USER: KubeletUser = { name: "loopback", groups: [] };

/** Answers scrapers: a port of its own, so that metrics can be open to others than boards and kubectl. */
export class MetricsServer implements Component {
  readonly name = "metrics port";
  readonly #components: MetricsServerComponents;
  readonly #server: Server | TlsServer;
  readonly #gate: ConnectionGate;
  readonly #stop = joinSignals();
  readonly #answering = new Map<string, number>();
  #answers = 0;

  constructor(components: MetricsServerComponents) {
    this.#components = components;
    const { secure } = components;
    const options = {
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
    };
    this.#server =
      secure === undefined ? createServer(options) : createTlsServer({ ...options, ...secureOptions(secure) });
    this.#gate = new ConnectionGate(components, METRICS_PORT_LIMITS);
    this.#gate.guard(this.#server);
    this.#server.on("request", (request, response) => void this.#request(request, response));
    this.#server.on("clientError", (_error, socket) => socket.destroy());
  }

  /** @returns the port. @throws `unavailable` */
  async listen({ host, port }: ListenAddress): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (cause) =>
        reject(new PicoletError("unavailable", `cannot listen on ${host}:${port} for metrics`, { cause })),
      );
      this.#server.listen({ host, port }, resolve);
    });
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new PicoletError("internal", "the socket has no port");
    return address.port;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { secure } = this.#components;
    if (secure === undefined) return await aborted(signal);
    for await (const _ of secure.tls.changes(signal))
      (this.#server as TlsServer).setSecureContext(secureOptions(secure));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  async #request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock } = this.#components;
    using life = joinSignals(this.#stop.signal);
    response.once("close", () => life.abort());
    response.on("error", () => life.abort());
    clock.sleep(ANSWER_LIMIT, life.signal).then(() => response.destroy(), ignore("it was answered in time"));
    let user: string | undefined;
    try {
      if (request.method !== "GET") throw new PicoletError("unimplemented", "only GET is offered here");
      const known = await this.#userOf(request, life.signal);
      user = this.#begin(known.name);
      await this.#answer(known, request, response, life.signal);
    } catch (error) {
      answerFailure(response, httpFailure(error));
    } finally {
      if (user !== undefined) this.#end(user);
      life.abort();
    }
  }

  async #userOf(request: IncomingMessage, signal: AbortSignal): Promise<KubeletUser> {
    const { secure } = this.#components;
    if (secure === undefined) {
      if (LOOPBACK_HOST.test(request.headers.host ?? "")) return LOCAL_USER;
      throw new PicoletError("permission_denied", "metrics are served here as localhost or 127.0.0.1 alone");
    }
    const user = await secure.access.userOf(request, signal);
    this.#gate.admit(request.socket, user.name);
    return user;
  }

  #begin(user: string): string {
    const own = this.#answering.get(user) ?? 0;
    if (this.#answers >= MAX_ANSWERS || own >= MAX_USER_ANSWERS) {
      throw new PicoletError("resource_exhausted", "too many requests for metrics at a time; try again later");
    }
    this.#answers += 1;
    this.#answering.set(user, own + 1);
    return user;
  }

  #end(user: string): void {
    this.#answers -= 1;
    const left = (this.#answering.get(user) ?? 1) - 1;
    if (left > 0) this.#answering.set(user, left);
    else this.#answering.delete(user);
  }

  async #answer(
    user: KubeletUser,
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const { secure, handlers } = this.#components;
    const url = URL.parse(request.url ?? "", "http://hub");
    if (url === null) throw new PicoletError("invalid", "the path is none");
    const require = async (question: MetricsQuestion): Promise<void> => {
      await secure?.access.require(user, question, signal);
    };
    for (const handle of handlers) if (await handle({ url, request, response, require, signal })) return;
    throw new PicoletError("not_found", `there is nothing at ${url.pathname.slice(0, 200)}`);
  }
}

const secureOptions = ({ tls, access }: NonNullable<MetricsServerComponents["secure"]>) => ({
  cert: tls.current.certificateChain,
  key: tls.current.privateKey,
  ca: access.clientCas,
  minVersion: "TLSv1.2" as const,
  requestCert: true,
  // Judged with each request: a token may do instead.
  rejectUnauthorized: false,
});

/** Characters that are made in one turn of the event loop: about 2 ms. */
const SLICE_CHARACTERS = 64 * 1024;

/**
 * Answers one path with the text that `pieces` gives, in the format that the client asks for: made while the client
 * takes it, in turns with other work of the hub.
 * @param pieces throws `invalid` for what is wrong with the query, before it gives anything
 */
export const textHandler =
  (
    path: string,
    pieces: (format: "prometheus" | "openmetrics", query: URLSearchParams) => Iterable<string>,
  ): MetricsHandler =>
  async ({ url, request, response, require, signal }) => {
    if (url.pathname !== path) return false;
    await require({ verb: "get", path });
    const format = formatOf(request.headers.accept ?? "");
    const text = pieces(format, url.searchParams);
    const isZipped = /\bgzip\b/.test(String(request.headers["accept-encoding"] ?? ""));
    response.writeHead(200, {
      "content-type": format === "openmetrics" ? OPENMETRICS_TEXT : PROMETHEUS_TEXT,
      ...(isZipped ? { "content-encoding": "gzip" } : {}),
    });
    const body = Readable.from(slices(text));
    if (isZipped) await pipeline(body, createGzip({ level: 1 }), response, { signal });
    else await pipeline(body, response, { signal });
    return true;
  };

async function* slices(pieces: Iterable<string>): AsyncGenerator<Buffer> {
  let gathered: string[] = [];
  let length = 0;
  for (const piece of pieces) {
    gathered.push(piece);
    length += piece.length;
    if (length < SLICE_CHARACTERS) continue;
    yield Buffer.from(gathered.join(""));
    gathered = [];
    length = 0;
    await new Promise(setImmediate);
  }
  if (length > 0) yield Buffer.from(gathered.join(""));
}
