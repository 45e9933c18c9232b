import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { endAnswer } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { aborted, type JoinedSignal, joinSignals, wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { ApiError, DeviceReport } from "@picolet/protocol/local-api/status.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import type { UpdateControl } from "../core/node/update-control.ts";
import type { WhyAnswers } from "../core/node/why-answers.ts";
import type { ContainerLogs } from "../core/pods/container-logs.ts";
import type { NodeImages } from "../core/pods/image-pulls.ts";
import type { PodEnder, PodMover } from "../core/pods/pod-admission.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import type { KeyvalueBuckets } from "../core/store/keyvalue-buckets.ts";
import type { AgentView } from "./agent-view.ts";
import { type Answer, errorAnswer, HTTP_STATUS } from "./api-answers.ts";
import { ApiHandler } from "./api-handler.ts";
import type { KubeletRoutes } from "./kubelet-routes.ts";
import { listenOnSocket } from "./unix-socket.ts";

export interface LocalApiComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly view: AgentView;
  readonly logs: ContainerLogs;
  /** Takes pushed pods; `undefined`: they are refused. */
  readonly pushed?: PushedPods;
  /** `undefined`: a shutdown of the node cannot be requested. */
  readonly shutdown?: NodeShutdownControl;
  /** `undefined`: this agent updates nothing. */
  readonly updates?: UpdateControl;
  /** Missing: pods can neither be restarted nor deleted. */
  readonly workers?: PodEnder & PodMover;
  /** Missing: this agent records no decisions. */
  readonly why?: WhyAnswers;
  /** Missing: pulls are neither reported nor possible. */
  readonly images?: NodeImages;
  /** Missing: the board is not emptied by a request. */
  readonly factoryReset?: () => Promise<void>;
  /** Missing: this agent manages no devices. */
  readonly devices?: () => Promise<readonly DeviceReport[]>;
  /** Missing: components keep nothing on this node. */
  readonly keyvalue?: () => Promise<KeyvalueBuckets>;
  /** Answers the kubelet's paths; missing: they are not offered. */
  readonly streams?: StreamHandlers;
}

export interface LocalApiInit {
  readonly socketPath: string;
}

/** People and scripts on one board; each costs some 20 KiB. A further connection is closed at once. */
export const MAX_CONNECTIONS = 48;
/**
 * Bounds the connections that follow something, and those with a path of the kubelet, so that `status` always finds a
 * free one. A further one of either kind gets 429.
 */
export const MAX_STREAMS = 16;
/** Request line and headers; the longest proper one has two names of 253 characters. A longer one gets 431. */
const MAX_HEADER_BYTES = 8 * KIBIBYTE;
/** Bounds the time in which a client sends its headers, and its whole request. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_TIMEOUT_MS = 5_000;
/** The interval of checking those timeouts; Node's default of 30 s would double them. */
const TIMEOUT_CHECK_MS = 10_000;
/** Bounds how long a client may leave a finished answer unread; a client that follows may pause as long as it likes. */
const ANSWER_TIMEOUT_MS = 30_000;

/** The agent's own API; every other path is the kubelet's. */
const OWN_PATHS = /^\/v1(?:[/?]|$)/;

/**
 * The agent's API on a local socket: HTTP/1.1, JSON, `/v1/…` (protocol/local-api/status.ts has the shapes), and the
 * kubelet's paths. Who may open the socket may ask everything: its file mode is the access control.
 */
export class LocalApi implements Component {
  readonly name = "local api";
  readonly #log: Log;
  readonly #socketPath: string;
  readonly #handler: ApiHandler;
  readonly #clock: Clock;
  readonly #nodeStreams: StreamHandlers | undefined;
  #kubelet: KubeletRoutes | undefined;
  /** Connections that the server has given away; it closes the others. */
  readonly #upgraded = new Set<Duplex>();
  readonly #server: Server;
  readonly #stop: JoinedSignal = joinSignals();
  #streams = 0;
  #listening: Promise<() => void> | undefined;

