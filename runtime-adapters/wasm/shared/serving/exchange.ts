/** One request that is served, and its response: between a connection and the component's resources. */
import type { HttpErrorCode } from "../http/error-code.ts";
import { FieldList } from "../http/fields.ts";
import type { HttpContext } from "../http/http-context.ts";
import { IncomingPipe } from "../http/incoming-body.ts";
import { type Answer, IncomingRequest, type OutgoingResponse } from "../http/messages.ts";
import type { OutgoingPipe } from "../http/outgoing-body.ts";
import { contentLength, methodOf } from "../http/request-line.ts";
import { type BodyReader, RequestBody } from "./request-body.ts";
import { type DateField, type RequestFraming, type ResponseSink, ResponseWriter } from "./response-writer.ts";

export interface ExchangeLimits {
  readonly maxBodyBytes: number;
}

/** As llhttp gives it. */
export interface ReceivedHead {
  readonly method: string;
  readonly url: string;
  /** Names and values in turn. */
  readonly fields: readonly string[];
  /** 11 for HTTP/1.1. */
  readonly version: number;
  /** True when the request allows another one on its connection. */
  readonly keepAlive: boolean;
}

export interface ExchangeComponents {
  readonly connection: ResponseSink &
    BodyReader & {
      readonly mayGoOn: boolean;
      readonly isClosed: boolean;
      /** @returns whether this may be the field `Host` */
      isHost(text: string): boolean;
    };
  readonly date: DateField;
  readonly limits: ExchangeLimits;
}

const HTTP_1_1 = 11;
const HTTP_1_0 = 10;
const MIN_FINAL_STATUS = 200;
const SLASH = 0x2f;
const CODES: readonly (readonly [start: RegExp, status: number])[] = [
  [/^HTTP-request-denied$/, 403],
  [/^HTTP-request-length-required$/, 411],
  [/^HTTP-request-body-size$/, 413],
  [/^HTTP-request-URI-too-long$/, 414],
  [/^HTTP-request-(?:header|trailer)/, 431],
  [/^loop-detected$/, 508],
  [/timeout$/, 504],
  [/^(?:DNS|destination|connection|TLS|HTTP-response)-/, 502],
];

export class Exchange implements Answer, RequestFraming {
  readonly #head: ReceivedHead;
  readonly #connection: ExchangeComponents["connection"];
  readonly #limits: ExchangeLimits;
  readonly #writer: ResponseWriter;
  readonly body: RequestBody;
  /** The status of the answer in place of the component's. */
  refusal: number | undefined;
  #host: string | undefined;
  #expectsContinue = false;
  #pipe: OutgoingPipe | undefined;
  #answered = false;

  constructor(head: ReceivedHead, { connection, date, limits }: ExchangeComponents) {
    this.#head = head;
    this.#connection = connection;
    this.#limits = limits;
    this.#writer = new ResponseWriter(connection, this, date);
    this.body = new RequestBody(connection);
    this.refusal = this.#examined();
  }

  /** Makes an exchange for input that is no request. */
  static refused(
    status: number,
    connection: ExchangeComponents["connection"],
    more: Omit<ExchangeComponents, "connection">,
  ): Exchange {
    const head = { method: "GET", url: "", fields: [], version: HTTP_1_0, keepAlive: false };
    const exchange = new Exchange(head, { connection, ...more });
    exchange.refusal = status;
    exchange.body.complete([]);
    return exchange;
  }

  /** For logs, in one line. */
  get name(): string {
    return `${this.#head.method} ${JSON.stringify(this.#head.url.slice(0, 200))}`;
  }

  /** True when the client has disconnected. */
  get isGone(): boolean {
    return this.#connection.isClosed || this.#writer.hasEnded;
  }

  get isHead(): boolean {
    return this.#head.method === "HEAD";
  }

  get isHttp11(): boolean {
    return this.#head.version === HTTP_1_1;
  }

