/** The kubelet's ports for monitoring of the node: 10248 (`/healthz`) and, off by default, 10255 (`/pods` too). */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { PROMETHEUS_TEXT } from "@picolet/protocol/metrics/content-type.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { AgentView } from "./agent-view.ts";
import { listenPatiently } from "./listen-patiently.ts";
import { listPieces, podsOf } from "./watches.ts";

/** One thing that has to be well. */
export interface HealthCheck {
  /** As in `/healthz/<name>`. */
  readonly name: string;
  /** Answers at once, from memory. @returns why it is not well; undefined: it is */
  readonly problem: () => string | undefined;
}

export interface HealthPortComponents {
  readonly checks: readonly HealthCheck[];
  /** With it `/pods` is answered too, without asking who wants to know: for the read-only port. */
  readonly view?: AgentView;
  /** With it `/metrics/probes` is answered, in Prometheus' text format. */
  readonly probeMetrics?: () => Iterable<string> | Promise<Iterable<string>>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface HealthPortInit {
  readonly address: string;
  readonly port: number;
}

/** Probes and a person or two. A further connection is closed at once. */
const MAX_CONNECTIONS = 16;
const MAX_HEADER_BYTES = 4096;
const REQUEST_TIMEOUT_MS = 5000;
const KEEP_ALIVE_TIMEOUT_MS = 2000;
/** A client that takes nothing of an answer for so long is let go. */
const ANSWER_TIMEOUT_MS = 10_000;
/** The wait before a port in use, or an address that does not exist yet, is tried again, as by the kubelet. */
const RETRY = seconds(5);

interface Answer {
  readonly status: number;
  readonly text: string;
}

const NOT_FOUND: Answer = { status: 404, text: "404 page not found\n" };

export class HealthPort implements Component {
  readonly name: string;
  readonly #components: HealthPortComponents;
  readonly #init: HealthPortInit;
  #server: Server | undefined;

  constructor(components: HealthPortComponents, init: HealthPortInit) {
    this.name = components.view === undefined ? "healthz port" : "read-only port";
    this.#components = components;
    this.#init = init;
  }

  /** The address on which it listens; undefined while it does not. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" ? address?.port : undefined;
  }

  async run(signal: AbortSignal): Promise<void> {
    const server = this.#makeServer();
    const { name: part } = this;
    await listenPatiently(server, this.#components, { part, ...this.#init, retry: RETRY }, signal);
    this.#server = server;
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
  }

  #makeServer(): Server {
    const server = createServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: REQUEST_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      },
      (request, response) => this.#serve(request, response),
    );
    server.maxConnections = MAX_CONNECTIONS;
    return server;
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    response.setTimeout(ANSWER_TIMEOUT_MS, () => response.destroy());
    response.on("error", () => response.destroy());
    const { view, checks, probeMetrics } = this.#components;
    const [path = "", query = ""] = (request.url ?? "").split("?", 2);
    if (request.method !== "GET" && request.method !== "HEAD") {
      answer(response, { status: 405, text: "405 method not allowed\n" });
    } else if (path === "/pods" && view !== undefined) {
      void answerInPieces(response, "application/json", listPieces("PodList", "", podsOf(view, undefined)));
    } else if (path === "/metrics/probes" && probeMetrics !== undefined) {
      void answerInPieces(response, PROMETHEUS_TEXT, probeMetrics());
    } else answer(response, healthAnswer(checks, path, new URLSearchParams(query)));
  }
}

/** Never throws. @param pieces made as they are taken */
async function answerInPieces(
  response: ServerResponse,
  contentType: string,
  pieces: Iterable<string> | Promise<Iterable<string>>,
): Promise<void> {
  try {
    response.setHeader("content-type", contentType);
    await pipeline(Readable.from(await pieces), response);
  } catch {
    // The client has disconnected; the rest of its answer is not made.
    response.destroy();
  }
}

function answer(response: ServerResponse, { status, text }: Answer): void {
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
    "content-length": Buffer.byteLength(text),
  });
  response.end(text);
}

/**
 * As Kubernetes' components answer: `ok`, or 500 with a line for each check. `?verbose` shows the lines in any case,
 * `?exclude=<name>` leaves one out, `/healthz/<name>` asks for one. Unlike theirs the lines say why. Pure.
 */
export function healthAnswer(checks: readonly HealthCheck[], path: string, query: URLSearchParams): Answer {
  const [, one] = /^\/healthz\/([^/]+)$/.exec(path) ?? [];
  if (path !== "/healthz" && path !== "/healthz/" && one === undefined) return NOT_FOUND;
  const excluded = new Set(query.getAll("exclude"));
  const asked = checks.filter(({ name }) => (one === undefined ? !excluded.has(name) : name === one));
  if (one !== undefined && asked.length === 0) return NOT_FOUND;
  const results = asked.map(({ name, problem }) => ({ name, why: problem() }));
  const isWell = results.every(({ why }) => why === undefined);
  if (isWell && !query.has("verbose")) return { status: 200, text: "ok" };
  const lines = results.map(({ name, why }) => (why === undefined ? `[+]${name} ok` : `[-]${name} failed: ${why}`));
  const all = [...lines, `healthz check ${isWell ? "passed" : "failed"}`];
  return { status: isWell ? 200 : 500, text: `${all.join("\n")}\n` };
}
