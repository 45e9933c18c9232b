/** The two ends that a UDP socket hands out. */
import { HostResource, trap } from "../resources/handles.ts";
import { Pollable, type Readiness } from "../resources/polling.ts";
import type { IpSocketAddress } from "./socket-addresses.ts";
import type { SocketContext } from "./socket-context.ts";
import { networkFailure } from "./socket-errors.ts";

export interface Datagram {
  readonly data: Uint8Array;
  readonly remoteAddress: IpSocketAddress;
}

interface OutgoingDatagram {
  readonly data: Uint8Array;
  readonly remoteAddress?: IpSocketAddress | undefined;
}

/** The socket, as its streams see it. */
export interface DatagramPort {
  readonly context: SocketContext;
  /** @returns whether these streams are those of the last call of `stream`, and the socket is open */
  isCurrent(): boolean;
  readonly incoming: Readiness;
  readonly outgoing: Readiness;
  receive(most: number): Datagram[];
  /** Datagrams that are taken now. */
  room(): number;
  send(data: Uint8Array, to: IpSocketAddress | undefined): void;
}

abstract class DatagramStream extends HostResource {
  readonly #port: DatagramPort;

  constructor(port: DatagramPort) {
    super(port.context.handles.datagramStreams);
    this.#port = port;
  }

  /** @throws `invalid-state` when others have taken its place */
  protected port(): DatagramPort {
    if (!this.#port.isCurrent()) throw networkFailure("invalid-state");
    return this.#port;
  }

  protected pollable(readiness: Readiness): Pollable {
    const { context, isCurrent } = this.#port;
    const ready = (): boolean => !isCurrent() || readiness.ready();
    return new Pollable(context.handles.pollables, context.poller, { ...readiness, ready });
  }

  protected get readiness(): { readonly incoming: Readiness; readonly outgoing: Readiness } {
    return this.#port;
  }
}

export class IncomingDatagramStream extends DatagramStream {
  /** As many as there are, which may be none. */
  receive(maxResults: bigint): Datagram[] {
    return this.port().receive(
      maxResults > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(maxResults),
    );
  }

  subscribe(): Pollable {
    return this.pollable(this.readiness.incoming);
  }
}

export class OutgoingDatagramStream extends DatagramStream {
  /** The part of the last `checkSend` that has not been used. */
  #permitted = 0;

  checkSend(): bigint {
    this.#permitted = this.port().room();
    return BigInt(this.#permitted);
  }

  /** @returns how many of them were taken: those before the first that could not be. */
  send(datagrams: readonly OutgoingDatagram[]): bigint {
    if (datagrams.length > this.#permitted) throw trap("more datagrams sent than check-send allowed");
    const port = this.port();
    let sent = 0;
    try {
      for (const { data, remoteAddress } of datagrams) {
        port.send(data, remoteAddress);
        sent += 1;
      }
    } catch (error) {
      // The interface reports a failure only when nothing was sent.
      if (sent === 0) throw error;
    } finally {
      this.#permitted -= sent;
    }
    return BigInt(sent);
  }

  subscribe(): Pollable {
    return this.pollable(this.readiness.outgoing);
  }
}
