/**
 * wasi:http/types.incoming-body and future-trailers: the body of a request that is served, or of a response. Only the
 * source's own buffer is read ahead of the component; when it is full the socket stops.
 */
import { Failure } from "../resources/failure.ts";
import { HostResource, trap } from "../resources/handles.ts";
import { Pollable, type Readiness } from "../resources/polling.ts";
import { type ByteSource, InputStream } from "../resources/streams.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import { type HttpErrorCode, httpStreamFailure } from "./error-code.ts";
import { FieldList, Fields } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";

/** The source of a body. */
export interface BodySource {
  /** Bytes that `take` gives now. */
  readonly available: number;
  /** True when all of it has been read, and it is complete. */
  readonly hasEnded: boolean;
  /** Names and values in turn, once it has ended. */
  readonly trailers: readonly string[];
  /** At most `length` bytes; undefined: there are none now. */
  take(length: number): Uint8Array | undefined;
  /**
   * Called once, before the other methods. The listener is notified of every change, of the first one perhaps at once.
   */
  listen(listener: BodyListener): void;
  /** Called once, when the component requests its first byte. */
  start(): void;
  /** Drops all further data, because it has no reader any more. */
  discard(): void;
}

export interface BodyListener {
  /** There are bytes, or the end. */
  changed(): void;
  failed(code: HttpErrorCode): void;
}

interface BodyLimits {
  readonly maxBytes: number;
  /** The error of the component when there are more. */
  readonly tooLarge: HttpErrorCode;
}

/** One message's body, as it arrives. */
export class IncomingPipe implements ByteSource, BodyListener {
  readonly #context: HttpContext;
  readonly #source: BodySource;
  readonly #limits: BodyLimits;
  readonly #wakes = new WakeListeners();
  #phase: "untouched" | "closed" | "started" = "untouched";
  #bytes = 0;
  #error: HttpErrorCode | undefined;
  readonly readiness: Readiness;

  constructor(context: HttpContext, source: BodySource, limits: BodyLimits) {
    this.#context = context;
    this.#source = source;
    this.#limits = limits;
    this.readiness = {
      ready: () => this.#isReady(),
      onReady: (wake) => this.#wakes.add(wake),
    };
  }

  read(length: number): Uint8Array | undefined {
    this.#start();
    // Data that has arrived is returned before the error that followed it.
    const chunk = this.#source.take(length);
    if (chunk === undefined) {
      if (this.#error !== undefined) throw httpStreamFailure(this.#context, this.#error);
      return this.#source.hasEnded ? undefined : new Uint8Array();
    }
    this.#bytes += chunk.length;
    if (this.#bytes <= this.#limits.maxBytes) return chunk;
    this.failed(this.#limits.tooLarge);
    this.#source.discard();
    throw httpStreamFailure(this.#context, this.#limits.tooLarge);
  }

  close(): void {
    if (this.#phase === "untouched") this.#source.listen(this);
    this.#phase = "closed";
    this.#source.discard();
  }

  /** Trailers, or why there are none; undefined: it has not ended yet. */
  get outcome(): FieldList | HttpErrorCode | undefined {
    if (this.#error !== undefined) return this.#error;
    return this.#source.hasEnded ? FieldList.received(this.#source.trailers) : undefined;
  }

  changed(): void {
    this.#wakes.all();
  }

  failed(code: HttpErrorCode): void {
    this.#error ??= code;
    this.#wakes.all();
  }

  #isReady(): boolean {
    this.#start();
    return this.#error !== undefined || this.#source.available > 0 || this.#source.hasEnded;
  }

  #start(): void {
    if (this.#phase !== "untouched") return;
    this.#phase = "started";
    this.#source.listen(this);
    this.#source.start();
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

  /** Undefined: not yet. The outer error: the outcome was taken before. */
  get(): unknown {
    const { outcome } = this.#pipe;
    if (outcome === undefined) return undefined;
    if (this.#taken) return { tag: "err", val: undefined };
    this.#taken = true;
    if (!(outcome instanceof FieldList)) return { tag: "ok", val: { tag: "err", val: outcome } };
    const trailers = outcome.size === 0 ? undefined : new Fields(this.#context, outcome, true);
    return { tag: "ok", val: { tag: "ok", val: trailers } };
  }
}
