import { PicoletError } from "@picolet/protocol/errors.ts";
import type { IncomingStream, StreamError, StreamKind, TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";

/**
 * At work at one time. Each may keep its lane's window in memory when its reader stops: 64 KiB for those with input,
 * 8 MiB together at the very worst; a log costs no more than what it reads ahead. A board has no use for more sessions;
 * one beyond is refused with `resource_exhausted`, the others are not touched.
 */
const MAX_AT_WORK: Readonly<Record<StreamKind, number>> = {
  logs: 64,
  exec: 32,
  attach: 32,
  portForward: 64,
  kubelet: 16,
  token: 0,
  telemetry: 0,
  samples: 0,
};

/** Passes streams that the hub opens to their handlers. */
export class StreamDispatch {
  readonly #handlers: StreamHandlers;
  readonly #atWork = new Map<StreamKind, number>();

  constructor(handlers: StreamHandlers) {
    this.#handlers = handlers;
  }

  handle(incoming: IncomingStream): void {
    const { kind } = incoming;
    const handler = this.#handlers[kind];
    if (handler === undefined) {
      incoming.reject({ code: "unimplemented", message: `this node answers no ${kind} streams` });
      return;
    }
    const count = this.#atWork.get(kind) ?? 0;
    if (count >= MAX_AT_WORK[kind]) {
      incoming.reject({ code: "resource_exhausted", message: `this node has ${count} ${kind} streams open already` });
      return;
    }
    this.#atWork.set(kind, count + 1);
    handler(new CountedStream(incoming, () => this.#atWork.set(kind, (this.#atWork.get(kind) ?? 1) - 1)));
  }
}

/** Tells when this end is done with the stream: it rejected, reset or ended it, or the other end or the session did. */
class CountedStream implements IncomingStream, TunnelStream {
  readonly #incoming: IncomingStream;
  readonly #onDone: () => void;
  #stream: TunnelStream | undefined;
  #isDone = false;

  constructor(incoming: IncomingStream, onDone: () => void) {
    this.#incoming = incoming;
    this.#onDone = onDone;
    incoming.closed.addEventListener("abort", () => this.#done(), { once: true });
    if (incoming.closed.aborted) this.#done();
  }

  get id(): number {
    return this.#accepted.id;
  }

  get kind(): StreamKind {
    return this.#incoming.kind;
  }

  get params(): unknown {
    return this.#incoming.params;
  }

  get closed(): AbortSignal {
    return this.#incoming.closed;
  }

  accept(reply: unknown): TunnelStream {
    this.#stream = this.#incoming.accept(reply);
    return this;
  }

  reject(error: StreamError): void {
    this.#incoming.reject(error);
    this.#done();
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#accepted.write(bytes, signal);
  }

  end(): void {
    this.#accepted.end();
    this.#done();
  }

  read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    return this.#accepted.read(signal);
  }

  reset(error: StreamError): void {
    this.#accepted.reset(error);
    this.#done();
  }

  get #accepted(): TunnelStream {
    if (this.#stream === undefined) throw new PicoletError("internal", "cannot use a stream that was not accepted");
    return this.#stream;
  }

  #done(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#onDone();
  }
}