  keepAlive(): boolean {
    // A client that still waits for 100 Continue may send the body or not, so that the next bytes are ambiguous.
    const isClear = this.refusal === undefined && !(this.#expectsContinue && !this.body.isWhole);
    return isClear && this.#head.keepAlive && this.#connection.mayGoOn;
  }

  request(context: HttpContext): IncomingRequest {
    const { maxBodyBytes } = this.#limits;
    const { method, url, fields } = this.#head;
    const pipe = new IncomingPipe(context, this.body, {
      maxBytes: maxBodyBytes,
      tooLarge: { tag: "HTTP-request-body-size", val: BigInt(maxBodyBytes) },
    });
    const absolute = absoluteForm(url);
    const head = {
      method: methodOf(method),
      pathWithQuery: absolute === null ? url : pathOf(absolute[2]),
      authority: absolute?.[1] ?? this.#host,
      fields: FieldList.received(fields),
    };
    return new IncomingRequest(context, head, pipe);
  }

  respond(response: OutgoingResponse, hasBody: boolean): void {
    const { status, fields, pipe } = response;
    this.#answered = true;
    const writer = this.#writer;
    writer.respond(status, fields);
    const length = contentLength(fields.values("content-length"));
    const isEmpty = hasBody || length === undefined || length === 0 || writer.withoutBody;
    if (status < MIN_FINAL_STATUS || length === null || !isEmpty) {
      pipe.fail({ tag: "HTTP-protocol-error" });
      this.answer(500);
      return;
    }
    if (hasBody) {
      this.#pipe = pipe;
      pipe.connect(writer);
    } else {
      writer.begin(0);
      writer.end([], undefined);
    }
  }

  fail({ tag }: HttpErrorCode): void {
    this.#answered = true;
    this.answer(CODES.find(([start]) => start.test(tag))?.[1] ?? 500);
  }

  /**
   * Answers without the component. When a part has been sent already, the connection is cut, so that the client sees
   * that the response is incomplete.
   */
  answer(status: number, fields: readonly string[] = []): void {
    if (this.#writer.hasEnded) return;
    if (this.#writer.hasBegun) this.#connection.destroy();
    else this.#writer.answer(status, fields);
  }

  /** The component has returned. @returns the missing part of its response, for a message */
  returned(): string | undefined {
    this.body.discard();
    if (!this.#answered) {
      this.answer(500);
      return "it set no response";
    }
    const pipe = this.#pipe;
    // A client that has gone is no fault of the component's.
    if (pipe === undefined || pipe.hasEnded || pipe.error?.tag === "connection-terminated") return undefined;
    pipe.fail({ tag: "HTTP-protocol-error" });
    return "it did not finish the body of its response, or not with the length that it announced";
  }

  /** The component has failed. */
  broken(status: number): void {
    this.body.discard();
    if (this.#pipe !== undefined && !this.#pipe.hasEnded) this.#pipe.fail({ tag: "HTTP-protocol-error" });
    else this.answer(status);
  }

  /** The component requests the first byte of the request's body. */
  bodyWanted(): void {
    if (!this.#expectsContinue || this.#writer.hasBegun) return;
    this.#expectsContinue = false;
    this.#connection.write(["HTTP/1.1 100 Continue\r\n\r\n"]);
  }

  drained(): void {
    this.#writer.drained();
  }

  /** The client has. */
  gone(): void {
    this.body.fail({ tag: "connection-terminated" });
    this.#writer.gone();
  }

  /**
   * Checks what llhttp accepts against RFC 9112, 3.2 and RFC 9110, 10.1.1.
   * @returns the status of the refusal
   */
  #examined(): number | undefined {
    const { fields, version, method, url } = this.#head;
    let hosts = 0;
    let expects: string | undefined;
    let length = 0;
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] as string;
      const value = fields[at + 1] as string;
      if (isField(name, "host")) {
        hosts += 1;
        this.#host = value;
      } else if (isField(name, "expect")) expects = value;
      else if (isField(name, "content-length")) length = Number(value);
      else if (isField(name, "transfer-encoding")) {
        // RFC 9112, 6.1: a proxy that passed on a chunked message of HTTP/1.0 may have seen another end of it.
        if (version !== HTTP_1_1) return 400;
        // A component does not see other codings, and would take encoded bytes for the body.
        if (value.toLowerCase() !== "chunked") return 501;
      }
    }
    if (version !== HTTP_1_1 && version !== HTTP_1_0) return 505;
    if (hosts > 1 || (hosts === 0 && version === HTTP_1_1)) return 400;
    if (this.#host !== undefined && !this.#connection.isHost(this.#host)) return 400;
    const authority = absoluteForm(url)?.[1];
    if (authority === "" || (authority !== undefined && !this.#connection.isHost(authority))) return 400;
    // A tunnel is nothing that a component could serve.
    if (method === "CONNECT") return 501;
    if (length > this.#limits.maxBodyBytes) return 413;
    if (expects === undefined || version !== HTTP_1_1) return undefined;
    this.#expectsContinue = /(?:^|\W)100-continue(?:$|\W)/i.test(expects);
    return this.#expectsContinue ? undefined : 417;
  }
}

/** Authority, and path with query. Clients send this form to proxies, or when they take this server for one. */
const absoluteForm = (url: string): RegExpExecArray | null =>
  url.charCodeAt(0) === SLASH ? null : /^https?:\/\/([^/?]*)(.*)$/i.exec(url);

const pathOf = (text = ""): string => (text.charCodeAt(0) === SLASH ? text : `/${text}`);

const isField = (name: string, lower: string): boolean =>
  name.length === lower.length && (name === lower || name.toLowerCase() === lower);
