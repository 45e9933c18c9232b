/**
 * wasi:sockets/types.tcp-socket of WASI 0.3 on the sockets of 0.2, with the same rules. A socket of 0.3 is a handle and
 * its streams, which are dropped in any order. The socket is closed with the last of them.
 */
import { Failure } from "../../shared/resources/failure.ts";
import { onHandleCreated } from "../../shared/resources/handles.ts";
import type { Family, IpSocketAddress } from "../../shared/sockets/socket-addresses.ts";
import { TcpSocket } from "../../shared/sockets/tcp-socket.ts";
import { type AsyncNetwork, AsyncSocket } from "./async-socket.ts";
import { attempt, type SocketError, streamError } from "./async-socket-errors.ts";
import {
  ByteFlow,
  type ByteReader,
  drainStream,
  type FlowPair,
  failedFlow,
  type Result,
  refusedStream,
  waitUntilReady,
} from "./byte-flow.ts";

const INVALID_STATE = { tag: "invalid-state" } as const;

/** A socket of 0.2 that a handle and its streams share. */
class SharedSocket {
  readonly socket: TcpSocket;
  readonly #onGone: () => void;
  #holders = 0;
  #isClosed = false;

  constructor({ context }: AsyncNetwork, socket: TcpSocket) {
    this.socket = socket;
    const forget = context.endWith(() => this.#close());
    this.#onGone = () => void forget();
  }

  /** @returns a function that releases it, once */
  hold(): () => void {
    this.#holders += 1;
    let holds = true;
    return () => {
      if (!holds) return;
      holds = false;
      this.#holders -= 1;
      if (this.#holders === 0) this.#close();
    };
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#onGone();
    this.socket[Symbol.dispose]();
  }
}

export class AsyncTcpSocket extends AsyncSocket<TcpSocket> {
  readonly #shared: SharedSocket;
  readonly #release: () => void;
  #sends = false;
  #receives = false;

  /** @param socket whose owner it becomes */
  constructor(network: AsyncNetwork, socket: TcpSocket) {
    super(network, "TCP sockets", socket);
    this.#shared = new SharedSocket(network, socket);
    this.#release = this.#shared.hold();
  }

  static create(network: AsyncNetwork, family: Family): AsyncTcpSocket {
    return new AsyncTcpSocket(
      network,
      attempt(() => TcpSocket.create(network.sockets, family)),
    );
  }

  protected override closed(): void {
    this.#release();
  }

  async connect(remoteAddress: IpSocketAddress): Promise<void> {
    attempt(() => this.socket.startConnect(undefined, remoteAddress));
    await this.network.context.watched(waitUntilReady(this.socket.settled));
    attempt(() => this.socket.finishConnection());
  }

  listen(): Listener {
    attempt(() => {
      this.socket.bindAnywhere();
      this.socket.startListen();
      this.socket.finishListen();
    });
    return new Listener(this.network, this.socket, this.#shared.hold());
  }

  send(data: ByteReader): Promise<Result<undefined, SocketError>> {
    const { connection } = this.socket;
    if (connection === undefined || this.#sends) return refusedStream(data, INVALID_STATE);
    this.#sends = true;
    const release = this.#shared.hold();
    const init = { sink: connection.sink(), codeOf: streamError, isBounded: true, flushes: true };
    const { context } = this.network;
    return context.sends(drainStream(context, data, init).finally(release));
  }

  receive(): FlowPair<Uint8Array, SocketError> {
    const { connection } = this.socket;
    if (connection === undefined || this.#receives) return failedFlow(INVALID_STATE);
    this.#receives = true;
    const onEnd = this.#shared.hold();
    const init = { source: connection.source(), codeOf: streamError, isBounded: true, onEnd };
    return new ByteFlow(this.network.context, init).pair;
  }

  getIsListening(): boolean {
    return this.socket.isListening();
  }

  setListenBacklogSize(value: bigint): void {
    attempt(() => this.socket.setListenBacklogSize(value));
  }

  getKeepAliveEnabled(): boolean {
    return this.socket.keepAliveEnabled();
  }

  setKeepAliveEnabled(value: boolean): void {
    this.socket.setKeepAliveEnabled(value);
  }

  getKeepAliveIdleTime(): bigint {
    return this.socket.keepAliveIdleTime();
  }

  setKeepAliveIdleTime(value: bigint): void {
    attempt(() => this.socket.setKeepAliveIdleTime(value));
  }

  getKeepAliveInterval(): bigint {
    return this.socket.keepAliveInterval();
  }

  setKeepAliveInterval(value: bigint): void {
    attempt(() => this.socket.setKeepAliveInterval(value));
  }

  getKeepAliveCount(): number {
    return this.socket.keepAliveCount();
  }

  setKeepAliveCount(value: number): void {
    attempt(() => this.socket.setKeepAliveCount(value));
  }

  getHopLimit(): number {
    return this.socket.hopLimit();
  }

  setHopLimit(value: number): void {
    attempt(() => this.socket.setHopLimit(value));
  }
}

/** Connections, one for each that the component takes. */
class Listener implements AsyncIterator<AsyncTcpSocket> {
  readonly #network: AsyncNetwork;
  readonly #socket: TcpSocket;
  readonly #release: () => void;
  /** Sockets that the glue took without passing them on, because the component cancelled. */
  readonly #taken = new Set<AsyncTcpSocket>();
  #hasEnded = false;

  constructor(network: AsyncNetwork, socket: TcpSocket, release: () => void) {
    this.#network = network;
    this.#socket = socket;
    this.#release = release;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<AsyncTcpSocket>> {
    while (!this.#hasEnded) {
      await this.#network.context.watched(waitUntilReady(this.#socket.acceptable));
      if (this.#hasEnded) break;
      const socket = this.#accepted();
      if (socket !== undefined) return { done: false, value: socket };
    }
    return { done: true, value: undefined };
  }

  /** The component wants no more. */
  async return(): Promise<IteratorResult<AsyncTcpSocket>> {
    if (!this.#hasEnded) {
      this.#hasEnded = true;
      this.#socket.stopAccepting();
      this.#release();
      for (const each of this.#taken) each[Symbol.dispose]();
    }
    return { done: true, value: undefined };
  }

  /** Undefined: another call took it, or no connection will arrive any more. */
  #accepted(): AsyncTcpSocket | undefined {
    try {
      const taken = new AsyncTcpSocket(this.#network, this.#socket.acceptSocket());
      this.#taken.add(taken);
      onHandleCreated(taken, () => this.#taken.delete(taken));
      return taken;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (!this.#socket.isListening()) this.#hasEnded = true;
      return undefined;
    }
  }
}
