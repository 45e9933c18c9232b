/**
 * wasi:http/types.outgoing-body: what the component writes, to a response that is served or to a request of its own. The
 * component is held back as soon as the socket holds more than its high-water mark.
 */
import type { OutgoingMessage } from "node:http";
import { Failure } from "../failure.ts";
import { HostResource, trap } from "../handles.ts";
import type { Readiness } from "../polling.ts";
import { type ByteSink, MAX_TRANSFER_BYTES, OutputStream } from "../streams.ts";
import { Wakes } from "../wakes.ts";
import { type HttpErrorCode, httpErrorCode, httpStreamFailure } from "./error-code.ts";
import type { FieldList, Fields } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";

/** Beyond it one write more costs less than the copy. */
const MAX_TEXT_BYTES = 16_384;

export interface BodyHead {
  /** Bytes that content-length says; undefined: it says nothing. */
  readonly length: number | undefined;
  /** What a wrong length is. */
  readonly wrongLength: "HTTP-request-body-size" | "HTTP-response-body-size";
}

/** Where a body goes. */
export interface BodyTarget {
  readonly message: OutgoingMessage;
  /** Whether the body's bytes go nowhere, and its length is that of another message: the answer to HEAD. */
  readonly withoutBody?: boolean;
  /** Writes the head down. @param length of the whole body where it is known by now */
  begin(length: number | undefined): void;
}

/**
 * What is written is kept for the rest of the turn: a body that is whole by then goes out with its head in one write, and
 * with its length.
 */
export class OutgoingPipe implements ByteSink {
  readonly #context: HttpContext;
  readonly #head: BodyHead;
  readonly #wakes = new Wakes();
  #length: number | undefined;
  #target: BodyTarget | undefined;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #trailers: FieldList | undefined;
  #begun = false;
  #full = false;
  #written = 0;
  #ended = false;
  #error: HttpErrorCode | undefined;
  readonly readiness: Readiness = {
    ready: () => this.#error !== undefined || !this.#full,
    onReady: (wake) => this.#wakes.add(wake),
  };

  constructor(context: HttpContext, head: BodyHead) {
    this.#context = context;
    this.#head = head;
    this.#length = head.length;
  }

  /** Once the message is sent off. */
  connect(target: BodyTarget): void {
    this.#target = target;
    const { message } = target;
    if (target.withoutBody === true) this.#length = undefined;
    message.on("drain", () => this.#emptied());
    message.once("error", (error) => this.fail(httpErrorCode(error)));
    message.once("close", () => {
      if (!this.#ended) this.fail({ tag: "connection-terminated" });
    });
    if (this.#ended) this.#end();
    else if (this.#held.length > 0) this.#sendSoon();
  }

  writable(): number {
    if (this.#error !== undefined) return MAX_TRANSFER_BYTES;
    return this.#full ? 0 : MAX_TRANSFER_BYTES;
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
    if (this.#begun) {
      this.#send(bytes);
      return;
    }
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    this.#full = this.#heldBytes >= MAX_TRANSFER_BYTES;
    if (this.#target !== undefined) this.#sendSoon();
  }

  /** What was written is on its way; the socket's own buffer is bounded by `writable`. */
  flush(): void {
    if (this.#error !== undefined) throw httpStreamFailure(this.#context, this.#error);
  }

  close(): void {
    // The body says when it has ended.
  }

  /** @returns what is wrong with it */
  finish(trailers: FieldList | undefined): HttpErrorCode | undefined {
    if (this.#error !== undefined) return this.#error;
    const { wrongLength } = this.#head;
    if (this.#length !== undefined && this.#written !== this.#length) {
      this.fail({ tag: wrongLength, val: BigInt(this.#written) });
      return this.#error;
    }
    this.#ended = true;
    this.#trailers = trailers;
    this.#end();
    return undefined;
  }

  fail(code: HttpErrorCode): void {
    if (this.#ended || this.#error !== undefined) return;
    this.#error = code;
    this.#held = [];
    this.#target?.message.destroy();
    this.#wakes.all();
  }

  /** Why it will never be whole. */
  get error(): HttpErrorCode | undefined {
    return this.#error;
  }

  get hasEnded(): boolean {
    return this.#ended;
  }

  #sendSoon(): void {
    process.nextTick(() => {
      if (this.#begun || this.#ended || this.#error !== undefined) return;
      this.#begin(undefined);
      this.#emptied();
    });
  }

  #begin(length: number | undefined): void {
    this.#begun = true;
    this.#target?.begin(length);
    for (const each of this.#held.splice(0)) this.#send(each);
  }

  #send(bytes: Uint8Array): void {
    if (this.#target?.message.write(bytes) === false) this.#full = true;
  }

  #emptied(): void {
    this.#full = this.#target?.message.writableNeedDrain === true;
    if (!this.#full) this.#wakes.all();
  }

  #end(): void {
    const message = this.#target?.message;
    if (message === undefined) return;
    const trailers = this.#trailers;
    const hasTrailers = trailers !== undefined && trailers.entries.length > 0;
    if (!this.#begun) {
      this.#begun = true;
      this.#target?.begin(hasTrailers ? undefined : this.#written);
    }
    const last = this.#held.splice(0);
    if (hasTrailers) message.addTrailers(pairs(trailers));
    const [first] = last;
    if (last.length === 1 && first !== undefined && first.length <= MAX_TEXT_BYTES) {
      // As characters it goes into one write with the head.
      message.end(Buffer.from(first.buffer, first.byteOffset, first.length).toString("latin1"), "latin1");
      return;
    }
    for (const each of last) message.write(each);
    message.end();
  }
}

const pairs = (list: FieldList): [string, string][] =>
  list.entries.map(([name, value]) => [name, Buffer.from(value).toString("latin1")]);

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
