/**
 * HTTP/1.1 on the container's port, by Node's own server: its parser has met the hostile clients of years. What it leaves
 * open is bounded here. Nothing here ends gracefully: SIGTERM ends the process, as with every component.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { PicoletError } from "../../../protocol/errors.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import { errnoOf } from "../host/failure.ts";
import { Exchange } from "./exchange.ts";
import type { InstancePool } from "./instance-pool.ts";

/** As nginx and Node have it; Node's own server answers 431 beyond. */
const MAX_HEADER_BYTES = 16_384;
const MAX_HEADERS = 128;
/** A client that sends its head, or all of its request, slower than this is cut off. */
const HEADERS_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 15_000;
/** How often both are looked at. */
const CHECK_MS = 1000;
/** Connections; each costs some 20 KiB, and a file descriptor. More wait in the kernel, and are closed by Node. */
const MAX_CONNECTIONS = 512;
/** Requests of one connection that are not answered yet; who pipelines more is cut off. */
const MAX_PIPELINED = 16;
/** Of a body that the component reads, and of a client that takes nothing. */
const IDLE_MS = 30_000;
/** What a socket holds before the component is held back, each way. */
const HIGH_WATER_BYTES = 65_536;

/** @throws `failed` when the port cannot be had; @returns the server, which listens */
export async function serveHttp(options: ServeOptions, pool: Pick<InstancePool, "take" | "tick">): Promise<Server> {
  const { createServer } = process.getBuiltinModule("node:http");
  const { port, maxBodyBytes, timeoutMs } = options;
  const limits = { maxBodyBytes, idleMs: IDLE_MS };
  const server = createServer({
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: Math.min(timeoutMs, HEADERS_TIMEOUT_MS),
    requestTimeout: timeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: CHECK_MS,
    highWaterMark: HIGH_WATER_BYTES,
    noDelay: true,
    requireHostHeader: true,
    insecureHTTPParser: false,
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.maxHeadersCount = MAX_HEADERS;
  // A client that takes none of its response: the socket's own time runs while nothing moves.
  server.setTimeout(IDLE_MS + timeoutMs);
  const pipelined = new WeakMap<Socket, number>();
  const taken = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    if (!countPipelined(pipelined, request.socket, response)) return;
    const exchange = new Exchange(request, response, limits, expectsContinue);
    const announced = Number(request.headers["content-length"] ?? 0);
    if (announced > maxBodyBytes) exchange.answer(413, { connection: "close" });
    else pool.take(exchange);
  };
  server.on("request", (request, response) => taken(request, response, false));
  server.on("checkContinue", (request, response) => taken(request, response, true));
  await listening(server, port);
  const ticking = setInterval(() => pool.tick(), CHECK_MS).unref();
  server.once("close", () => clearInterval(ticking));
  return server;
}

function countPipelined(counts: WeakMap<Socket, number>, socket: Socket, response: ServerResponse): boolean {
  const count = (counts.get(socket) ?? 0) + 1;
  counts.set(socket, count);
  if (count > MAX_PIPELINED) {
    socket.destroy();
    return false;
  }
  response.once("close", () => counts.set(socket, (counts.get(socket) ?? 1) - 1));
  return true;
}

function listening(server: Server, port: number): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => reject(cannotListen(port, error)));
    server.listen(port, () => resolve(server.address() as AddressInfo));
  });
}

function cannotListen(port: number, cause: Error): PicoletError {
  const errno = errnoOf(cause);
  const why =
    errno === "EADDRINUSE"
      ? ": something on the node listens on it already, and a component has the node's own ports; take another containerPort"
      : errno === "EACCES"
        ? ": ports below 1024 take root; take a containerPort of 1024 or more"
        : "";
  return new PicoletError("failed", `cannot serve on port ${port}${why}`, { cause });
}
