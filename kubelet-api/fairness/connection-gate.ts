/**
 * Decides which connections a port keeps, and in which order their handshakes begin. Until a client has shown who it
 * is, it counts for its network; from then on for its identity. There is no quota for a network, since a fleet may be
 * behind one address: only when the port is full, the network or identity that has most gives way.
 */
import type { Server, Socket } from "node:net";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { FairQueue } from "./fair-queue.ts";
import { networkOf } from "./network-of.ts";

export interface ConnectionGateComponents {
  readonly clock: Clock;
  readonly log: Log;
}

export interface ConnectionGateInit {
  /** For the log: "boards' port". */
  readonly name: string;
  /** At a time. */
  readonly maxConnections: number;
  /** Bounds connections whose client has not authenticated yet; part of `maxConnections`. */
  readonly maxPending: number;
}

/** A socket, or what wraps one: both have the same far end. */
export interface PeerSocket {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  readonly destroyed: boolean;
}

interface Group {
  readonly name: string;
  /** In the order in which they came. */
  readonly connections: Set<Connection>;
  readonly isPending: boolean;
  readonly isProtected: boolean;
}

interface Connection {
  readonly socket: Socket;
  /** While the socket has a far end that can be asked for. */
  readonly key: string;
  group: Group | undefined;
}

/** A handshake takes a millisecond of the event loop; between two turns other work gets in. */
const HANDSHAKES_PER_TURN = 4;
const LEVEL = "handshakes";
/** Shortest interval between log entries about closed connections. */
const LOG_INTERVAL = seconds(60);

const keyOf = ({ remoteAddress = "", remotePort = 0 }: PeerSocket): string => `${remoteAddress} ${remotePort}`;

type Listener = (socket: Socket) => void;

export class ConnectionGate {
  readonly #components: ConnectionGateComponents;
  readonly #init: ConnectionGateInit;
  readonly #handshakes: FairQueue;
  /** By far end. */
  readonly #connections = new Map<string, Connection>();
  /** By network or identity. */
  readonly #groups = new Map<string, Group>();
  readonly #admitted = new WeakSet<PeerSocket>();
  #pending = 0;
  #closed = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(components: ConnectionGateComponents, init: ConnectionGateInit) {
    this.#components = components;
    this.#init = init;
    const all = Number.POSITIVE_INFINITY;
    const level = { name: LEVEL, share: 1, seats: all, flowSeats: all, flowQueue: all, queue: all };
    this.#handshakes = new FairQueue(
      { clock: components.clock, later: setImmediate },
      { levels: [level], widthPerTurn: HANDSHAKES_PER_TURN },
    );
  }

  /** Connections now, and those of them whose client has not shown who it is. */
  get load(): { readonly connections: number; readonly pending: number } {
    return { connections: this.#connections.size, pending: this.#pending };
  }

  /** Puts itself before what `server` does with new connections. To be called once, before it listens. */
  guard(server: Server): void {
    const listeners = server.listeners("connection") as Listener[];
    server.removeAllListeners("connection");
    server.on("connection", (socket: Socket) => {
      this.#open(socket);
      if (!socket.destroyed) void this.#begin(server, socket, listeners);
    });
  }

  /**
   * The client of this connection has shown who it is.
   * @param owner what its connections are counted by
   * @param isProtected it never gives way to others
   */
  admit(end: PeerSocket, owner: string, isProtected = false): void {
    if (this.#admitted.has(end) || end.destroyed) return;
    this.#admitted.add(end);
    const connection = this.#connections.get(keyOf(end));
    if (connection?.group?.isPending !== true) return;
    this.#leave(connection);
    this.#join(connection, `user ${owner}`, { isPending: false, isProtected });
  }

  async #begin(server: Server, socket: Socket, listeners: readonly Listener[]): Promise<void> {
    const gone = new AbortController();
    const end = (): void => gone.abort();
    socket.once("close", end);
    // Until the server has its own: a client that resets its connection is no failure of the hub.
    socket.on("error", end);
    try {
      const turn = await this.#handshakes.take(LEVEL, networkOf(socket.remoteAddress ?? ""), 1, gone.signal);
      turn.release();
    } catch {
      // It has gone.
      return;
    } finally {
      socket.off("close", end);
    }
    if (socket.destroyed) return;
    for (const listener of listeners) listener.call(server, socket);
    socket.off("error", end);
  }

  #open(socket: Socket): void {
    const { maxConnections, maxPending } = this.#init;
    if (this.#pending >= maxPending) this.#makeRoom(({ isPending }) => isPending);
    else if (this.#connections.size >= maxConnections) this.#makeRoom(({ isProtected }) => !isProtected);
    const key = keyOf(socket);
    const connection: Connection = { socket, key, group: undefined };
    this.#connections.set(key, connection);
    this.#join(connection, `network ${networkOf(socket.remoteAddress ?? "")}`, { isPending: true, isProtected: false });
    socket.once("close", () => {
      this.#leave(connection);
      if (this.#connections.get(key) === connection) this.#connections.delete(key);
    });
  }

  /** Closes the oldest connection of the largest group. */
  #makeRoom(mayGo: (group: Group) => boolean): void {
    let largest: Group | undefined;
    for (const group of this.#groups.values()) {
      if (mayGo(group) && group.connections.size > (largest?.connections.size ?? 0)) largest = group;
    }
    const [oldest] = largest?.connections ?? [];
    if (oldest === undefined) return;
    this.#leave(oldest);
    this.#connections.delete(oldest.key);
    oldest.socket.destroy();
    this.#logClosed();
  }

  #logClosed(): void {
    this.#closed += 1;
    const { clock, log } = this.#components;
    const now = clock.monotonic();
    if (now - this.#loggedAt < LOG_INTERVAL) return;
    const { name: port } = this.#init;
    log.warn("too many connections: the oldest of the largest client were closed", { port, closed: this.#closed });
    this.#loggedAt = now;
    this.#closed = 0;
  }

  #join(connection: Connection, name: string, kind: Pick<Group, "isPending" | "isProtected">): void {
    const group = this.#groups.get(name) ?? { name, connections: new Set(), ...kind };
    this.#groups.set(name, group);
    group.connections.add(connection);
    connection.group = group;
    if (group.isPending) this.#pending += 1;
  }

  #leave(connection: Connection): void {
    const { group } = connection;
    if (group?.connections.delete(connection) !== true) return;
    if (group.isPending) this.#pending -= 1;
    if (group.connections.size === 0) this.#groups.delete(group.name);
  }
}
