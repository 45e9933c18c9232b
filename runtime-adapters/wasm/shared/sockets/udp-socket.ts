/**
 * wasi:sockets/udp. Datagrams wait in a bounded queue, beyond which they are lost, as in the system's own. Datagrams of
 * peers to which the component may not send are lost too, unless the pod lets it listen on the port.
 */
import type { RemoteInfo, Socket } from "node:dgram";
import { HostResource } from "../resources/handles.ts";
import { Pollable, type Readiness } from "../resources/polling.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import { type Datagram, IncomingDatagramStream, OutgoingDatagramStream } from "./datagram-streams.ts";
import {
  anywhere,
  type Endpoint,
  endpointOf,
  type Family,
  type IpSocketAddress,
  localEndpoint,
  remoteEndpoint,
  socketAddress,
} from "./socket-addresses.ts";
import type { SocketContext } from "./socket-context.ts";
import { type NetworkErrorCode, networkErrorCode, networkFailure } from "./socket-errors.ts";

/** Bounds the datagrams that have arrived and are not read, and their bytes. */
const MAX_QUEUED = 128;
const MAX_QUEUED_BYTES = 131_072;
/** Peers of a socket that listens which it may answer, the one silent for longest forgotten first. */
const MAX_PEERS = 1024;
/** Given to the system, which has not sent them yet. */
const MAX_SENDING = 16;
/** The largest datagram of IPv4 and IPv6: 65,535 without the headers. */
const MAX_DATAGRAM_BYTES = { ipv4: 65_507, ipv6: 65_527 } as const;
const DEFAULT_HOP_LIMIT = 64;
/** Linux' `net.core.rmem_default`, and the most that a component may ask for. */
const MAX_BUFFER_BYTES = 212_992;

type State = "unbound" | "binding" | "bound" | "closed";

export class UdpSocket extends HostResource {
  readonly #context: SocketContext;
  readonly #family: Family;
  readonly #giveBack: () => void;
  readonly #socket: Socket;
  readonly #bound = new WakeListeners();
  readonly #arrived = new WakeListeners();
  readonly #sent = new WakeListeners();
  readonly #queue: Datagram[] = [];
  readonly #peers = new Set<string>();
  readonly #sizes = { receive: MAX_BUFFER_BYTES, send: MAX_BUFFER_BYTES };
  #hopLimit = DEFAULT_HOP_LIMIT;
  #queuedBytes = 0;
  #sending = 0;
  #state: State = "unbound";
  #outcome: "yes" | NetworkErrorCode | undefined;
  #failure: NetworkErrorCode | undefined;
  #remote: Endpoint | undefined;
  /** Identifies the streams in use. Those of an earlier call are not valid any more. */
  #generation = 0;
  #listens = false;

