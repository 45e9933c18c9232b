/** wasi:sockets/tcp. */

import type { BoundSocket, Server, Socket } from "node:net";
import { ignore } from "@picolet/protocol/errors.ts";
import { HostResource, trap } from "../resources/handles.ts";
import { Pollable, type Readiness } from "../resources/polling.ts";
import type { InputStream, OutputStream } from "../resources/streams.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import type { Endpoint, Family, IpSocketAddress } from "./socket-addresses.ts";
import { anywhere, localEndpoint, remoteEndpoint, socketAddress } from "./socket-addresses.ts";
import type { SocketContext } from "./socket-context.ts";
import { networkErrorCode, networkFailure } from "./socket-errors.ts";
import { type ConnectionStart, type ShutdownType, TcpConnection } from "./tcp-connection.ts";
import { TcpOptions } from "./tcp-options.ts";

/** Connections that wait to be accepted; more are closed at once. */
const MAX_BACKLOG = 128;

/** Bytes that Node reads ahead of the component, beside `TcpOptions.sizes`. */
const READ_AHEAD_BYTES = 16_384;

/** A connection that the system has accepted already. */
interface Accepted {
  readonly socket: Socket;
  readonly giveBack: () => void;
}

type State =
  | { readonly kind: "unbound" }
  | { readonly kind: "binding" | "bound"; readonly bound: BoundSocket }
  | { readonly kind: "connecting"; readonly connection: TcpConnection; readonly local: Endpoint | undefined }
  | { readonly kind: "connected"; readonly connection: TcpConnection }
  | { readonly kind: "starting-listen" | "listening"; readonly server: Server }
  | { readonly kind: "closed" };

export class TcpSocket extends HostResource {
  readonly #context: SocketContext;
  readonly #family: Family;
  readonly #giveBack: () => void;
  readonly #options: TcpOptions;
  readonly #pending: Accepted[] = [];
  readonly #arrived = new WakeListeners();
  #backlog = MAX_BACKLOG;
  #accepts = true;
  /** By the component. */
  #isHeld = true;
  #hasConnection = false;
  #state: State = { kind: "unbound" };

  /** @param accepted a connected socket, which this one takes over */
  constructor(context: SocketContext, family: Family, accepted?: Accepted, options = new TcpOptions()) {
    super(context.handles.tcpSockets);
    this.#context = context;
    this.#family = family;
    this.#options = options;
    this.#giveBack = accepted?.giveBack ?? context.access.takeSocket();
  }

  /** @throws `access-denied`, `new-socket-limit` */
  static create(context: SocketContext, family: Family): TcpSocket {
    context.access.checkSockets("tcp");
    if (context.handles.tcpSockets.full) throw networkFailure("new-socket-limit");
    return new TcpSocket(context, family);
  }

