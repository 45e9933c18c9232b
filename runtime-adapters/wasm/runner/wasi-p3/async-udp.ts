/** wasi:sockets/types.udp-socket of WASI 0.3 on the sockets of 0.2, with the same rules. */
import { Failure } from "../../shared/resources/failure.ts";
import type { Family, IpSocketAddress } from "../../shared/sockets/socket-addresses.ts";
import { type NetworkErrorCode, networkFailure } from "../../shared/sockets/socket-errors.ts";
import { UdpSocket } from "../../shared/sockets/udp-socket.ts";
import { type AsyncNetwork, AsyncSocket } from "./async-socket.ts";
import { attempt, socketError } from "./async-socket-errors.ts";
import { waitUntilReady } from "./byte-flow.ts";

/**
 * Bounds the datagrams of one socket that wait to be sent, and its pending receives. Received datagrams have the same
 * limit.
 */
const MAX_WAITING = 128;
const MAX_WAITING_BYTES = 131_072;

export class AsyncUdpSocket extends AsyncSocket<UdpSocket> {
  /** @returns whether it was still open */
  readonly #forget: () => boolean;
  #waiting = 0;
  #waitingBytes = 0;

  private constructor(network: AsyncNetwork, socket: UdpSocket) {
    super(network, "UDP sockets", socket);
    this.#forget = network.context.endWith(() => this.closed());
  }

  static create(network: AsyncNetwork, family: Family): AsyncUdpSocket {
    return new AsyncUdpSocket(
      network,
      attempt(() => UdpSocket.create(network.sockets, family)),
    );
  }

  protected override closed(): void {
    if (this.#forget()) this.socket[Symbol.dispose]();
  }

  connect(remoteAddress: IpSocketAddress): void {
    attempt(() => this.socket.associateAnywhere(remoteAddress));
  }

  disconnect(): void {
    attempt(() => {
      this.socket.remoteAddress();
      this.socket.associate(undefined);
    });
  }

  async send(data: Uint8Array | readonly number[], remoteAddress: IpSocketAddress | undefined): Promise<void> {
    const bytes = Uint8Array.from(data);
    attempt(() => {
      this.socket.checkMessage(bytes.length, remoteAddress);
      this.socket.bindAnywhere();
    });
    while (this.#bound((socket) => socket.room()) === 0) await this.#woken(bytes.length, this.socket.outgoing);
    // The current peer: it may have been connected to another one meanwhile.
    const to = this.#bound((socket) => socket.checkMessage(bytes.length, remoteAddress));
    const failure = await new Promise<NetworkErrorCode | undefined>((done) => this.socket.send(bytes, to, done));
    if (failure !== undefined) throw new Failure(socketError(failure));
  }

  async receive(): Promise<[Uint8Array, IpSocketAddress]> {
    for (;;) {
      const [received] = this.#bound((socket) => socket.receive(1));
      if (received !== undefined) return [received.data, received.remoteAddress];
      await this.#woken(0, this.socket.incoming);
    }
  }

  /** @throws `invalid-state` of one that is not bound, or closed by now */
  #bound<T>(call: (socket: UdpSocket) => T): T {
    return attempt(() => {
      if (!this.socket.isBound) throw networkFailure("invalid-state");
      return call(this.socket);
    });
  }

  /** @throws `out-of-memory` when too many wait already */
  async #woken(bytes: number, readiness: UdpSocket["incoming"]): Promise<void> {
    if (this.#waiting >= MAX_WAITING || this.#waitingBytes + bytes > MAX_WAITING_BYTES) {
      throw new Failure(socketError("out-of-memory"));
    }
    this.#waiting += 1;
    this.#waitingBytes += bytes;
    try {
      await this.network.context.watched(waitUntilReady(readiness));
    } finally {
      this.#waiting -= 1;
      this.#waitingBytes -= bytes;
    }
  }

  getUnicastHopLimit(): number {
    return this.socket.unicastHopLimit();
  }

  setUnicastHopLimit(value: number): void {
    attempt(() => this.socket.setUnicastHopLimit(value));
  }
}
