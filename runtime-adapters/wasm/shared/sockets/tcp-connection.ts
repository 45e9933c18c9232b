/**
 * One TCP connection and its two streams. Input is read only as fast as the component takes it, and output is taken
 * only as fast as the peer reads, so that both directions hold a bounded number of bytes.
 */
import type { BoundSocket, Socket } from "node:net";
import { Failure } from "../resources/failure.ts";
import type { Readiness } from "../resources/polling.ts";
import {
  type ByteSink,
  type ByteSource,
  HostError,
  InputStream,
  OutputStream,
  type StreamError,
} from "../resources/streams.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import type { Endpoint } from "./socket-addresses.ts";
import type { SocketContext } from "./socket-context.ts";
import { type NetworkErrorCode, networkErrorCode } from "./socket-errors.ts";

/** Bytes of one read of the system; all connections read into the same ones, one after the other. */
const READ_BYTES = 65_536;
/** Bounds the time in which a connection that the component has dropped sends the rest of its output. */
const LINGER_MS = 30_000;

/** Bounds the bytes between the component and the system, in each direction. */
export interface BufferSizes {
  receive: number;
  send: number;
}

export type ShutdownType = "receive" | "send" | "both";

/** The socket of a new connection, or its destination. */
export type ConnectionStart =
  /** Paused. */
  | { readonly kind: "accepted"; readonly socket: Socket }
  | { readonly kind: "connecting"; readonly remote: Endpoint; readonly bound: BoundSocket | undefined };

export interface ConnectionInit {
  readonly sizes: Readonly<BufferSizes>;
  /** Runs once when nothing of it is left. */
  readonly onGone: () => void;
}

let scratch: Uint8Array | undefined;
const sharedScratch = (): Uint8Array => {
  scratch ??= new Uint8Array(READ_BYTES);
  return scratch;
};

export class TcpConnection {
  readonly #context: SocketContext;
  readonly #socket: Socket;
  readonly #sizes: Readonly<BufferSizes>;
  readonly #readable = new WakeListeners();
  readonly #writable = new WakeListeners();
  /** Data that has arrived and is not read. */
  readonly #chunks: Uint8Array[] = [];
  #chunkBytes = 0;
  #receiveEnded = false;
  #sendEnded = false;
  #flushing = false;
  #failure: NetworkErrorCode | undefined;
  /** Resolves with the connection, or why there is none; undefined until then. */
  #connected: "yes" | NetworkErrorCode | undefined;
  readonly #settled = new WakeListeners();

