/** wasi:http/types: requests and responses, those that come in and those that the component makes. */
import { Failure } from "../resources/failure.ts";
import { HostResource } from "../resources/handles.ts";
import type { HttpErrorCode } from "./error-code.ts";
import { type FieldList, Fields } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";
import { IncomingBody, type IncomingPipe } from "./incoming-body.ts";
import { OutgoingBody, OutgoingPipe } from "./outgoing-body.ts";
import {
  contentLength,
  isPathWithQuery,
  isScheme,
  type Method,
  methodText,
  parseAuthority,
  type Scheme,
} from "./request-line.ts";

const DEFAULT_STATUS = 200;
const MIN_STATUS = 100;
const MAX_STATUS = 999;
const NANOSECONDS_PER_MS = 1_000_000n;

/** The failure of a `result` without a payload. */
const failureWithoutPayload = (): Failure<undefined> => new Failure(undefined);

export interface RequestHead {
  readonly method: Method;
  readonly pathWithQuery: string | undefined;
  readonly authority: string | undefined;
  readonly fields: FieldList;
}

/** The common part of incoming requests and responses. */
abstract class IncomingMessageResource extends HostResource {
  protected readonly context: HttpContext;
  readonly #fields: FieldList;
  readonly #pipe: IncomingPipe;
  #consumed = false;

  constructor(
    context: HttpContext,
    kind: "incomingRequests" | "incomingResponses",
    fields: FieldList,
    pipe: IncomingPipe,
  ) {
    super(context.pools[kind]);
    this.context = context;
    this.#fields = fields;
    this.#pipe = pipe;
  }