  constructor(components: LocalApiComponents, init: LocalApiInit) {
    this.#log = components.log;
    this.#socketPath = init.socketPath;
    this.#handler = new ApiHandler(components);
    this.#clock = components.clock;
    this.#nodeStreams = components.streams;
    this.#server = createServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: HEADERS_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      },
      (message, response) => void this.#serve(message, response),
    );
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on("clientError", refuseGarbage);
    if (this.#nodeStreams !== undefined) {
      this.#server.on("upgrade", (message, socket, head) => void this.#upgrade(message, socket, head));
    }
  }

  /**
   * Opens the socket; `run` does it too. For a caller that must know at once that another agent has it.
   * @throws `conflict` when another agent answers there, `invalid`, `permission_denied`, `failed`.
   */
  async listen(): Promise<void> {
    this.#listening ??= listenOnSocket(this.#server, this.#socketPath);
    await this.#listening;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.listen();
    this.#log.info("local API listens", { socket: this.#socketPath });
    await aborted(signal);
    await this.#close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }

  async #close(): Promise<void> {
    this.#stop.abort();
    const listening = this.#listening;
    this.#listening = undefined;
    if (listening === undefined) return;
    const removeSocket = await listening.catch(ignore("`run` has reported it; there is no socket to remove"));
    if (removeSocket === undefined) return;
    removeSocket();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    for (const socket of this.#upgraded) socket.destroy();
    await closed;
  }

  async #serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    using request = joinSignals(this.#stop.signal);
    response.once("close", () => request.abort());
    response.on("error", () => request.abort());
    try {
      if (this.#nodeStreams !== undefined && !OWN_PATHS.test(message.url ?? "")) {
        const kubelet = await this.#kubeletRoutes(this.#nodeStreams);
        return await kubelet.request(message, response, this.#stop.signal);
      }
      const answer = await this.#handler.answer(message, request.signal);
      await this.#send(answer, response, request.signal);
    } catch (error) {
      this.#fail(error, message, response);
    }
  }

  async #upgrade(message: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    if (this.#nodeStreams === undefined) return;
    this.#upgraded.add(socket);
    socket.once("close", () => this.#upgraded.delete(socket));
    try {
      const kubelet = await this.#kubeletRoutes(this.#nodeStreams);
      await kubelet.upgrade(message, socket, head, this.#stop.signal);
    } catch (error) {
      this.#log.error("cannot answer a request", { url: message.url, error });
      socket.destroy();
    }
  }

  async #kubeletRoutes(streams: StreamHandlers): Promise<KubeletRoutes> {
    const { KubeletRoutes } = await import("./kubelet-routes.ts");
    this.#kubelet ??= new KubeletRoutes({ streams, clock: this.#clock });
    return this.#kubelet;
  }

  async #send(answer: Answer, response: ServerResponse, signal: AbortSignal): Promise<void> {
    switch (answer.kind) {
      case "json":
        response.setTimeout(ANSWER_TIMEOUT_MS, () => response.destroy());
        response.writeHead(answer.refused === true ? HTTP_STATUS.invalid : 200, { "content-type": "application/json" });
        response.end(`${JSON.stringify(answer.body)}\n`);
        return;
      case "bytes":
        response.setTimeout(ANSWER_TIMEOUT_MS, () => response.destroy());
        response.writeHead(200, { "content-type": "application/octet-stream", "content-length": answer.body.length });
        response.end(answer.body);
        return;
      case "pieces":
        response.setTimeout(ANSWER_TIMEOUT_MS, () => response.destroy());
        response.setHeader("content-type", "application/json");
        return await writeAll(answer.pieces, response, signal);
      case "stream":
        return await this.#stream(answer, response, signal);
      default:
        answer satisfies never;
    }
  }

  async #stream(
    answer: Extract<Answer, { kind: "stream" }>,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    if (this.#streams >= MAX_STREAMS) {
      throw new PicoletError("resource_exhausted", `${MAX_STREAMS} logs or watches are being followed already`);
    }
    this.#streams += 1;
    try {
      const chunks = await answer.open();
      response.setTimeout(0);
      response.setHeader("content-type", answer.contentType);
      if (answer.notice !== "") response.setHeader("picolet-notice", answer.notice);
      response.flushHeaders();
      await writeAll(chunks, response, signal);
    } finally {
      this.#streams -= 1;
    }
  }

  #fail(error: unknown, message: IncomingMessage, response: ServerResponse): void {
    if (response.destroyed || isCancelled(error)) {
      response.destroy();
      return;
    }
    const { code, status, body: content } = errorAnswer(error);
    if (code === "internal") this.#log.error("cannot answer a request", { url: message.url, error });
    const body = `${JSON.stringify(content)}\n`;
    if (!response.headersSent) {
      void endAnswer(response, status, { "content-type": "application/json", connection: "close" }, body);
    } else if (response.getHeader("content-type") === "application/x-ndjson") {
      response.end(`{"type":"ERROR",${body.slice(1)}`);
    } else {
      // A raw stream has no place for an error: cut short, so that the client sees that it is not whole.
      this.#log.warn("stream broke off", { url: message.url, error });
      response.destroy();
    }
  }
}

/** Never more than one chunk ahead of what the client takes. Returns, without an error, when the client has gone. */
async function writeAll(
  chunks: Iterable<string> | AsyncIterable<string | Uint8Array>,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  for await (const chunk of chunks) {
    if (signal.aborted) return;
    if (!response.write(chunk)) await drained(response, signal);
  }
  if (!signal.aborted) response.end();
}

function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  return wokenOrAborted(signal, (wake) => {
    response.once("drain", wake);
    return () => response.removeListener("drain", wake);
  });
}

/** What is no HTTP, or above a limit of HTTP's, never reaches a handler. */
function refuseGarbage(error: Error & { readonly code?: string }, socket: Socket): void {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
    return;
  }
  const [status, message] =
    error.code === "HPE_HEADER_OVERFLOW"
      ? ["431 Request Header Fields Too Large", `the request's head is larger than ${MAX_HEADER_BYTES} bytes`]
      : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? ["408 Request Timeout", "the request did not come in time"]
        : ["400 Bad Request", "this is no HTTP request"];
  const body = `${JSON.stringify({ error: { code: "invalid", message } } satisfies ApiError)}\n`;
  const head = `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\nconnection: close\r\n`;
  socket.end(`${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`, () => socket.destroy());
}