  private constructor(context: SocketContext, family: Family) {
    super(context.handles.udpSockets);
    this.#context = context;
    this.#family = family;
    this.#giveBack = context.access.takeSocket();
    const type = family === "ipv4" ? "udp4" : "udp6";
    this.#socket = context.modules.dgram().createSocket({ type, ipv6Only: family === "ipv6", lookup: asItIs });
    this.#socket
      .on("error", (error) => this.#failed(networkErrorCode(error)))
      .on("listening", () => this.#listening())
      .on("message", (data, from) => this.#arrive(data, from));
  }

  /** @throws `access-denied`, `new-socket-limit` */
  static create(context: SocketContext, family: Family): UdpSocket {
    context.access.checkSockets("udp");
    if (context.handles.udpSockets.full) throw networkFailure("new-socket-limit");
    return new UdpSocket(context, family);
  }

  /** Where the system likes, unless it is bound. */
  bindAnywhere(): void {
    if (this.#state !== "unbound") return;
    this.startBind(undefined, anywhere(this.#family));
    this.finishBind();
  }

  startBind(_network: unknown, localAddress: IpSocketAddress): void {
    const { address, port } = localEndpoint(localAddress, this.#family);
    if (this.#state !== "unbound") throw networkFailure("invalid-state");
    this.#context.access.checkBind("udp", { address, port });
    this.#listens = port !== 0;
    this.#state = "binding";
    this.#socket.bind({ address, port, exclusive: true });
  }

  finishBind(): void {
    if (this.#state !== "binding") throw networkFailure("not-in-progress");
    if (this.#outcome === undefined) throw networkFailure("would-block");
    this.#state = this.#outcome === "yes" ? "bound" : "unbound";
    if (this.#outcome === "yes") return;
    const code = this.#outcome;
    this.#outcome = undefined;
    throw networkFailure(code);
  }

  #listening(): void {
    this.#socket.setTTL(this.#hopLimit);
    this.#outcome = "yes";
    this.#bound.all();
  }

  #failed(code: NetworkErrorCode): void {
    if (this.#state === "binding" && this.#outcome === undefined) this.#outcome = code;
    else this.#failure = code;
    this.#bound.all();
    this.#arrived.all();
    this.#sent.all();
  }

  stream(remoteAddress: IpSocketAddress | undefined): [IncomingDatagramStream, OutgoingDatagramStream] {
    this.associate(remoteAddress);
    this.#generation += 1;
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    const generation = this.#generation;
    const port = {
      context: this.#context,
      isCurrent: () => this.#state === "bound" && generation === this.#generation,
      incoming: this.incoming,
      outgoing: this.outgoing,
      receive: (most: number) => this.receive(most),
      room: () => this.room(),
      send: (data: Uint8Array, to: IpSocketAddress | undefined) => {
        this.send(data, this.checkMessage(data.length, to), (failure) => {
          if (failure !== undefined) this.#failure = failure;
        });
      },
    };
    return [new IncomingDatagramStream(port), new OutgoingDatagramStream(port)];
  }

  /** Restricts it to one peer; undefined: any peer. Datagrams of others in the queue are dropped. */
  associate(remoteAddress: IpSocketAddress | undefined): void {
    if (this.#state !== "bound") throw networkFailure("invalid-state");
    const remote = remoteAddress === undefined ? undefined : this.#peer(remoteAddress);
    this.#remote = remote;
    if (remote === undefined) return;
    const fromOthers = this.#queue.filter((each) => !isSame(endpointOf(each.remoteAddress), remote));
    for (const each of fromOthers) {
      this.#queue.splice(this.#queue.indexOf(each), 1);
      this.#queuedBytes -= each.data.length;
    }
  }

  /** The same of one that need not be bound, as WASI 0.3 has it. */
  associateAnywhere(remoteAddress: IpSocketAddress): void {
    this.#peer(remoteAddress);
    this.bindAnywhere();
    this.associate(remoteAddress);
  }

  #peer(remoteAddress: IpSocketAddress): Endpoint {
    const peer = remoteEndpoint(remoteAddress, this.#family);
    this.#checkSend(peer);
    return peer;
  }

  get isBound(): boolean {
    return this.#state === "bound";
  }

  /** There is something to receive, or never will be. */
  get incoming(): Readiness {
    return {
      ready: () => this.#queue.length > 0 || this.#failure !== undefined || this.#state === "closed",
      onReady: this.#arrived.add,
    };
  }

  /** There is room for something to send. */
  get outgoing(): Readiness {
    return {
      ready: () => this.#sending < MAX_SENDING || this.#failure !== undefined || this.#state === "closed",
      onReady: this.#sent.add,
    };
  }

  #arrive(data: Uint8Array, { address, port }: RemoteInfo): void {
    if (this.#queue.length >= MAX_QUEUED || this.#queuedBytes + data.length > MAX_QUEUED_BYTES) return;
    const remoteAddress = socketAddress({ address, port });
    const from = endpointOf(remoteAddress);
    if (this.#remote === undefined ? !this.#hears(from) : !isSame(from, this.#remote)) return;
    this.#queue.push({ data, remoteAddress });
    this.#queuedBytes += data.length;
    this.#arrived.all();
  }

  #hears(from: Endpoint): boolean {
    if (!this.#listens) return this.#context.access.mayReach("udp", from);
    const peer = `${from.address} ${from.port}`;
    this.#peers.delete(peer);
    this.#peers.add(peer);
    const [oldest] = this.#peers;
    if (this.#peers.size > MAX_PEERS && oldest !== undefined) this.#peers.delete(oldest);
    return true;
  }

  /** As many as there are, which may be none. */
  receive(most: number): Datagram[] {
    this.#throwFailure();
    const received = this.#queue.splice(0, most);
    for (const { data } of received) this.#queuedBytes -= data.length;
    return received;
  }

  /** Datagrams that are taken now. */
  room(): number {
    this.#throwFailure();
    return MAX_SENDING - this.#sending;
  }

  /**
   * @returns the receiver
   * @throws an error for a message that cannot be sent
   */
  checkMessage(bytes: number, remoteAddress: IpSocketAddress | undefined): Endpoint {
    const to = this.#recipient(remoteAddress);
    if (bytes > MAX_DATAGRAM_BYTES[this.#family]) throw networkFailure("datagram-too-large");
    this.#checkSend(to);
    return to;
  }

  /** @param done receives the system's result */
  send(data: Uint8Array, to: Endpoint, done: (failure: NetworkErrorCode | undefined) => void): void {
    this.#sending += 1;
    // A copy: the component's memory is its own again when this returns.
    this.#socket.send(data.slice(), to.port, to.address, (error) => {
      this.#sending -= 1;
      done(error ? networkErrorCode(error) : undefined);
      this.#sent.all();
    });
  }

  #recipient(remoteAddress: IpSocketAddress | undefined): Endpoint {
    const given = remoteAddress === undefined ? undefined : remoteEndpoint(remoteAddress, this.#family);
    const to = given ?? this.#remote;
    if (to === undefined || (this.#remote !== undefined && !isSame(to, this.#remote))) {
      throw networkFailure("invalid-argument");
    }
    return to;
  }

  /** A peer that has written to a port that the pod opened may be answered. */
  #checkSend(to: Endpoint): void {
    if (!this.#peers.has(`${to.address} ${to.port}`)) this.#context.access.checkConnect("udp", to);
  }

  /** Reported once: the next call may go well. */
  #throwFailure(): void {
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw networkFailure(failure);
  }

  localAddress(): IpSocketAddress {
    if (this.#outcome !== "yes" || this.#state === "closed") throw networkFailure("invalid-state");
    return socketAddress(this.#socket.address());
  }

  remoteAddress(): IpSocketAddress {
    if (this.#remote === undefined) throw networkFailure("invalid-state");
    return socketAddress(this.#remote);
  }

  addressFamily(): Family {
    return this.#family;
  }

  unicastHopLimit(): number {
    return this.#hopLimit;
  }

  setUnicastHopLimit(value: number): void {
    if (value === 0) throw networkFailure("invalid-argument");
    if (this.#outcome === "yes") this.#socket.setTTL(value);
    this.#hopLimit = value;
  }

  receiveBufferSize(): bigint {
    return BigInt(this.#sizes.receive);
  }

  setReceiveBufferSize(value: bigint): void {
    this.#sizes.receive = bufferSize(value);
    if (this.#outcome === "yes") this.#socket.setRecvBufferSize(this.#sizes.receive);
  }

  sendBufferSize(): bigint {
    return BigInt(this.#sizes.send);
  }

  setSendBufferSize(value: bigint): void {
    this.#sizes.send = bufferSize(value);
    if (this.#outcome === "yes") this.#socket.setSendBufferSize(this.#sizes.send);
  }

  /** Ready when it may be bound, or is. */
  subscribe(): Pollable {
    const readiness = {
      ready: () => this.#state !== "binding" || this.#outcome !== undefined,
      onReady: this.#bound.add,
    };
    return new Pollable(this.#context.handles.pollables, this.#context.poller, readiness);
  }

  protected override closed(): void {
    this.#state = "closed";
    this.#socket.close(this.#giveBack);
    this.#arrived.all();
    this.#sent.all();
  }
}

/** Only addresses come here, never names. */
function asItIs(
  address: string,
  _options: unknown,
  done: (error: null, address: string, family: number) => void,
): void {
  done(null, address, address.includes(":") ? 6 : 4);
}

const isSame = (one: Endpoint, other: Endpoint): boolean => one.address === other.address && one.port === other.port;

function bufferSize(value: bigint): number {
  if (value === 0n) throw networkFailure("invalid-argument");
  return value < BigInt(MAX_BUFFER_BYTES) ? Number(value) : MAX_BUFFER_BYTES;
}
