/** The kubelet's ports without authentication: 10248 (`/healthz`) and, off by default, 10255 (what only reads). */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";
import type { KubeletRoutes } from "./kubelet-routes.ts";
import { listenOnPort, portOf } from "./tcp-port.ts";

/** One thing that has to be well. */
export interface HealthCheck {
  /** As in `/healthz/<name>`. */
  readonly name: string;
  /** Answers at once, from memory. @returns why it is not well; undefined: it is */
  readonly problem: () => string | undefined;
}

export interface HealthPortComponents {
  readonly checks: readonly HealthCheck[];
  /** With it the kubelet's paths that only read are answered, to any client: for the read-only port. */
  readonly streams?: StreamHandlers;
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
interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Those of a kubelet's read-only port. Nothing here runs a command, shows a log or the configuration. */
const READ_ONLY_PATHS = /^\/(?:pods|stats|metrics|spec)(?:\/|$)/;

const NOT_FOUND: Answer = { status: 404, text: "404 page not found\n" };

export class HealthPort implements Component {
  readonly name: string;
  readonly #components: HealthPortComponents;
  readonly #init: HealthPortInit;
  readonly #stop = joinSignals();
  #server: Server | undefined;
  #routes: KubeletRoutes | undefined;

  constructor(components: HealthPortComponents, init: HealthPortInit) {
    this.name = components.streams === undefined ? "healthz port" : "read-only port";
    this.#components = components;
    this.#init = init;
  }

  /** The port on which it listens; undefined while it does not. */
  get port(): number | undefined {
    return portOf(this.#server);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const init = { part: this.name, ...this.#init };
    this.#server = await listenOnPort({ server: () => this.#makeServer(), clock, log }, init, signal);
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    this.#stop.abort();
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

  /** Loaded with the first request. Never throws. */
  async #read(streams: StreamHandlers, request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const { KubeletRoutes } = await import("./kubelet-routes.ts");
      this.#routes ??= new KubeletRoutes({ streams, clock: this.#components.clock });
      await this.#routes.request(request, response, this.#stop.signal);
    } catch {
      // No part of it could be loaded.
      response.destroy();
    }
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    response.setTimeout(ANSWER_TIMEOUT_MS, () => response.destroy());
    response.on("error", () => response.destroy());
    const { checks, streams } = this.#components;
    const [path = "", query = ""] = (request.url ?? "").split("?", 2);
    if (request.method !== "GET" && request.method !== "HEAD") {
      answer(response, { status: 405, text: "405 method not allowed\n" });
    } else if (streams !== undefined && READ_ONLY_PATHS.test(path)) {
      void this.#read(streams, request, response);
    } else answer(response, healthAnswer(checks, path, new URLSearchParams(query)));
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
