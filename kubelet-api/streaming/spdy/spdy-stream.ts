import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { NEVER } from "@picolet/protocol/ports.ts";
import { InboundQueue, Waiters } from "../../pipes/inbound-queue.ts";
import type { SpdyHeaders } from "./header-block.ts";
import { MAX_DATA_BYTES, RESET } from "./spdy-frames.ts";

/** The connection as a stream sees it. */
export interface StreamLink {
  sendData(stream: SpdyStream, fin: boolean, bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  sendReset(stream: SpdyStream, status: number): void;
  /** The reader has taken so much. */
  consumed(stream: SpdyStream, bytes: number): void;
}

/** One stream of a SPDY connection, half-closable. One reader and one writer at a time. */
export class SpdyStream {
  readonly id: number;
  readonly headers: SpdyHeaders;
  readonly #link: StreamLink;
  readonly #unread = new InboundQueue();
  readonly #window = new Waiters();
  #local: "open" | "ended" = "open";
  #reset: PicoletError | undefined;
  /** Bytes that we may still send; the connection counts them. */
  sendWindow = 0;

  constructor(link: StreamLink, id: number, headers: SpdyHeaders) {
    this.#link = link;
    this.id = id;
    this.headers = headers;
  }

  /** True when both directions have ended. */
  get over(): boolean {
    return this.#reset !== undefined || (this.#unread.ended && this.#local === "ended");
  }

  /** True when the peer or this side has reset it. */
  get isReset(): boolean {
    return this.#reset !== undefined;
  }

  /** The next piece; undefined at the end, and also when the peer reset the stream: Kubernetes ends streams so. */
  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    const piece = await this.#unread.read(signal);
    if (piece !== undefined) this.#link.consumed(this, piece.length);
    return piece;
  }

  /** @throws `unavailable` when the stream or its connection is gone. */
  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    for (let at = 0; at < bytes.length; at += MAX_DATA_BYTES) {
      this.#checkWritable();
      await this.#link.sendData(this, false, bytes.subarray(at, at + MAX_DATA_BYTES), signal);
    }
  }

  /** Half-closes it. */
  end(): void {
    if (this.#local === "ended" || this.#reset !== undefined) return;
    this.#local = "ended";
    this.#link
      .sendData(this, true, new Uint8Array(0), NEVER)
      .catch(ignore("the connection is lost, which its readers see"));
  }

  reset(status: number = RESET.cancel): void {
    if (this.over) return;
    this.#link.sendReset(this, status);
    this.close(new PicoletError("cancelled", "the stream was reset here"));
  }

  /** For the connection: bytes of memory of their own. Resolves when there is room for more. */
  async receive(bytes: Uint8Array, fin: boolean, signal: AbortSignal): Promise<void> {
    this.#unread.push(bytes);
    if (fin) this.#unread.end();
    await this.#unread.room(signal);
  }

  /** For the connection: there will be no more of it; what came can still be read. */
  close(reason: PicoletError): void {
    this.#reset ??= reason;
    this.#local = "ended";
    this.#unread.end();
    this.#window.wake();
  }

  /** For the connection: waits for room in the window. */
  async untilSendable(ready: () => boolean, signal: AbortSignal): Promise<void> {
    while (!ready()) {
      this.#checkOpen();
      await this.#window.next(signal);
    }
    this.#checkOpen();
  }

  /** For the connection: the window has changed. */
  wake(): void {
    this.#window.wake();
  }

  #checkWritable(): void {
    this.#checkOpen();
    if (this.#local === "ended") throw new PicoletError("internal", "cannot write to a stream that was ended");
  }

  #checkOpen(): void {
    if (this.#reset !== undefined) {
      throw new PicoletError("unavailable", "the other side has closed the stream", { cause: this.#reset });
    }
  }
}
