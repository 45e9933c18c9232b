/**
 * A bad network in one process: a TCP proxy on loopback whose two directions can be slow, narrow, silent, damaged or
 * cut. Its delays are those of the simulated link; no test waits on them for a condition.
 */
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Random } from "@picolet/protocol/ports.ts";

export interface LinkBehaviour {
  /** Added to each piece, in each direction. */
  readonly latencyMs: number;
  /** Infinity: as fast as loopback. */
  readonly bytesPerSecond: number;
  /** Pieces are forwarded in writes of at most this many bytes. */
  readonly chunkBytes: number;
  /** Probability that a forwarded piece has one of its bits turned over. */
  readonly corruption: number;
  /** Nothing is forwarded any more, nothing is closed: a half-open link, as behind a NAT that forgot it. */
  readonly silent: boolean;
  /** New connections are closed at once. */
  readonly refuses: boolean;
}

export const GOOD_LINK: LinkBehaviour = {
  latencyMs: 0,
  bytesPerSecond: Number.POSITIVE_INFINITY,
  chunkBytes: Number.POSITIVE_INFINITY,
  corruption: 0,
  silent: false,
  refuses: false,
};

/** Bounds the bytes that one direction holds back before it stops reading its source: a router's buffer. */
const MAX_HELD_BYTES = 256 * 1024;

export interface ForwardedPiece {
  /** Counted from 1. */
  readonly connection: number;
  readonly direction: "up" | "down";
  readonly bytes: Uint8Array;
}

export interface LinkBytes {
  readonly up: number;
  readonly down: number;
}

export class LinkProxy implements AsyncDisposable {
  #behaviour: LinkBehaviour = GOOD_LINK;
  readonly #server: Server;
  readonly #random: Random;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #pumps = new Set<Pump>();
  #up = 0;
  #down = 0;
  #connections = 0;
  /** Called for each piece at the moment when it leaves the proxy. */
  onForwarded: (piece: ForwardedPiece) => void = () => undefined;

  private constructor(random: Random, target: () => number) {
    this.#random = random;
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#take(client, target()));
  }

  /** @param target port on loopback; asked for each connection, so that a hub may come back elsewhere */
  static async start(target: () => number, random: Random): Promise<LinkProxy> {
    const proxy = new LinkProxy(random, target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy does not listen");
    return address.port;
  }

  /** Bytes of TCP payload since the start, towards the target and from it. */
  get bytes(): LinkBytes {
    return { up: this.#up, down: this.#down };
  }

  /** Connections that were taken since the start. */
  get connections(): number {
    return this.#connections;
  }

  get behaviour(): LinkBehaviour {
    return this.#behaviour;
  }

  /** From now on, also for what is connected. */
  behave(change: Partial<LinkBehaviour>): void {
    this.#behaviour = { ...this.#behaviour, ...change };
    for (const pump of this.#pumps) pump.behaviourChanged();
  }

  heal(): void {
    this.behave(GOOD_LINK);
  }

  /** Every connection ends now with a reset, as when a router restarts. */
  cut(): void {
    for (const [client, server] of this.#pairs) {
      reset(client);
      reset(server);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #take(client: Socket, port: number): void {
    this.#connections += 1;
    const connection = this.#connections;
    client.on("error", () => client.destroy());
    if (this.#behaviour.refuses) {
      reset(client);
      return;
    }
    const server = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    server.on("error", () => reset(client));
    const up = this.#pump(client, server, (bytes) => {
      this.#up += bytes.length;
      this.onForwarded({ connection, direction: "up", bytes });
    });
    const down = this.#pump(server, client, (bytes) => {
      this.#down += bytes.length;
      this.onForwarded({ connection, direction: "down", bytes });
    });
    const closed = (): void => {
      this.#pairs.delete(pair);
      for (const pump of [up, down]) {
        pump.stop();
        this.#pumps.delete(pump);
      }
      client.destroy();
      server.destroy();
    };
    client.on("close", closed);
    server.on("close", closed);
  }

  #pump(from: Socket, to: Socket, count: (bytes: Uint8Array) => void): Pump {
    const pump = new Pump(from, to, { behaviour: () => this.#behaviour, random: this.#random, count });
    this.#pumps.add(pump);
    return pump;
  }
}

interface PumpInit {
  readonly behaviour: () => LinkBehaviour;
  readonly random: Random;
  readonly count: (bytes: Uint8Array) => void;
}

/**
 * libuv refuses to reset a socket that is just being shut down, and Node (24.21) then forgets to close it: it would
 * keep the whole process from ending.
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** One direction of one connection. */
class Pump {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #init: PumpInit;
  readonly #held: { readonly bytes: Buffer | undefined; readonly dueMs: number }[] = [];
  #heldBytes = 0;
  /** When the line is free for the next piece. */
  #freeAtMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(from: Socket, to: Socket, init: PumpInit) {
    this.#from = from;
    this.#to = to;
    this.#init = init;
    from.setNoDelay(true);
    from.on("data", (bytes) => this.#hold(bytes));
    from.on("end", () => this.#hold(undefined));
    to.on("drain", () => this.#forward());
  }

  behaviourChanged(): void {
    this.#forward();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#held.length = 0;
  }

  #hold(bytes: Buffer | undefined): void {
    const { latencyMs } = this.#init.behaviour();
    this.#held.push({ bytes, dueMs: performance.now() + latencyMs });
    this.#heldBytes += bytes?.length ?? 0;
    if (this.#heldBytes > MAX_HELD_BYTES) this.#from.pause();
    this.#forward();
  }

  #forward(): void {
    clearTimeout(this.#timer);
    for (;;) {
      const [first] = this.#held;
      const { silent, chunkBytes, bytesPerSecond } = this.#init.behaviour();
      if (first === undefined || silent || this.#to.destroyed || this.#to.writableNeedDrain) return;
      const now = performance.now();
      const due = Math.max(first.dueMs, this.#freeAtMs);
      if (due > now) {
        this.#timer = setTimeout(() => this.#forward(), due - now);
        return;
      }
      if (first.bytes === undefined) {
        this.#held.shift();
        this.#to.end();
        continue;
      }
      // A narrow line passes on what it can in 20 ms; else timers would set its speed.
      const most = Math.min(chunkBytes, Math.max(1, bytesPerSecond / 50));
      const piece = first.bytes.subarray(0, most);
      const rest = first.bytes.subarray(piece.length);
      if (rest.length === 0) this.#held.shift();
      else this.#held[0] = { bytes: rest, dueMs: first.dueMs };
      this.#heldBytes -= piece.length;
      this.#freeAtMs = now + (piece.length / bytesPerSecond) * 1000;
      this.#init.count(piece);
      this.#to.write(this.#damaged(piece));
      if (this.#heldBytes <= MAX_HELD_BYTES) this.#from.resume();
    }
  }

  #damaged(bytes: Buffer): Buffer {
    const { random, behaviour } = this.#init;
    if (random.next() >= behaviour().corruption) return bytes;
    const copy = Buffer.from(bytes);
    const at = Math.floor(random.next() * copy.length);
    copy[at] = (copy[at] ?? 0) ^ (1 << Math.floor(random.next() * 8));
    return copy;
  }
}
