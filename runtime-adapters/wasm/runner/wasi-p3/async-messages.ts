/** wasi:http/types of WASI 0.3: messages and the transfer of their bodies, over the parts for 0.2. */

import { ignore } from "@picolet/protocol/errors.ts";
import type { HttpErrorCode } from "../../shared/http/error-code.ts";
import { FieldList, type Fields } from "../../shared/http/fields.ts";
import type { HttpContext } from "../../shared/http/http-context.ts";
import type { IncomingPipe } from "../../shared/http/incoming-body.ts";
import { OutgoingBody, type OutgoingPipe } from "../../shared/http/outgoing-body.ts";
import {
  isPathWithQuery,
  isScheme,
  type Method,
  methodText,
  parseAuthority,
  type Scheme,
} from "../../shared/http/request-line.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { HostResource } from "../../shared/resources/handles.ts";
import type { AsyncContext } from "./async-context.ts";
import { AsyncFields, type AsyncOptions } from "./async-fields.ts";
import {
  ByteFlow,
  type ByteReader,
  drainStream,
  emptyStream,
  type FlowPair,
  type Result,
  streamCode,
} from "./byte-flow.ts";

export interface AsyncHttp {
  readonly context: AsyncContext;
  readonly http: HttpContext;
}

export type Sent = Result<undefined, HttpErrorCode>;
export type Trailers = Result<Fields | undefined, HttpErrorCode>;
/** A `future` of the component's, which is read when it is waited for. */
export type FutureOf<T> = PromiseLike<T>;

const DEFAULT_STATUS = 200;
const MIN_STATUS = 100;
const MAX_STATUS = 999;

const failureWithoutPayload = (): Failure<undefined> => new Failure(undefined);

/**
 * @param error of a body's source or target
 * @throws errors that do not concern the component
 */
export function httpCode(error: unknown): HttpErrorCode {
  const code = streamCode(error, "http") as HttpErrorCode | undefined;
  if (code !== undefined) return code;
  if (error instanceof Failure) return { tag: "HTTP-protocol-error" };
  throw error;
}

export type BodyPair = [AsyncIterable<Uint8Array> | ByteReader, FutureOf<Trailers>];

/** The content of a message. It is taken once. */
export interface Body {
  /** For the component. @param outcome the component's result for the body */
  consumed(outcome: FutureOf<Sent>): BodyPair;
  /** On its way; undefined: there is none. */
  readonly reader: ByteReader | undefined;
  readonly trailers: FutureOf<Trailers>;
  /** Reports the outcome of its transfer. */
  settle(sent: Sent): void;
  /** The body is not used. */
  discard(): void;
}

/** That the component has given. */
export class OutgoingComponentBody implements Body {
  readonly reader: ByteReader | undefined;
  readonly trailers: FutureOf<Trailers>;
  readonly #sent = Promise.withResolvers<Sent>();

  constructor(contents: ByteReader | undefined, trailers: FutureOf<Trailers>) {
    this.reader = contents;
    this.trailers = trailers;
  }

  get sent(): Promise<Sent> {
    return this.#sent.promise;
  }

  consumed(outcome: FutureOf<Sent>): BodyPair {
    void outcome.then(
      (sent) => this.settle(sent),
      () => this.settle({ tag: "err", val: { tag: "HTTP-protocol-error" } }),
    );
    return [this.reader ?? emptyStream(), this.trailers];
  }

  settle(sent: Sent): void {
    this.#sent.resolve(sent);
  }

  discard(): void {
    this.reader?.[Symbol.dispose]();
    const read = ignore("their writer waits until they are read");
    void this.trailers.then(read, read);
  }
}

/** A body that the host has received. */
export class IncomingHostBody implements Body {
  readonly #http: AsyncHttp;
  readonly #pipe: IncomingPipe;
  #flow: ByteFlow<HttpErrorCode> | undefined;
  #trailers: Promise<Trailers> | undefined;

  constructor(http: AsyncHttp, pipe: IncomingPipe) {
    this.#http = http;
    this.#pipe = pipe;
  }

  consumed(outcome: FutureOf<Sent>): BodyPair {
    const read = ignore("it is read so that its writer does not wait; the result concerns no one");
    void outcome.then(read, read);
    const flow: FlowPair<Uint8Array, HttpErrorCode> = this.#begun().pair;
    return [flow[0], this.trailers];
  }

  get reader(): ByteReader {
    return this.#begun().reader;
  }

  get trailers(): Promise<Trailers> {
    this.#trailers ??= this.#atItsEnd();
    return this.#trailers;
  }

  settle(): void {
    // The result concerns no one.
  }

  discard(): void {
    if (this.#flow === undefined) this.#pipe.close();
  }

  #begun(): ByteFlow<HttpErrorCode> {
    this.#flow ??= new ByteFlow(this.#http.context, { source: this.#pipe, codeOf: httpCode });
    return this.#flow;
  }

