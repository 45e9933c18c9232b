import type { Duplex } from "node:stream";
import type { Link } from "@picolet/protocol/tunnel/mux.ts";
import { TickCork } from "@picolet/protocol/tunnel/tick-cork.ts";
import type { WebSocket } from "ws";
import type { TunnelCounts } from "./tunnel-counts.ts";

/** The mux's link over `ws`. */
export class WebSocketLink implements Link {
  readonly #socket: WebSocket;
  readonly #cork: TickCork;
  readonly #counts: TunnelCounts;
  /** Called when what was sent is with the operating system. */
  onDrained: () => void = () => undefined;
  readonly #onSent = (): void => this.onDrained();

  /** @param stream what `socket` is over */
  constructor(socket: WebSocket, stream: Duplex, counts: TunnelCounts) {
    this.#socket = socket;
    this.#cork = new TickCork(stream);
    this.#counts = counts;
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  send(bytes: Uint8Array): void {
    this.#cork.hold();
    this.#counts.count("sent", bytes);
    this.#socket.send(bytes, this.#onSent);
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }
}