  constructor(context: SocketContext, { sizes, onGone }: ConnectionInit, start: ConnectionStart) {
    this.#context = context;
    this.#sizes = sizes;
    this.#socket = start.kind === "accepted" ? start.socket : this.#newSocket(start.bound);
    this.#socket.setNoDelay(true);
    this.#socket
      .on("error", (error) => this.#failed(networkErrorCode(error)))
      .on("end", () => this.#endReceiving())
      .on("close", () => {
        this.#failed("connection-aborted");
        onGone();
      });
    if (start.kind === "accepted") {
      this.#connected = "yes";
      this.#socket.on("data", (bytes) => {
        if (!this.#take(bytes)) this.#socket.pause();
      });
      this.#socket.resume();
    } else {
      const { address: host, port } = start.remote;
      this.#socket.connect({ host, port }, () => {
        this.#connected = "yes";
        this.#settled.all();
      });
    }
  }

  #newSocket(bound: BoundSocket | undefined): Socket {
    const { Socket } = this.#context.modules.net();
    const callback = (length: number, bytes: Uint8Array): boolean => this.#take(bytes.slice(0, length));
    const onread = { buffer: sharedScratch, callback };
    return new Socket({ allowHalfOpen: true, onread, ...(bound !== undefined && { handle: bound }) });
  }

  /** Undefined: it is not connected any more. */
  get localEndpoint(): Endpoint | undefined {
    const { localAddress: address, localPort: port } = this.#socket;
    return address === undefined || port === undefined ? undefined : { address, port };
  }

  /** Undefined: it is not connected any more. */
  get remoteEndpoint(): Endpoint | undefined {
    const { remoteAddress: address, remotePort: port } = this.#socket;
    return address === undefined || port === undefined ? undefined : { address, port };
  }

  setKeepAlive(isOn: boolean, idleMs: number): void {
    this.#socket.setKeepAlive(isOn, idleMs);
  }

  /** The outcome of the attempt to connect. */
  get outcome(): "yes" | NetworkErrorCode | undefined {
    return this.#connected;
  }

  get settled(): Required<Pick<Readiness, "ready" | "onReady">> {
    return { ready: () => this.#connected !== undefined, onReady: this.#settled.add };
  }

  /** @returns its two ends. Called once. */
  streams(): [InputStream, OutputStream] {
    return [new InputStream(this.#context, this.source()), new OutputStream(this.#context, this.sink())];
  }

  shutdown(type: ShutdownType): void {
    if (type !== "send") this.#stopReceiving();
    if (type !== "receive") this.#stopSending();
  }

  /** The component has dropped it. Its output is still sent. */
  release(): void {
    this.#stopReceiving();
    this.#sendEnded = true;
    if (this.#socket.closed) return;
    if (this.#connected !== "yes") {
      this.#socket.destroy();
      return;
    }
    const { timers } = this.#context;
    const takeBack = timers.after(LINGER_MS, () => this.#socket.destroy());
    this.#socket.once("close", takeBack);
    this.#socket.destroySoon();
  }

  source(): ByteSource {
    return {
      readiness: {
        ready: () => this.#chunkBytes > 0 || this.#receiveEnded || this.#failure !== undefined,
        onReady: this.#readable.add,
      },
      read: (length) => this.#read(length),
      close: () => this.#stopReceiving(),
    };
  }

  sink(): ByteSink {
    return {
      readiness: {
        ready: () => this.#sendEnded || this.#failure !== undefined || this.#room() > 0,
        onReady: this.#writable.add,
      },
      writable: () => (this.#sendEnded || this.#failure !== undefined ? 1 : this.#room()),
      write: (bytes) => this.#write(bytes),
      flush: () => {
        this.#throwIfOver();
        this.#flushing = this.#socket.writableLength > 0;
      },
      close: () => this.#stopSending(),
    };
  }

  /**
   * @param bytes are not shared
   * @returns whether there is room for more
   */
  #take(bytes: Uint8Array): boolean {
    if (this.#receiveEnded) return true;
    this.#chunks.push(bytes);
    this.#chunkBytes += bytes.length;
    this.#readable.all();
    return this.#chunkBytes < this.#sizes.receive;
  }

  #read(length: number): Uint8Array | undefined {
    const [first] = this.#chunks;
    if (first === undefined) {
      if (this.#receiveEnded) return undefined;
      if (this.#failure === undefined) return new Uint8Array();
      // Reported once; after that the stream is at its end.
      this.#receiveEnded = true;
      throw this.#streamFailure(this.#failure);
    }
    const part = first.subarray(0, length);
    if (part.length === first.length) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(length);
    const wasFull = this.#chunkBytes >= this.#sizes.receive;
    this.#chunkBytes -= part.length;
    if (wasFull && this.#chunkBytes < this.#sizes.receive) this.#socket.resume();
    return part;
  }

  #write(bytes: Uint8Array): void {
    this.#throwIfOver();
    // A copy: the component's memory is its own again when this returns.
    this.#socket.write(bytes.slice(), () => {
      if (this.#socket.writableLength === 0) this.#flushing = false;
      this.#writable.all();
    });
  }

  #room(): number {
    return this.#flushing ? 0 : Math.max(this.#sizes.send - this.#socket.writableLength, 0);
  }

  #throwIfOver(): void {
    if (this.#sendEnded) throw new Failure<StreamError>({ tag: "closed" });
    if (this.#failure !== undefined) throw this.#streamFailure(this.#failure);
  }

  #streamFailure(code: NetworkErrorCode): Failure<StreamError> {
    return new Failure({ tag: "last-operation-failed", val: new HostError(this.#context.handles, "network", code) });
  }

  #endReceiving(): void {
    this.#receiveEnded = true;
    this.#readable.all();
  }

  /** Discards all further input, so that the peer's end is seen. */
  #stopReceiving(): void {
    this.#chunks.length = 0;
    this.#chunkBytes = 0;
    this.#endReceiving();
    this.#socket.resume();
  }

  #stopSending(): void {
    if (this.#sendEnded) return;
    this.#sendEnded = true;
    this.#socket.end();
    this.#writable.all();
  }

  #failed(code: NetworkErrorCode): void {
    if (this.#connected === undefined) this.#connected = code;
    this.#failure ??= code;
    this.#settled.all();
    this.#readable.all();
    this.#writable.all();
  }
}
