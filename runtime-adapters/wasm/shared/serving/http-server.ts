/**
 * HTTP/1.1 on the container's port. Nothing here ends gracefully: SIGTERM ends the process, as with every component.
 * The memory that a flood of clients takes is bounded: connections, the buffers of each, and the unsent bytes of all.
 */
import { getSystemErrorName } from "node:util";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import type { Exchange } from "./exchange.ts";
import { type ConnectionLimits, type ConnectionPort, HttpConnection } from "./http-connection.ts";
import type { InstancePool } from "./instance-pool.ts";
import type { NodePrivateApi, TcpHandle, TcpListener } from "./node-parts.ts";
import { DateField } from "./response-writer.ts";
import type { ServeMemory } from "./serve-memory.ts";

/** As nginx and Node have it; 431 beyond. */
const MAX_HEADER_BYTES = 16_384;
const MAX_HEADERS = 128;
/** A client that sends its head slower than this is cut off. */
const HEAD_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 15_000;
/** The interval of both checks, while there are connections. */
const CHECK_MS = 1000;
/** Bounds unanswered requests of one connection. A client that pipelines more is disconnected. */
const MAX_PIPELINED = 16;
/** Bounds the wait for bytes of a body that the component reads, and for a client that does not read. */
const IDLE_MS = 30_000;
/** Bounds the unsent bytes of a connection. Above it the component has to wait. */
const HIGH_WATER_BYTES = 65_536;
/** The size of a read while no body is requested. Heads are some hundred bytes. */
const SMALL_READ_BYTES = 4096;
/** The size of a read of a body that the component requests, and the most of it that is kept. */
const LARGE_READ_BYTES = 65_536;
const BACKLOG = 511;
/** So many are served however little memory is left. */
const MIN_CONNECTIONS = 8;

export interface HttpServerComponents {
  readonly parts: NodePrivateApi;
  readonly pool: Pick<InstancePool, "take" | "tick" | "isBusy">;
  readonly memory: ServeMemory;
  /** @returns whether there is no memory for another connection */
  readonly isTight: () => boolean;
  /** Milliseconds, monotonic. */
  readonly now: () => number;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
}

const limitsOf = ({ maxBodyBytes, timeoutMs }: ServeOptions): ConnectionLimits => ({
  maxBodyBytes,
  maxHeaderBytes: MAX_HEADER_BYTES,
  maxHeaders: MAX_HEADERS,
  headMs: Math.min(timeoutMs, HEAD_TIMEOUT_MS),
  requestMs: timeoutMs,
  takeMs: timeoutMs,
  keepAliveMs: KEEP_ALIVE_MS,
  idleMs: IDLE_MS,
  maxPipelined: MAX_PIPELINED,
  highWaterBytes: HIGH_WATER_BYTES,
});

export class HttpServer {
  readonly #components: HttpServerComponents;
  readonly #listener: TcpListener;
  readonly #port: ConnectionPort;
  readonly #connections = new Set<HttpConnection>();
  /** Connections with unsent bytes. The first has waited longest. */
  readonly #slow = new Set<HttpConnection>();
  #unsentBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @throws `failed` when the port cannot be had; from then on it serves */
  constructor(components: HttpServerComponents, options: ServeOptions) {
    const { parts, pool, now, wallNow } = components;
    this.#components = components;
    this.#port = {
      parts,
      date: new DateField(wallNow),
      limits: limitsOf(options),
      now,
      small: new Uint8Array(SMALL_READ_BYTES),
      large: new Uint8Array(LARGE_READ_BYTES),
      take: (exchange: Exchange) => pool.take(exchange),
      unsent: (connection, bytes) => this.#count(connection, bytes),
      closed: (connection) => this.#closed(connection),
    };
    this.#listener = listening(parts, options.port);
    this.#listener.onconnection = (status, client) => {
      if (status === 0 && client !== undefined) this.#accept(client);
    };
  }

  /** At once, with all connections. */
  close(): void {
    this.#listener.close();
    for (const each of this.#connections) each.close();
    clearInterval(this.#timer);
  }

  #accept(client: TcpHandle): void {
    const { memory, isTight } = this.#components;
    const { size } = this.#connections;
    if (size >= memory.maxConnections || (size >= MIN_CONNECTIONS && isTight())) {
      // An idle connection makes room for a new one.
      const idle = this.#connections.values().find((each) => each.isIdle);
      if (idle === undefined) {
        const { parts } = this.#port;
        client.writeLatin1String(parts.write(), BUSY);
        client.close();
        return;
      }
      idle.close();
    }
    this.#connections.add(new HttpConnection(this.#port, client));
    this.#timer ??= setInterval(() => this.#tick(), CHECK_MS);
  }

  #tick(): void {
    const { pool, now } = this.#components;
    pool.tick();
    for (const each of this.#connections) each.tick(now());
    if (this.#connections.size > 0 || pool.isBusy) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Above the bound of all connections, the one whose client has not read for the longest time is closed. */
  #count(connection: HttpConnection, bytes: number): void {
    this.#unsentBytes += bytes;
    this.#slow.delete(connection);
    if (connection.hasUnsent) this.#slow.add(connection);
    for (const slowest of this.#slow) {
      if (this.#unsentBytes <= this.#components.memory.maxUnsentBytes) return;
      slowest.close();
    }
  }

  #closed(connection: HttpConnection): void {
    this.#connections.delete(connection);
    this.#slow.delete(connection);
  }
}

const BUSY = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

function listening(parts: NodePrivateApi, port: number): TcpListener {
  const bound = (bind: (handle: TcpListener) => number): TcpListener | number => {
    const handle = parts.listener();
    // libuv reports an address in use with the second call only.
    const result = bind(handle) || handle.listen(BACKLOG);
    if (result === 0) return handle;
    handle.close();
    return result;
  };
  const both = bound((handle) => handle.bind6("::", port, 0));
  if (typeof both !== "number") return both;
  // A node without IPv6.
  const first = errnoName(both);
  const ipv4 = first === "EADDRINUSE" || first === "EACCES" ? both : bound((handle) => handle.bind("0.0.0.0", port));
  if (typeof ipv4 !== "number") return ipv4;
  throw cannotListen(port, errnoName(ipv4));
}

const errnoName = (result: number): string => getSystemErrorName(result);

function cannotListen(port: number, errno: string): PicoletError {
  const why =
    errno === "EADDRINUSE"
      ? ": something on the node listens on it already, and a component has the node's own ports; take another containerPort"
      : errno === "EACCES"
        ? ": ports below 1024 take a node whose net.ipv4.ip_unprivileged_port_start allows them; take one of 1024 or more"
        : `: ${errno}`;
  return new PicoletError("failed", `cannot serve on port ${port}${why}`);
}
