/**
 * wasi:http/types.incoming-body and future-trailers: what comes in, of a request or of a response, over a stream of
 * `node:http`. Nothing is read ahead of the component but what the stream itself holds, which then stops the socket.
 */
import type { IncomingMessage } from "node:http";
import { Failure } from "../failure.ts";
import { HostResource, trap } from "../handles.ts";
import { Pollable, type Readiness } from "../polling.ts";
import { type ByteSource, InputStream } from "../streams.ts";
import { Wakes } from "../wakes.ts";
import { type HttpErrorCode, httpErrorCode, httpStreamFailure } from "./error-code.ts";
import { FieldList, Fields } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";

export interface BodyLimits {
  readonly maxBytes: number;
  /** What the component is told when there are more. */
  readonly tooLarge: HttpErrorCode;
  /** Milliseconds without a byte that the component has asked for. */
  readonly idleMs: number;
  /** Runs when the component first asks for a byte. */
  readonly onFirstRead?: (() => void) | undefined;
}

/** One message's body, as it comes. */
export class IncomingPipe implements ByteSource {
  readonly #context: HttpContext;
  readonly #message: IncomingMessage;
  readonly #limits: BodyLimits;
  readonly #wakes = new Wakes();
  #listening = false;
  #ended = false;
  #bytes = 0;
  #error: HttpErrorCode | undefined;
  readonly readiness: Readiness;

  constructor(context: HttpContext, message: IncomingMessage, limits: BodyLimits) {
    this.#context = context;
    this.#message = message;
    this.#limits = limits;
    this.readiness = {
      ready: () => this.#isReady(),
      onReady: (wake) => this.#wakes.add(wake),
    };
  }

  read(length: number): Uint8Array | undefined {
    this.#listen();
    if (this.#error !== undefined) throw httpStreamFailure(this.#context, this.#error);
    if (this.#ended) return undefined;
    const available = Math.min(length, this.#message.readableLength);
    const chunk: Buffer | null = this.#message.read(available === 0 ? undefined : available);
    if (chunk === null) return new Uint8Array();
    this.#bytes += chunk.length;
    if (this.#bytes <= this.#limits.maxBytes) return chunk;
    this.#fail(this.#limits.tooLarge);
    throw httpStreamFailure(this.#context, this.#limits.tooLarge);
  }

  /** What nobody reads any more is thrown away as it comes. */
  close(): void {
    this.#listen();
    this.#message.removeAllListeners("readable");
    this.#message.resume();
  }

  /** Trailers, or why there are none; undefined: it has not ended yet. */
  get outcome(): FieldList | HttpErrorCode | undefined {
    if (this.#error !== undefined) return this.#error;
    return this.#ended ? FieldList.received(this.#message.rawTrailers) : undefined;
  }

  #isReady(): boolean {
    this.#listen();
    return this.#ended || this.#error !== undefined || this.#message.readableLength > 0;
  }

  #listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    const message = this.#message;
    if (message.readableEnded) {
      this.#ended = true;
      return;
    }
    if (message.destroyed) this.#error = { tag: "connection-terminated" };
    const { idleMs, onFirstRead } = this.#limits;
    message.on("readable", () => this.#wakes.all());
    message.once("end", () => {
      this.#ended = true;
      this.#wakes.all();
    });
    message.once("error", (error) => this.#fail(httpErrorCode(error)));
    message.once("close", () => {
      if (!this.#ended) this.#fail({ tag: "connection-terminated" });
    });
    message.setTimeout(idleMs, () => {
      this.#fail({ tag: "connection-read-timeout" });
      message.destroy();
    });
    onFirstRead?.();
  }

  #fail(code: HttpErrorCode): void {
    this.#error ??= code;
    this.#wakes.all();
  }
}

export class IncomingBody extends HostResource {
  readonly #context: HttpContext;
  readonly #pipe: IncomingPipe;
  #stream: "not taken" | "open" | "closed" = "not taken";

  constructor(context: HttpContext, pipe: IncomingPipe) {
    super(context.pools.incomingBodies);
    this.#context = context;
    this.#pipe = pipe;
  }

  stream(): InputStream {
    if (this.#stream !== "not taken") throw new Failure(undefined);
    this.#stream = "open";
    const pipe = this.#pipe;
    return new InputStream(this.#context, {
      readiness: pipe.readiness,
      read: (length) => pipe.read(length),
      close: () => {
        this.#stream = "closed";
      },
    });
  }

  static finish(body: IncomingBody): FutureTrailers {
    if (body.#stream === "open") throw trap("incoming-body.finish while its stream is still open");
    body[Symbol.dispose]();
    return new FutureTrailers(body.#context, body.#pipe);
  }

  protected override closed(): void {
    this.#pipe.close();
  }
}

export class FutureTrailers extends HostResource {
  readonly #context: HttpContext;
  readonly #pipe: IncomingPipe;
  #taken = false;

  constructor(context: HttpContext, pipe: IncomingPipe) {
    super(context.pools.futureTrailers);
    this.#context = context;
    this.#pipe = pipe;
  }

  subscribe(): Pollable {
    const { readiness } = this.#pipe;
    const ended: Readiness = {
      ready: () => this.#pipe.outcome !== undefined,
      onReady: (wake) => readiness.onReady?.(wake) ?? (() => undefined),
    };
    return new Pollable(this.#context.handles.pollables, this.#context.poller, ended);
  }

  /** Undefined: not yet. The outer error: it was told before. */
  get(): unknown {
    const { outcome } = this.#pipe;
    if (outcome === undefined) return undefined;
    if (this.#taken) return { tag: "err", val: undefined };
    this.#taken = true;
    if (!(outcome instanceof FieldList)) return { tag: "ok", val: { tag: "err", val: outcome } };
    const trailers = outcome.entries.length === 0 ? undefined : new Fields(this.#context, outcome, true);
    return { tag: "ok", val: { tag: "ok", val: trailers } };
  }
}