  /** Where the system likes, unless it is bound. */
  bindAnywhere(): void {
    if (this.#state.kind !== "unbound") return;
    this.startBind(undefined, anywhere(this.#family));
    this.finishBind();
  }

  startBind(_network: unknown, localAddress: IpSocketAddress): void {
    const local = localEndpoint(localAddress, this.#family);
    if (this.#state.kind !== "unbound") throw networkFailure("invalid-state");
    this.#context.access.checkBind("tcp", local);
    this.#state = { kind: "binding", bound: this.#bind(local) };
  }

  #bind({ address: host, port }: Endpoint): BoundSocket {
    const { BoundSocket } = this.#context.modules.net();
    try {
      return new BoundSocket({ host, port, ipv6Only: this.#family === "ipv6" });
    } catch (error) {
      throw networkFailure(networkErrorCode(error));
    }
  }

  finishBind(): void {
    if (this.#state.kind !== "binding") throw networkFailure("not-in-progress");
    this.#state = { kind: "bound", bound: this.#state.bound };
  }

  startConnect(_network: unknown, remoteAddress: IpSocketAddress): void {
    const state = this.#state;
    if (state.kind === "binding") throw networkFailure("concurrency-conflict");
    if (state.kind !== "unbound" && state.kind !== "bound") throw networkFailure("invalid-state");
    const remote = remoteEndpoint(remoteAddress, this.#family);
    this.#context.access.checkConnect("tcp", remote);
    const bound = state.kind === "bound" ? state.bound : undefined;
    const local = bound === undefined ? undefined : this.#local();
    this.#state = { kind: "connecting", connection: this.#connection({ kind: "connecting", remote, bound }), local };
  }

  finishConnect(): [InputStream, OutputStream] {
    return this.finishConnection().streams();
  }

  /** As far as WASI 0.3 goes. */
  finishConnection(): TcpConnection {
    if (this.#state.kind !== "connecting") throw networkFailure("not-in-progress");
    const { connection } = this.#state;
    const { outcome } = connection;
    if (outcome === undefined) throw networkFailure("would-block");
    if (outcome !== "yes") {
      connection.release();
      this.#state = { kind: "closed" };
      throw networkFailure(outcome);
    }
    this.#options.applyTo(connection);
    this.#state = { kind: "connected", connection };
    return connection;
  }

  /** Ready unless it is connecting. */
  get settled(): Readiness {
    return this.#state.kind === "connecting" ? this.#state.connection.settled : { ready: () => true };
  }

  /** Undefined: it is not connected. */
  get connection(): TcpConnection | undefined {
    return this.#state.kind === "connected" ? this.#state.connection : undefined;
  }

  startListen(): void {
    const state = this.#state;
    if (state.kind === "binding") throw networkFailure("concurrency-conflict");
    if (state.kind !== "bound") throw networkFailure("invalid-state");
    const { port } = this.#local();
    if (!this.#context.access.mayListen("tcp", port)) throw networkFailure("access-denied");
    const { createServer } = this.#context.modules.net();
    const options = { allowHalfOpen: true, pauseOnConnect: true, highWaterMark: READ_AHEAD_BYTES };
    const server = createServer(options, (socket) => this.#arrive(socket));
    server.on("error", ignore("it comes later, when its only cause can be another server on the same port"));
    server.listen(state.bound, this.#backlog);
    if (!server.listening) {
      this.#state = { kind: "closed" };
      throw networkFailure("address-in-use");
    }
    this.#state = { kind: "starting-listen", server };
  }

  finishListen(): void {
    if (this.#state.kind !== "starting-listen") throw networkFailure("not-in-progress");
    this.#state = { kind: "listening", server: this.#state.server };
  }

  accept(): [TcpSocket, InputStream, OutputStream] {
    const socket = this.acceptSocket();
    return [socket, ...socket.#connected()];
  }

  /** There is something to accept, or never will be. */
  get acceptable(): Readiness {
    const ready = (): boolean => this.#state.kind !== "listening" || this.#pending.length > 0;
    return { ready, onReady: this.#arrived.add };
  }

  /** As far as WASI 0.3 goes. */
  acceptSocket(): TcpSocket {
    if (this.#state.kind !== "listening") throw networkFailure("invalid-state");
    if (this.#pending.length === 0) throw networkFailure("would-block");
    if (this.#context.handles.tcpSockets.full) throw networkFailure("new-socket-limit");
    const accepted = this.#pending.shift();
    if (accepted === undefined) throw trap("a connection is gone between two steps");
    const socket = new TcpSocket(this.#context, this.#family, accepted, this.#options.copy());
    const connection = socket.#connection({ kind: "accepted", socket: accepted.socket });
    socket.#options.applyTo(connection);
    socket.#state = { kind: "connected", connection };
    return socket;
  }

  #connected(): [InputStream, OutputStream] {
    if (this.#state.kind !== "connected") throw trap("an accepted connection is none");
    return this.#state.connection.streams();
  }

  #connection(start: ConnectionStart): TcpConnection {
    this.#hasConnection = true;
    const onGone = (): void => {
      this.#hasConnection = false;
      this.#giveBackIfUnused();
    };
    return new TcpConnection(this.#context, { sizes: this.#options.sizes, onGone }, start);
  }

  /** Its place among the component's sockets. */
  #giveBackIfUnused(): void {
    if (!this.#isHeld && !this.#hasConnection) this.#giveBack();
  }

  /** Refuses new connections, and those that wait. */
  stopAccepting(): void {
    this.#accepts = false;
    this.#sendAway();
    this.#arrived.all();
  }

  #sendAway(): void {
    for (const { socket, giveBack } of this.#pending.splice(0)) {
      socket.destroy();
      giveBack();
    }
  }

  #arrive(socket: Socket): void {
    socket.on("error", ignore("a client may go before it is accepted"));
    try {
      if (!this.#accepts || this.#pending.length >= this.#backlog) throw networkFailure("new-socket-limit");
      this.#pending.push({ socket, giveBack: this.#context.access.takeSocket() });
      this.#arrived.all();
    } catch {
      // The component holds all that it may have.
      socket.destroy();
    }
  }

  localAddress(): IpSocketAddress {
    if (this.#state.kind === "unbound" || this.#state.kind === "closed") throw networkFailure("invalid-state");
    return socketAddress(this.#local());
  }

  #local(): Endpoint {
    const state = this.#state;
    const local = "bound" in state ? state.bound.address() : "server" in state ? state.server.address() : undefined;
    if (local !== undefined && local !== null && typeof local === "object") return local;
    const known = state.kind === "connecting" ? state.local : undefined;
    const endpoint = known ?? (state.kind === "connected" ? state.connection.localEndpoint : undefined);
    if (endpoint === undefined) throw networkFailure("invalid-state");
    return endpoint;
  }

  remoteAddress(): IpSocketAddress {
    if (this.#state.kind !== "connected") throw networkFailure("invalid-state");
    const remote = this.#state.connection.remoteEndpoint;
    if (remote === undefined) throw networkFailure("invalid-state");
    return socketAddress(remote);
  }

  isListening(): boolean {
    return this.#state.kind === "listening";
  }

  addressFamily(): Family {
    return this.#family;
  }

  setListenBacklogSize(value: bigint): void {
    if (value === 0n) throw networkFailure("invalid-argument");
    const { kind } = this.#state;
    if (kind === "connecting" || kind === "connected" || kind === "closed") throw networkFailure("invalid-state");
    this.#backlog = value < BigInt(MAX_BACKLOG) ? Number(value) : MAX_BACKLOG;
  }

  keepAliveEnabled(): boolean {
    return this.#options.keepAlive;
  }

  setKeepAliveEnabled(value: boolean): void {
    this.#options.keepAlive = value;
    this.#applyOptions();
  }

  keepAliveIdleTime(): bigint {
    return this.#options.idleTime;
  }

  setKeepAliveIdleTime(value: bigint): void {
    this.#options.idleTime = value;
    this.#applyOptions();
  }

  keepAliveInterval(): bigint {
    return this.#options.interval;
  }

  setKeepAliveInterval(value: bigint): void {
    this.#options.interval = value;
  }

  keepAliveCount(): number {
    return this.#options.count;
  }

  setKeepAliveCount(value: number): void {
    this.#options.count = value;
  }

  hopLimit(): number {
    return this.#options.hopLimit;
  }

  setHopLimit(value: number): void {
    this.#options.hopLimit = value;
  }

  receiveBufferSize(): bigint {
    return BigInt(this.#options.sizes.receive);
  }

  setReceiveBufferSize(value: bigint): void {
    this.#options.setSize("receive", value);
  }

  sendBufferSize(): bigint {
    return BigInt(this.#options.sizes.send);
  }

  setSendBufferSize(value: bigint): void {
    this.#options.setSize("send", value);
  }

  /** Ready when the last operation may be finished, or a connection waits to be accepted. */
  subscribe(): Pollable {
    const readiness: Readiness = {
      ready: () => this.settled.ready() && this.acceptable.ready(),
      onReady: (wake) => {
        const state = this.#state;
        return state.kind === "connecting" ? state.connection.settled.onReady(wake) : this.#arrived.add(wake);
      },
    };
    return new Pollable(this.#context.handles.pollables, this.#context.poller, readiness);
  }

  shutdown(type: ShutdownType): void {
    if (this.#state.kind !== "connected") throw networkFailure("invalid-state");
    this.#state.connection.shutdown(type);
  }

  #applyOptions(): void {
    if (this.#state.kind === "connected") this.#options.applyTo(this.#state.connection);
  }

  protected override closed(): void {
    const state = this.#state;
    this.#state = { kind: "closed" };
    this.#isHeld = false;
    if (state.kind === "connecting" || state.kind === "connected") state.connection.release();
    else if ("bound" in state) state.bound.close();
    else if ("server" in state) state.server.close();
    this.#sendAway();
    this.#arrived.all();
    this.#giveBackIfUnused();
  }
}
