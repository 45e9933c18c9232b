/** How a session reaches a hub. `TlsDialer` does it over the network; tests bring a link of their own. */

import type { HubAddress } from "../../core/hub/hub-address.ts";
import type { NodeCredentials } from "../../core/hub/identity.ts";

/** One WebSocket, open and verified; messages are whole. */
export interface Connection {
  send(bytes: Uint8Array): void;
  /** Bytes sent that the kernel has not taken yet. */
  readonly bufferedBytes: number;
  /** Bytes of WebSocket frames, without TLS and TCP. */
  readonly bytesSent: number;
  readonly bytesReceived: number;
  /** This end's own address; "" where there is none. */
  readonly localAddress: string;
  /** To be called once, at once; what came before is not lost. */
  attach(listener: ConnectionListener): void;
  /** Says good-bye; what was sent before goes out as far as the other end takes it. */
  close(code: number, reason: string): void;
}

export interface ConnectionListener {
  onMessage(bytes: Uint8Array): void;
  /** There is room again after `bufferedBytes` was not 0. */
  onDrain(): void;
  /** Once, last of all; also after `close`. */
  onClosed(error: Error): void;
}

export interface Dialer {
  /**
   * Resolves when the hub has been verified and has agreed to speak this protocol.
   * @throws TunnelError
   */
  dial(hub: HubAddress, credentials: NodeCredentials, signal: AbortSignal): Promise<Connection>;
}
