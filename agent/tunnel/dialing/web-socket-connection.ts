import type { TLSSocket } from "node:tls";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { TickCork } from "@picolet/protocol/tunnel/tick-cork.ts";
import type { WebSocket } from "ws";
import type { Connection, ConnectionListener } from "./dialer.ts";

/**
 * How long the other end may take to say good-bye too; then the socket is thrown away. A hub answers at once or is
 * gone.
 */
export const CLOSE_LIMIT_MS = 5000;

/** WebSocket close codes (RFC 6455, section 7.4.1). */
const UNSUPPORTED_DATA = 1003;
/** Reasons are cut to what a control frame holds besides its code. */
const MAX_REASON_BYTES = 123;

/** A WebSocket of `ws` over a TLS socket that has been verified. */
export class WebSocketConnection implements Connection {
  readonly #webSocket: WebSocket;
  readonly #cork: TickCork;
  readonly localAddress: string;
  #listener: ConnectionListener | undefined;
  #early: Uint8Array[] = [];
  #closed: Error | undefined;
  #error: Error | undefined;
  #sent = 0;
  #received = 0;

  /**
   * Called each time the operating system has taken a frame. The socket's `drain` does not suffice: it fires only for a
   * buffer above Node's mark, which is above ours. A failed send ends the socket, which its close reports.
   */
  readonly #onSent = (): void => this.#listener?.onDrain();

  /** @param webSocket open */
  constructor(webSocket: WebSocket, socket: TLSSocket) {
    this.#webSocket = webSocket;
    this.#cork = new TickCork(socket);
    this.localAddress = socket.localAddress ?? "";
    webSocket.on("message", (data, isBinary) => this.#onMessage(data as Buffer, isBinary));
    webSocket.on("error", (error) => {
      this.#error ??= error;
    });
    webSocket.on("close", (code, reason) => this.#onClosed(code, reason.toString()));
  }

  get bufferedBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  get bytesSent(): number {
    return this.#sent;
  }

  get bytesReceived(): number {
    return this.#received;
  }

  attach(listener: ConnectionListener): void {
    this.#listener = listener;
    const early = this.#early;
    this.#early = [];
    for (const bytes of early) listener.onMessage(bytes);
    if (this.#closed !== undefined) listener.onClosed(this.#closed);
  }

  send(bytes: Uint8Array): void {
    if (this.#webSocket.readyState !== this.#webSocket.OPEN) return;
    this.#sent += bytes.length;
    this.#cork.hold();
    this.#webSocket.send(bytes, { binary: true, compress: false }, this.#onSent);
  }

  close(code: number, reason: string): void {
    this.#webSocket.close(
      code,
      Buffer.from(reason)
        .subarray(0, MAX_REASON_BYTES)
        .toString()
        .replace(/\uFFFD+$/, ""),
    );
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    if (!isBinary) {
      this.close(UNSUPPORTED_DATA, "only binary messages are understood");
      return;
    }
    this.#received += data.length;
    if (this.#listener === undefined) this.#early.push(data);
    else this.#listener.onMessage(data);
  }

  #onClosed(code: number, reason: string): void {
    const said = `${code}${reason === "" ? "" : ` ${reason}`}`;
    const message = this.#error === undefined ? `the connection was closed: ${said}` : "the connection broke";
    this.#closed = new PicoletError("unavailable", message, { cause: this.#error, retryable: true });
    this.#listener?.onClosed(this.#closed);
  }
}
