/** One request that is served, and its response: between `node:http` and the component's resources. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { HttpErrorCode } from "../host/http/error-code.ts";
import { FieldList } from "../host/http/fields.ts";
import type { HttpContext } from "../host/http/http-context.ts";
import { IncomingPipe } from "../host/http/incoming-body.ts";
import { type Answer, IncomingRequest, type OutgoingResponse } from "../host/http/messages.ts";
import type { OutgoingPipe } from "../host/http/outgoing-body.ts";
import { methodOf } from "../host/http/request-line.ts";

export interface ExchangeLimits {
  readonly maxBodyBytes: number;
  /** Milliseconds without a byte that the component asked for. */
  readonly idleMs: number;
}

const MIN_FINAL_STATUS = 200;
const NO_CONTENT = new Set([204, 304]);
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

export class Exchange implements Answer {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #limits: ExchangeLimits;
  readonly #expectsContinue: boolean;
  #pipe: OutgoingPipe | undefined;
  #answered = false;

  constructor(request: IncomingMessage, response: ServerResponse, limits: ExchangeLimits, expectsContinue: boolean) {
    this.#request = request;
    this.#response = response;
    this.#limits = limits;
    this.#expectsContinue = expectsContinue;
  }

  /** For logs, in one line. */
  get name(): string {
    return `${this.#request.method ?? ""} ${JSON.stringify((this.#request.url ?? "").slice(0, 200))}`;
  }

  /** Whether the client has gone. */
  get isGone(): boolean {
    return this.#response.destroyed;
  }

  request(context: HttpContext): IncomingRequest {
    const { method = "GET", url = "/", rawHeaders } = this.#request;
    const { maxBodyBytes, idleMs } = this.#limits;
    const pipe = new IncomingPipe(context, this.#request, {
      maxBytes: maxBodyBytes,
      tooLarge: { tag: "HTTP-request-body-size", val: BigInt(maxBodyBytes) },
      idleMs,
      onFirstRead: this.#expectsContinue ? () => this.#sendContinue() : undefined,
    });
    const absolute = /^https?:\/\/([^/?]*)(.*)$/i.exec(url);
    const head = {
      method: methodOf(method),
      pathWithQuery: absolute === null ? url : absolute[2] || "/",
      authority: absolute?.[1] ?? this.#request.headers.host,
      fields: FieldList.received(rawHeaders),
    };
    return new IncomingRequest(context, head, pipe);
  }

  respond(response: OutgoingResponse, hasBody: boolean): void {
    const { status, fields, pipe } = response;
    this.#answered = true;
    if (status < MIN_FINAL_STATUS) {
      pipe.fail({ tag: "HTTP-protocol-error" });
      this.answer(500);
      return;
    }
    const message = this.#response;
    const isHead = this.#request.method === "HEAD";
    const withoutBody = isHead || NO_CONTENT.has(status);
    const begin = (length: number | undefined): void => {
      const flat = fields.flat();
      const adds = length !== undefined && !withoutBody && fields.values("content-length").length === 0;
      message.writeHead(status, adds ? [...flat, "content-length", String(length)] : flat);
    };
    if (hasBody) {
      this.#pipe = pipe;
      pipe.connect({ message, begin, withoutBody });
    } else {
      begin(0);
      message.end();
    }
  }

  fail({ tag }: HttpErrorCode): void {
    this.#answered = true;
    this.answer(CODES.find(([start]) => start.test(tag))?.[1] ?? 500);
  }

  /** With nothing of the component's. Where a part has gone out already the connection is cut, so that nobody takes it for whole. */
  answer(status: number, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#response.headersSent) this.#response.destroy();
    else this.#response.writeHead(status, { "content-length": "0", ...headers }).end();
  }

  /** The component has returned. @returns what it has left out */
  returned(): string | undefined {
    if (!this.#answered) {
      this.answer(500);
      return "it set no response";
    }
    const pipe = this.#pipe;
    // A client that has gone is no fault of the component's.
    if (pipe === undefined || pipe.hasEnded || pipe.error?.tag === "connection-terminated") return undefined;
    pipe.fail({ tag: "HTTP-protocol-error" });
    return "it did not finish the body of its response, or not with the length it said";
  }

  /** The component came to nothing. */
  broken(status: number): void {
    if (this.#pipe !== undefined && !this.#pipe.hasEnded) this.#pipe.fail({ tag: "HTTP-protocol-error" });
    else if (!this.#response.writableEnded) this.answer(status);
  }

  #sendContinue(): void {
    if (!this.#response.headersSent && !this.#response.destroyed) this.#response.writeContinue();
  }
}
