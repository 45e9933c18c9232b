/** The base of sockets of WASI 0.3, each of which uses one of 0.2. */
import { HostResource } from "../../shared/resources/handles.ts";
import type { Family, IpSocketAddress } from "../../shared/sockets/socket-addresses.ts";
import type { SocketContext } from "../../shared/sockets/socket-context.ts";
import type { AsyncContext } from "./async-context.ts";
import { attempt } from "./async-socket-errors.ts";

export interface AsyncNetwork {
  readonly context: AsyncContext;
  readonly sockets: SocketContext;
}

interface PlainSocket {
  startBind(network: undefined, localAddress: IpSocketAddress): void;
  finishBind(): void;
  localAddress(): IpSocketAddress;
  remoteAddress(): IpSocketAddress;
  addressFamily(): Family;
  receiveBufferSize(): bigint;
  setReceiveBufferSize(value: bigint): void;
  sendBufferSize(): bigint;
  setSendBufferSize(value: bigint): void;
}

export abstract class AsyncSocket<S extends PlainSocket> extends HostResource {
  protected readonly network: AsyncNetwork;
  protected readonly socket: S;

  constructor(network: AsyncNetwork, what: string, socket: S) {
    super(network.context.pool(what));
    this.network = network;
    this.socket = socket;
  }

  bind(localAddress: IpSocketAddress): void {
    attempt(() => {
      this.socket.startBind(undefined, localAddress);
      this.socket.finishBind();
    });
  }

  getLocalAddress(): IpSocketAddress {
    return attempt(() => this.socket.localAddress());
  }

  getRemoteAddress(): IpSocketAddress {
    return attempt(() => this.socket.remoteAddress());
  }

  getAddressFamily(): Family {
    return this.socket.addressFamily();
  }

  getReceiveBufferSize(): bigint {
    return this.socket.receiveBufferSize();
  }

  setReceiveBufferSize(value: bigint): void {
    attempt(() => this.socket.setReceiveBufferSize(value));
  }

  getSendBufferSize(): bigint {
    return this.socket.sendBufferSize();
  }

  setSendBufferSize(value: bigint): void {
    attempt(() => this.socket.setSendBufferSize(value));
  }
}
