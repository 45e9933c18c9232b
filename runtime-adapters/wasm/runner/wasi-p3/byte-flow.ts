/**
 * Between the streams of WASI 0.3 and the sources and sinks of bytes that the host has for 0.2. Nothing is read ahead
 * of the component, and no more is taken from it than the other side has room for.
 */
import { Failure } from "../../shared/resources/failure.ts";
import type { Readiness } from "../../shared/resources/polling.ts";
import type { ByteSink, ByteSource, ErrorDomain, HostError } from "../../shared/resources/streams.ts";
import type { AsyncContext } from "./async-context.ts";

/** A `result` as the glue has it where it is not a function's own. */
export type Result<T, E> = { readonly tag: "ok"; readonly val: T } | { readonly tag: "err"; readonly val: E };

/** A `stream<u8>` that the component writes, as the glue hands it over. */
export interface ByteReader {
  read(options: {
    readonly count: number;
  }): Promise<{ readonly done?: boolean; readonly value?: Uint8Array | number[] | number }>;
  /** Ends the stream, and tells its writer. */
  [Symbol.dispose](): void;
}

/** The size of one piece. The glue makes a list of its bytes, which takes eight bytes for each. */
export const CHUNK_BYTES = 16_384;
const OK = { tag: "ok", val: undefined } as const;

export const success = <E>(): Result<undefined, E> => OK;

/** The bytes of a piece; none at the end. */
export const bytesOf = (value: Uint8Array | number[] | number | undefined): Uint8Array =>
  value === undefined ? new Uint8Array() : typeof value === "number" ? Uint8Array.of(value) : Uint8Array.from(value);

/** @param given resolves when the wait is given up */
export async function waitUntilReady(readiness: Readiness | undefined, given?: Promise<unknown>): Promise<void> {
  if (readiness === undefined || readiness.ready()) return;
  let takeBack: (() => void) | undefined;
  const woken = new Promise<void>((resolve) => {
    takeBack = readiness.onReady?.(resolve);
    // One that was ready when it was asked has called no listener.
    if (readiness.ready()) resolve();
  });
  await (given === undefined ? woken : Promise.race([woken, given]));
  takeBack?.();
}

/** The error code of an error of a source or a sink; undefined: it is another error. */
export function streamCode(error: unknown, domain: ErrorDomain): unknown {
  if (!(error instanceof Failure)) return undefined;
  const { payload } = error as Failure<unknown>;
  const { val } = (payload ?? {}) as { readonly val?: HostError };
  const code = val?.codeIn(domain);
  val?.[Symbol.dispose]();
  return code;
}

export interface FlowInit<E> {
  readonly source: ByteSource;
  /**
   * Converts an error of the source for the component.
   * @throws errors that do not concern the component
   */
  readonly codeOf: (error: unknown) => E;
  /** True for a source of which there are few, so that its streams are not counted. */
  readonly isBounded?: boolean;
  /** Runs when it has ended. */
  readonly onEnd?: () => void;
}

/** A `stream`, and the `future` of how it ended. */
export type FlowPair<T, E> = [AsyncIterable<T>, Promise<Result<undefined, E>>];

/** The flow of an operation that could not be started. */
export const failedFlow = <T, E>(val: E): FlowPair<T, E> => [emptyStream(), Promise.resolve({ tag: "err", val })];

/** Refuses the component's output. */
export function refusedStream<E>(reader: ByteReader, val: E): Promise<Result<undefined, E>> {
  reader[Symbol.dispose]();
  return Promise.resolve({ tag: "err", val });
}

/** A stream that is at its end. */
export async function* emptyStream(): AsyncGenerator<never> {
  // There is nothing in it.
}

export interface DrainInit<E> {
  readonly sink: ByteSink;
  readonly codeOf: FlowInit<E>["codeOf"];
  readonly isBounded?: boolean;
  /** True when it is over only after the sink has passed all of it on. */
  readonly flushes?: boolean;
}

/** Data that the component reads, as the glue takes it, and its end. */
export class ByteFlow<E> implements AsyncIterator<Uint8Array> {
  readonly #context: AsyncContext;
  readonly #init: FlowInit<E>;
  readonly #outcome = Promise.withResolvers<Result<undefined, E>>();
  readonly #giveBack: () => void;
  #hasEnded = false;

  constructor(context: AsyncContext, init: FlowInit<E>) {
    this.#context = context;
    this.#init = init;
    const end = (): void => this.#end(OK);
    this.#giveBack = init.isBounded === true ? context.endWith(end) : context.takeFlow(end);
  }

  get outcome(): Promise<Result<undefined, E>> {
    return this.#outcome.promise;
  }

  /** A reader in the component's place. */
  get reader(): ByteReader {
    return { read: () => this.next(), [Symbol.dispose]: () => void this.return() };
  }

  /** As the interfaces have it. */
  get pair(): FlowPair<Uint8Array, E> {
    return [this, this.outcome];
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    const { source, codeOf } = this.#init;
    while (!this.#hasEnded) {
      try {
        const bytes = source.read(CHUNK_BYTES);
        if (bytes === undefined) this.#end(OK);
        else if (bytes.length > 0) return { done: false, value: bytes };
        else await this.#context.watched(waitUntilReady(source.readiness, this.outcome));
      } catch (error) {
        this.#end({ tag: "err", val: codeOf(error) });
      }
    }
    return { done: true, value: undefined };
  }

  /** The component wants no more. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    this.#end(OK);
    return { done: true, value: undefined };
  }

  #end(result: Result<undefined, E>): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#init.source.close();
    this.#init.onEnd?.();
    this.#giveBack();
    this.#outcome.resolve(result);
    this.#context.onActivity();
  }
}

/**
 * Takes all output of the component, and closes the sink. Resolves when all of it is in the sink, or the sink has
 * failed; then the component learns that there is no reader any more.
 */
export function drainStream<E>(
  context: AsyncContext,
  reader: ByteReader,
  { sink, codeOf, isBounded = false, flushes = false }: DrainInit<E>,
): Promise<Result<undefined, E>> {
  const given = Promise.withResolvers<void>();
  const giveBack = isBounded ? context.endWith(given.resolve) : context.takeFlow(given.resolve);
  const outcome = copied(context, reader, sink, given.promise)
    .then(() => (flushes ? flushed(context, sink, given.promise) : undefined))
    .then((): Result<undefined, E> => OK)
    .catch((error: unknown): Result<undefined, E> => ({ tag: "err", val: codeOf(error) }))
    .finally(() => {
      sink.close();
      reader[Symbol.dispose]();
      giveBack();
    });
  return context.watched(outcome);
}

async function flushed(context: AsyncContext, sink: ByteSink, given: Promise<void>): Promise<void> {
  sink.flush();
  await context.waited(waitUntilReady(sink.readiness, given));
  // Throws an error that happened meanwhile.
  sink.flush();
}

async function copied(context: AsyncContext, reader: ByteReader, sink: ByteSink, given: Promise<void>): Promise<void> {
  for (;;) {
    await context.waited(waitUntilReady(sink.readiness, given));
    const room = Math.max(sink.writable?.() ?? CHUNK_BYTES, 1);
    const { done, value } = await reader.read({ count: Math.min(room, CHUNK_BYTES) });
    context.onActivity();
    const bytes = bytesOf(value);
    if (bytes.length > 0) sink.write(bytes);
    if (done === true) return;
  }
}
