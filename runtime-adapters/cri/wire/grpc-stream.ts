import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { CallEvents, GrpcCall } from "./grpc-call.ts";
import { withPrefix } from "./grpc-messages.ts";
import type { MessageDecoder, MessageEncoder } from "./protobuf.ts";

/**
 * Bytes of received messages that wait to be taken. Beyond it the sender's window is not refilled, so that a stream
 * holds at most this, one window and one message.
 */
const MAX_QUEUED_BYTES = 256 * KIBIBYTE;

interface Queued<A> {
  readonly value: A;
  readonly bytes: number;
}

/** A call with many messages in either direction. */
export class GrpcStream<Q, A> {
  readonly #method: { readonly path: string; readonly request: MessageEncoder<Q> };
  readonly #call: GrpcCall;
  readonly #queue: Queued<A>[] = [];
  #queuedBytes = 0;
  /** Received, but not given back to the sender's window, because too much waits. */
  #heldBytes = 0;
  #end: { readonly error: PicoletError | undefined } | undefined;
  #wake: (() => void) | undefined;

  constructor(
    method: { readonly path: string; readonly request: MessageEncoder<Q>; readonly response: MessageDecoder<A> },
    makeCall: (events: CallEvents) => GrpcCall,
  ) {
    this.#method = method;
    this.#call = makeCall({
      onMessage: (bytes, start, end) => {
        this.#queue.push({ value: method.response.decode(bytes, start, end), bytes: end - start });
        this.#queuedBytes += end - start;
        this.#notify();
      },
      onPiece: (count) => {
        this.#heldBytes += count;
        this.#giveBack();
      },
      onDone: (error) => {
        this.#end = { error };
        this.#notify();
      },
    });
    this.#call.start();
  }

  /** Resolves once the other side's window has let it through, or the call is done, which `responses` reports. */
  send(request: Q): Promise<void> {
    return this.#call.send(withPrefix(this.#method.request.encode(request)), false);
  }

  /** No more requests. */
  endRequests(): Promise<void> {
    return this.#call.send(new Uint8Array(0), true);
  }

  /** For one reader. Leaving the loop early cancels the call. */
  get responses(): AsyncIterable<A> {
    return this.#read();
  }

  async *#read(): AsyncGenerator<A> {
    try {
      for (;;) {
        const next = this.#queue.shift();
        if (next !== undefined) {
          this.#queuedBytes -= next.bytes;
          this.#giveBack();
          yield next.value;
        } else if (this.#end !== undefined) {
          if (this.#end.error !== undefined) throw this.#end.error;
          return;
        } else await this.#change();
      }
    } finally {
      this.#call.fail(new PicoletError("cancelled", `the call of ${this.#method.path} was cancelled`));
    }
  }

  #giveBack(): void {
    if (this.#queuedBytes > MAX_QUEUED_BYTES || this.#heldBytes === 0) return;
    this.#call.consumed(this.#heldBytes);
    this.#heldBytes = 0;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
