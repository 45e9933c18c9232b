/** A stream of the tunnel without a tunnel: what one end writes the other reads, with credit as in the mux. */
import { checkCancelled, onAbort } from "@picolet/protocol/async/abort.ts";
import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";
import type {
  IncomingStream,
  OpenedStream,
  StreamError,
  StreamKind,
  StreamOpener,
} from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { Waiters } from "./inbound-queue.ts";

/** Bounds the bytes of one direction that the other end has not read. At more of them its writer waits. */
const WINDOW_BYTES = 256 * KIBIBYTE;

class Direction {
  readonly #pieces: Uint8Array[] = [];
  readonly #waiters = new Waiters();
  #bytes = 0;
  #ended = false;
  #broken: unknown;

  get buffered(): number {
    return this.#bytes;
  }

  get finished(): boolean {
    return this.#ended && this.#pieces.length === 0;
  }

  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    // Copied, as a link does: the writer may use the memory again.
    for (let at = 0; at < bytes.length; ) {
      await this.#until(() => this.#bytes < WINDOW_BYTES, signal);
      const piece = Uint8Array.prototype.slice.call(bytes, at, at + WINDOW_BYTES - this.#bytes);
      at += piece.length;
      this.#pieces.push(piece);
      this.#bytes += piece.length;
      this.#waiters.wake();
    }
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    await this.#until(() => this.#pieces.length > 0 || this.#ended, signal);
    const piece = this.#pieces.shift();
    this.#bytes -= piece?.length ?? 0;
    this.#waiters.wake();
    return piece;
  }

  end(): void {
    this.#ended = true;
    this.#waiters.wake();
  }

  break(reason: unknown): void {
    this.#broken ??= reason;
    this.#waiters.wake();
  }

  async #until(ready: () => boolean, signal: AbortSignal): Promise<void> {
    for (;;) {
      if (this.#broken !== undefined) throw this.#broken;
      checkCancelled(signal, "the stream's wait");
      if (ready()) return;
      await this.#waiters.next(signal);
    }
  }
}

/** Both ends of one stream: `opener` is the hub's in a tunnel, `answerer` the agent's. */
export class StreamPair {
  readonly #toAnswerer = new Direction();
  readonly #toOpener = new Direction();
  readonly #closed = new AbortController();

  /** Bytes under way, both directions. */
  get buffered(): number {
    return this.#toAnswerer.buffered + this.#toOpener.buffered;
  }

  /** True when nothing more can come through: reset, or ended by both sides. */
  get over(): boolean {
    return this.#closed.signal.aborted || (this.#toAnswerer.finished && this.#toOpener.finished);
  }

  reset(error: StreamError): void {
    const reason = new PicoletError(error.code as ErrorCode, error.message);
    this.#closed.abort(reason);
    for (const direction of [this.#toAnswerer, this.#toOpener]) direction.break(reason);
  }

  endOf(side: "opener" | "answerer", kind: StreamKind, reply: unknown): OpenedStream {
    const [out, into] = side === "opener" ? [this.#toAnswerer, this.#toOpener] : [this.#toOpener, this.#toAnswerer];
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
      const { signal } = this.#closed;
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      handler({
        ...{ kind, params, closed: this.#closed.signal },
        accept: (reply) => {
          resolve(this.endOf("opener", kind, reply));
          return this.endOf("answerer", kind, reply);
        },
        reject: ({ code, message }) => {
          this.#closed.abort(new PicoletError(code as ErrorCode, message));
        },
      });
    });
  }
}

/** Opens streams at handlers of this process. */
export function localStreams(
  handlers: Readonly<Partial<Record<StreamKind, (stream: IncomingStream) => void>>>,
): StreamOpener {
  return {
    open: async (kind, params, _lane, signal) => {
      const handler = handlers[kind];
      if (handler === undefined)
        throw new PicoletError("unimplemented", `streams of kind ${kind} are not offered here`);
      const pair = new StreamPair();
      using _end = onAbort(signal, () => pair.reset({ code: "cancelled", message: "the client has gone" }));
      return await pair.open(handler, kind, params);
    },
  };
}