  headers(): Fields {
    return new Fields(this.context, this.#fields, true);
  }

  consume(): IncomingBody {
    if (this.#consumed) throw failureWithoutPayload();
    this.#consumed = true;
    return new IncomingBody(this.context, this.#pipe);
  }

  /** Takes its parts for another resource, and frees its handle. */
  given(): { readonly fields: FieldList; readonly pipe: IncomingPipe } {
    this.#consumed = true;
    this[Symbol.dispose]();
    return { fields: this.#fields, pipe: this.#pipe };
  }

  /** A body that was not requested is not awaited either. */
  protected override closed(): void {
    if (!this.#consumed) this.#pipe.close();
  }
}

export class IncomingRequest extends IncomingMessageResource {
  readonly #head: RequestHead;

  constructor(context: HttpContext, head: RequestHead, pipe: IncomingPipe) {
    super(context, "incomingRequests", head.fields, pipe);
    this.#head = head;
  }

  method(): Method {
    return this.#head.method;
  }

  pathWithQuery(): string | undefined {
    return this.#head.pathWithQuery;
  }

  scheme(): Scheme {
    return { tag: "HTTP" };
  }

  authority(): string | undefined {
    return this.#head.authority;
  }
}

export class IncomingResponse extends IncomingMessageResource {
  readonly #status: number;

  constructor(context: HttpContext, status: number, fields: FieldList, pipe: IncomingPipe) {
    super(context, "incomingResponses", fields, pipe);
    this.#status = status;
  }

  status(): number {
    return this.#status;
  }
}

/** A message that the component makes, with the one body it has. */
abstract class OutgoingMessageResource extends HostResource {
  protected readonly context: HttpContext;
  readonly fields: FieldList;
  readonly pipe: OutgoingPipe;
  #bodyTaken = false;

  constructor(
    context: HttpContext,
    kind: "outgoingRequests" | "outgoingResponses",
    headers: Fields,
    wrongLength: "HTTP-request-body-size" | "HTTP-response-body-size",
  ) {
    super(context.pools[kind]);
    this.context = context;
    this.fields = headers.given();
    const length = contentLength(this.fields.values("content-length")) ?? undefined;
    this.pipe = new OutgoingPipe(context, { length, wrongLength });
  }

  headers(): Fields {
    return new Fields(this.context, this.fields, true);
  }

  body(): OutgoingBody {
    if (this.#bodyTaken) throw failureWithoutPayload();
    this.#bodyTaken = true;
    return new OutgoingBody(this.context, this.pipe);
  }

  /**
   * Frees the handle after the message was sent.
   * @returns whether its body has been taken
   */
  given(): boolean {
    this[Symbol.dispose]();
    return this.#bodyTaken;
  }
}

export class OutgoingResponse extends OutgoingMessageResource {
  status = DEFAULT_STATUS;

  constructor(context: HttpContext, headers: Fields) {
    super(context, "outgoingResponses", headers, "HTTP-response-body-size");
  }

  statusCode(): number {
    return this.status;
  }

  setStatusCode(status: number): void {
    if (status < MIN_STATUS || status > MAX_STATUS) throw failureWithoutPayload();
    this.status = status;
  }
}

export class OutgoingRequest extends OutgoingMessageResource {
  #method: Method = { tag: "get" };
  #path: string | undefined;
  #scheme: Scheme | undefined;
  #authority: string | undefined;

  constructor(context: HttpContext, headers: Fields) {
    super(context, "outgoingRequests", headers, "HTTP-request-body-size");
  }

  method(): Method {
    return this.#method;
  }

  setMethod(method: Method): void {
    if (methodText(method) === undefined) throw failureWithoutPayload();
    this.#method = method;
  }

  pathWithQuery(): string | undefined {
    return this.#path;
  }

  setPathWithQuery(path: string | undefined): void {
    if (path !== undefined && !isPathWithQuery(path)) throw failureWithoutPayload();
    this.#path = path;
  }

  scheme(): Scheme | undefined {
    return this.#scheme;
  }

  setScheme(scheme: Scheme | undefined): void {
    if (scheme !== undefined && !isScheme(scheme)) throw failureWithoutPayload();
    this.#scheme = scheme;
  }

  authority(): string | undefined {
    return this.#authority;
  }

  setAuthority(authority: string | undefined): void {
    if (authority !== undefined && parseAuthority(authority) === undefined) throw failureWithoutPayload();
    this.#authority = authority;
  }
}

export class RequestOptions extends HostResource {
  #connect: bigint | undefined;
  #firstByte: bigint | undefined;
  #betweenBytes: bigint | undefined;

  constructor(context: HttpContext) {
    super(context.pools.options);
  }

  connectTimeout(): bigint | undefined {
    return this.#connect;
  }

  setConnectTimeout(duration: bigint | undefined): void {
    this.#connect = duration;
  }

  firstByteTimeout(): bigint | undefined {
    return this.#firstByte;
  }

  setFirstByteTimeout(duration: bigint | undefined): void {
    this.#firstByte = duration;
  }

  betweenBytesTimeout(): bigint | undefined {
    return this.#betweenBytes;
  }

  setBetweenBytesTimeout(duration: bigint | undefined): void {
    this.#betweenBytes = duration;
  }
}

/**
 * Milliseconds of a duration in nanoseconds, at least one. Without a duration `otherwise`, which is the maximum too.
 */
export const milliseconds = (duration: bigint | undefined, otherwise: number): number =>
  duration === undefined ? otherwise : Math.min(Math.max(Number(duration / NANOSECONDS_PER_MS), 1), otherwise);

/** Where a response goes. */
export interface Answer {
  respond(response: OutgoingResponse, hasBody: boolean): void;
  fail(code: HttpErrorCode): void;
}

export class ResponseOutparam extends HostResource {
  readonly #answer: Answer;

  constructor(context: HttpContext, answer: Answer) {
    super(context.pools.outparams);
    this.#answer = answer;
  }

  static set(
    param: ResponseOutparam,
    response:
      | { readonly tag: "ok"; readonly val: OutgoingResponse }
      | { readonly tag: "err"; readonly val: HttpErrorCode },
  ): void {
    param[Symbol.dispose]();
    if (response.tag === "err") param.#answer.fail(response.val);
    else param.#answer.respond(response.val, response.val.given());
  }

  sendInformational(): never {
    throw new Failure({ tag: "internal-error", val: "informational responses are not sent" });
  }
}
