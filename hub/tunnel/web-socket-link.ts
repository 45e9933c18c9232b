import type { WebSocket } from "ws";
import type { Link } from "../../protocol/tunnel/mux.ts";

/** The mux's link over `ws`. */
export class WebSocketLink implements Link {
  readonly #socket: WebSocket;
  /** Called when what was sent is with the operating system. */
  onDrained: () => void = () => undefined;
  readonly #onSent = (): void => this.onDrained();

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  send(bytes: Uint8Array): void {
    this.#socket.send(bytes, this.#onSent);
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }
}
