/** A tunnel of one stream, in memory: what one end writes the other reads, with credit as in the mux. */
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { type ErrorCode, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { IncomingStream, OpenedStream, StreamError, StreamKind } from "@picolet/protocol/tunnel/stream.ts";

/** Bounds the bytes that the other end has not read; a mux has some such window. */
const WINDOW_BYTES = 256 * 1024;

class Pipe {
  readonly #pieces: Uint8Array[] = [];
  #bytes = 0;
  #ended = false;
  #broken: unknown;
  readonly #waiting = new Set<() => void>();

  get buffered(): number {
    return this.#bytes;
  }

  get finished(): boolean {
    return this.#ended && this.#pieces.length === 0;
  }

  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    // Copied, as a link does: who writes may use the memory again.
    for (let at = 0; at < bytes.length; ) {
      await this.#until(() => this.#bytes < WINDOW_BYTES, signal);
      const piece = bytes.slice(at, at + WINDOW_BYTES - this.#bytes);
      at += piece.length;
      this.#pieces.push(piece);
      this.#bytes += piece.length;
      this.#wake();
    }
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    await this.#until(() => this.#pieces.length > 0 || this.#ended, signal);
    const piece = this.#pieces.shift();
    this.#bytes -= piece?.length ?? 0;
    this.#wake();
    return piece;
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  break(reason: unknown): void {
    this.#broken ??= reason;
    this.#wake();
  }

  async #until(ready: () => boolean, signal: AbortSignal): Promise<void> {
    for (;;) {
      if (this.#broken !== undefined) throw this.#broken;
      if (signal.aborted) throw cancelled("the stream's wait");
      if (ready()) return;
      await new Promise<void>((resolve) => {
        const done = (): void => {
          signal.removeEventListener("abort", done);
          this.#waiting.delete(done);
          resolve();
        };
        signal.addEventListener("abort", done);
        this.#waiting.add(done);
      });
    }
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}

/** Both ends of one stream. */
export class StreamPair {
  readonly #toAgent = new Pipe();
  readonly #toHub = new Pipe();
  readonly #closed = new AbortController();

  /** What is under way, both directions. */
  get buffered(): number {
    return this.#toAgent.buffered + this.#toHub.buffered;
  }

  /** True when nothing more can come through: reset, or ended by both sides. */
  get over(): boolean {
    return this.#closed.signal.aborted || (this.#toAgent.finished && this.#toHub.finished);
  }

  /** As a session that ends does. */
  cut(): void {
    this.reset({ code: "unavailable", message: "the tunnel is gone" });
  }

  reset(error: StreamError): void {
    const reason = new PicoletError(error.code as ErrorCode, error.message);
    this.#closed.abort(reason);
    for (const pipe of [this.#toAgent, this.#toHub]) pipe.break(reason);
  }

  endOf(side: "hub" | "agent", kind: StreamKind, reply: unknown): OpenedStream {
    const [out, into] = side === "hub" ? [this.#toAgent, this.#toHub] : [this.#toHub, this.#toAgent];
    return {
      ...{ id: 1, kind, reply },
      closed: this.#closed.signal,
      write: (bytes, signal) => out.write(bytes, signal),
      end: () => out.end(),
      read: (signal) => into.read(signal),
      reset: (error) => this.reset(error),
    };
  }

  /** Asks `handler` for a stream as a hub does. @throws what it was rejected with */
  open(handler: (stream: IncomingStream) => void, kind: StreamKind, params: unknown): Promise<OpenedStream> {
    return new Promise((resolve, reject) => {
      handler({
        ...{ kind, params, closed: this.#closed.signal },
        accept: (reply) => {
          resolve(this.endOf("hub", kind, reply));
          return this.endOf("agent", kind, reply);
        },
        reject: ({ code, message }) => {
          this.#closed.abort();
          reject(new PicoletError(code as ErrorCode, message));
        },
      });
    });
  }
}

/** All that comes, as text, until the other side ends. @throws what the stream was reset with */
export async function readText(stream: OpenedStream): Promise<string> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await stream.read(new AbortController().signal);
    if (piece === undefined) return Buffer.concat(pieces).toString("utf8");
    pieces.push(piece);
  }
}

export const rejectedWith =
  (code: ErrorCode, message: RegExp | string) =>
  (error: unknown): boolean =>
    isPicoletError(error, code) &&
    (typeof message === "string" ? error.message === message : message.test(error.message));