  async #atItsEnd(): Promise<Trailers> {
    const ended = await this.#begun().outcome;
    if (ended.tag === "err") return ended;
    const { outcome } = this.#pipe;
    if (outcome !== undefined && !(outcome instanceof FieldList)) return { tag: "err", val: outcome };
    // A component that drops the body before its end gets no trailers.
    if (outcome === undefined || outcome.size === 0) return { tag: "ok", val: undefined };
    return { tag: "ok", val: new AsyncFields(this.#http.http, outcome, true) };
  }
}

/** There is none to be sent. */
export function settleWithoutBody(body: Body): void {
  body.discard();
  body.settle({ tag: "ok", val: undefined });
}

/**
 * Writes a body and its trailers.
 * @returns the outcome, which is reported to the body's giver too
 */
export async function transmitBody(
  { context }: AsyncHttp,
  body: Body,
  out: OutgoingBody,
  pipe: OutgoingPipe,
): Promise<Sent> {
  const sent = await written(context, body, out, pipe);
  if (sent.tag === "err") {
    pipe.fail(sent.val);
    out[Symbol.dispose]();
    body.discard();
  }
  body.settle(sent);
  return sent;
}

async function written(context: AsyncContext, body: Body, out: OutgoingBody, pipe: OutgoingPipe): Promise<Sent> {
  const { reader } = body;
  if (reader !== undefined) {
    const copied = await drainStream(context, reader, { sink: pipe, codeOf: httpCode });
    if (copied.tag === "err") return copied;
  }
  const trailers = await body.trailers;
  context.onActivity();
  if (trailers.tag === "err") return trailers;
  if (pipe.error !== undefined) return { tag: "err", val: pipe.error };
  try {
    OutgoingBody.finish(out, trailers.val);
    return { tag: "ok", val: undefined };
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { tag: "err", val: (error as Failure<HttpErrorCode>).payload };
  }
}

/** The common part of requests and responses. */
abstract class Message extends HostResource {
  protected readonly http: AsyncHttp;
  readonly fields: FieldList;
  readonly body: Body;
  #taken = false;

  constructor(http: AsyncHttp, kind: "requests" | "responses", fields: FieldList, body: Body) {
    super(http.context.pool(kind));
    this.http = http;
    this.fields = fields;
    this.body = body;
  }

  getHeaders(): AsyncFields {
    return new AsyncFields(this.http.http, this.fields, true);
  }

  /** Frees the handle, and passes the body on. */
  given(): this {
    this.#taken = true;
    this[Symbol.dispose]();
    return this;
  }

  protected override closed(): void {
    if (this.#taken) return;
    this.body.settle({ tag: "err", val: { tag: "HTTP-request-denied" } });
    this.body.discard();
  }
}

export interface RequestHead {
  method: Method;
  path: string | undefined;
  scheme: Scheme | undefined;
  authority: string | undefined;
}

export class AsyncRequest extends Message {
  readonly head: RequestHead;
  readonly options: AsyncOptions | undefined;

  constructor(http: AsyncHttp, fields: FieldList, body: Body, head?: RequestHead, options?: AsyncOptions) {
    super(http, "requests", fields, body);
    this.head = head ?? { method: { tag: "get" }, path: undefined, scheme: undefined, authority: undefined };
    this.options = options;
  }

  getMethod(): Method {
    return this.head.method;
  }

  setMethod(method: Method): void {
    if (methodText(method) === undefined) throw failureWithoutPayload();
    this.head.method = method;
  }

  getPathWithQuery(): string | undefined {
    return this.head.path;
  }

  setPathWithQuery(path: string | undefined): void {
    if (path !== undefined && !isPathWithQuery(path)) throw failureWithoutPayload();
    this.head.path = path;
  }

  getScheme(): Scheme | undefined {
    return this.head.scheme;
  }

  setScheme(scheme: Scheme | undefined): void {
    if (scheme !== undefined && !isScheme(scheme)) throw failureWithoutPayload();
    this.head.scheme = scheme;
  }

  getAuthority(): string | undefined {
    return this.head.authority;
  }

  setAuthority(authority: string | undefined): void {
    if (authority !== undefined && parseAuthority(authority) === undefined) throw failureWithoutPayload();
    this.head.authority = authority;
  }

  getOptions(): AsyncOptions | undefined {
    return this.options?.fixed();
  }
}

export class AsyncResponse extends Message {
  status: number;

  constructor(http: AsyncHttp, fields: FieldList, body: Body, status = DEFAULT_STATUS) {
    super(http, "responses", fields, body);
    this.status = status;
  }

  getStatusCode(): number {
    return this.status;
  }

  setStatusCode(status: number): void {
    if (status < MIN_STATUS || status > MAX_STATUS) throw failureWithoutPayload();
    this.status = status;
  }
}
