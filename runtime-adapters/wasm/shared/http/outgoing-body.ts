/**
 * wasi:http/types.outgoing-body: the body that the component writes, of a response or of its own request. The component
 * has to wait as soon as its target is full.
 */
import { Failure } from "../resources/failure.ts";
import { HostResource, trap } from "../resources/handles.ts";
import type { Readiness } from "../resources/polling.ts";
import { type ByteSink, MAX_TRANSFER_BYTES, OutputStream } from "../resources/streams.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import { type HttpErrorCode, httpStreamFailure } from "./error-code.ts";
import type { FieldList, Fields } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";

export interface BodyHead {
  /** The value of content-length; undefined: there is none. */
  readonly length: number | undefined;
  /** The error code for a wrong length. */
  readonly wrongLength: "HTTP-request-body-size" | "HTTP-response-body-size";
}

/** Where a body goes. */
export interface BodyTarget {
  /** True when the body's bytes are dropped and its length is that of another message: the answer to HEAD. */
  readonly withoutBody?: boolean;
  /** True while it takes no data, until it emits `drained`. */
  readonly isFull: boolean;
  listen(listener: TargetListener): void;
  /** Writes the head down, once, before anything else. @param length of the whole body where it is known by now */
  begin(length: number | undefined): void;
  write(bytes: Uint8Array): void;
  /** @param trailers undefined: there are none */
  end(last: readonly Uint8Array[], trailers: FieldList | undefined): void;
  /** Ends it so that the receiver sees an incomplete message. */
  destroy(): void;
}

export interface TargetListener {
  drained(): void;
  /** It goes nowhere any more. */
  failed(code: HttpErrorCode): void;
}

/**
 * Written data is kept for the rest of the turn. A body that is complete by then is sent with its head in one write,
 * and with its length.
 */
export class OutgoingPipe implements ByteSink, TargetListener {
  readonly #context: HttpContext;
  readonly #head: BodyHead;
  readonly #wakes = new WakeListeners();
  #length: number | undefined;
  #target: BodyTarget | undefined;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #begun = false;
  #sendsSoon = false;
  #full = false;
  #written = 0;
  #end: { readonly trailers: FieldList | undefined } | undefined;
  #error: HttpErrorCode | undefined;

  constructor(context: HttpContext, head: BodyHead) {
    this.#context = context;
    this.#head = head;
    this.#length = head.length;
  }

  get readiness(): Readiness {
    return {
      ready: () => this.#error !== undefined || !this.#full,
      onReady: (wake) => this.#wakes.add(wake),
    };
  }

  /** Once the message is sent off. */
  connect(target: BodyTarget): void {
    this.#target = target;
    if (target.withoutBody === true) this.#length = undefined;
    target.listen(this);
    if (this.#end !== undefined) this.#sendEnd();
    else if (this.#held.length > 0) this.#sendSoon();
  }

  writable(): number {
    return this.#full && this.#error === undefined ? 0 : MAX_TRANSFER_BYTES;
  }

  write(bytes: Uint8Array): void {
    if (this.#error !== undefined) throw httpStreamFailure(this.#context, this.#error);
    if (bytes.length === 0) return;
    this.#written += bytes.length;
    const { wrongLength } = this.#head;
    if (this.#length !== undefined && this.#written > this.#length) {
      this.fail({ tag: wrongLength, val: BigInt(this.#written) });
      throw httpStreamFailure(this.#context, { tag: wrongLength, val: BigInt(this.#written) });
    }
    if (this.#begun && this.#target !== undefined) {
      this.#target.write(bytes);
      this.#full = this.#target.isFull;
      return;
    }
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    this.#full = this.#heldBytes >= MAX_TRANSFER_BYTES;
    if (this.#target !== undefined) this.#sendSoon();
  }

  /** Written data is on its way already. `writable` bounds what the target holds. */
  flush(): void {
    if (this.#error !== undefined) throw httpStreamFailure(this.#context, this.#error);
  }

  close(): void {
    // `finish` ends it.
  }

  /** @returns the error of a body with a wrong length, if any */
  finish(trailers: FieldList | undefined): HttpErrorCode | undefined {
    if (this.#error !== undefined) return this.#error;
    const { wrongLength } = this.#head;
    if (this.#length !== undefined && this.#written !== this.#length) {
      this.fail({ tag: wrongLength, val: BigInt(this.#written) });
      return this.#error;
    }
    this.#end = { trailers: trailers !== undefined && trailers.size > 0 ? trailers : undefined };
    if (this.#target !== undefined) this.#sendEnd();
    return undefined;
  }

  fail(code: HttpErrorCode): void {
    if (this.#end !== undefined || this.#error !== undefined) return;
    this.#error = code;
    this.#held = [];
    this.#target?.destroy();
    this.#wakes.all();
  }

  drained(): void {
    this.#full = this.#target?.isFull === true;
    if (!this.#full) this.#wakes.all();
  }

  failed(code: HttpErrorCode): void {
    this.fail(code);
  }

  /** Why it will never be whole. */
  get error(): HttpErrorCode | undefined {
    return this.#error;
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  #sendSoon(): void {
    if (this.#sendsSoon) return;
    this.#sendsSoon = true;
    process.nextTick(() => {
      if (this.#begun || this.#end !== undefined || this.#error !== undefined) return;
      this.#begin(undefined);
      for (const each of this.#held.splice(0)) this.#target?.write(each);
      this.drained();
    });
  }

  #begin(length: number | undefined): void {
    this.#begun = true;
    this.#target?.begin(length);
  }

  #sendEnd(): void {
    const trailers = this.#end?.trailers;
    if (!this.#begun) this.#begin(trailers === undefined ? this.#written : undefined);
    this.#target?.end(this.#held.splice(0), trailers);
  }
}

export class OutgoingBody extends HostResource {
  readonly #context: HttpContext;
  readonly #pipe: OutgoingPipe;
  #stream: "not taken" | "open" | "closed" = "not taken";

  constructor(context: HttpContext, pipe: OutgoingPipe) {
    super(context.pools.outgoingBodies);
    this.#context = context;
    this.#pipe = pipe;
  }

  write(): OutputStream {
    if (this.#stream !== "not taken") throw new Failure(undefined);
    this.#stream = "open";
    const pipe = this.#pipe;
    return new OutputStream(this.#context, {
      readiness: pipe.readiness,
      writable: () => pipe.writable(),
      write: (bytes) => pipe.write(bytes),
      flush: () => pipe.flush(),
      close: () => {
        this.#stream = "closed";
      },
    });
  }

  static finish(body: OutgoingBody, trailers: Fields | undefined): void {
    if (body.#stream === "open") throw trap("outgoing-body.finish while its stream is still open");
    const problem = body.#pipe.finish(trailers?.given());
    body[Symbol.dispose]();
    if (problem !== undefined) throw new Failure(problem);
  }

  /** Without `finish` the other side must not take it for whole. */
  protected override closed(): void {
    this.#pipe.fail({ tag: "HTTP-protocol-error" });
  }
}
