/** HTTP responses as a probe reads them: leniently, as Go's client does, and with its error texts. */
import { HttpResponseError, HttpResponseReader, type ResponseLimits } from "@picolet/protocol/http/response-reader.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { goQuote } from "./go-text.ts";

/** The kubelet reads no more of a body, and takes the response as complete then. */
export const MAX_BODY_BYTES = 10 * KIBIBYTE;

const LIMITS: ResponseLimits = {
  // Bounds time against an endless head; the kubelet's limit is 10 MiB.
  maxHeadBytes: 256 * KIBIBYTE,
  // Bounds memory for each probe under way; the wanted headers are short.
  maxLineBytes: 8 * KIBIBYTE,
  maxBodyBytes: MAX_BODY_BYTES,
  wanted: new Set(["location"]),
  isLenient: true,
};

/** Reads one response. Keeps the body of a redirect only, which is what the kubelet logs. */
export class HttpResponse {
  readonly #reader = new HttpResponseReader(LIMITS, (piece) => this.#keep(piece));
  #body: Buffer[] | undefined;

  /** `undefined` until the head is complete. */
  get status(): number | undefined {
    return this.#reader.head?.status;
  }

  /** The header `Location`; "" without one. */
  get location(): string {
    return this.#reader.head?.headers.get("location")?.[0] ?? "";
  }

  /** "" unless the response is a redirect. */
  get body(): string {
    return this.#body === undefined ? "" : Buffer.concat(this.#body).toString("utf8");
  }

  /** True when the response is complete, or its body is longer than a probe reads. */
  get isDone(): boolean {
    return this.#reader.isDone;
  }

  /**
   * @param bytes are valid during the call only.
   * @throws Error with Go's text; the response cannot be read on afterwards.
   */
  feed(bytes: Buffer): void {
    try {
      this.#reader.push(bytes);
    } catch (error) {
      throw withGoText(error);
    }
  }

  /** The connection was closed. @throws Error with Go's text when the response is not complete */
  end(): void {
    try {
      this.#reader.end();
    } catch (error) {
      throw withGoText(error);
    }
  }

  #keep(piece: Uint8Array): void {
    const status = this.status ?? 0;
    if (status < 300 || status >= 400) return;
    this.#body ??= [];
    this.#body.push(Buffer.from(piece));
  }
}

const withGoText = (error: unknown): unknown => (error instanceof HttpResponseError ? new Error(goText(error)) : error);

function goText({ fault, texts }: HttpResponseError): string {
  switch (fault) {
    case "noResponse":
      return "EOF";
    case "endInBody":
      return "unexpected EOF";
    case "chunkSize":
      return "invalid byte in chunk length";
    case "chunkTooLarge":
      return "http chunk length too large";
    case "chunkEnd":
      return "malformed chunked encoding";
    case "framingTooLong":
      return "chunked encoding contains too much non-data";
    case "lineTooLong":
      return "header line too long";
    default:
      return `net/http: HTTP/1.x transport connection broken: ${headText(fault, texts)}`;
  }
}

function headText(fault: HttpResponseError["fault"], texts: readonly string[]): string {
  const quotedTexts = texts.map(quoted).join(" ");
  switch (fault) {
    case "endInHead":
      return "unexpected EOF";
    case "statusLine":
      return `malformed HTTP response ${quotedTexts}`;
    case "statusCode":
      return `malformed HTTP status code ${quotedTexts}`;
    case "version":
      return `malformed HTTP version ${quotedTexts}`;
    case "firstHeaderFolded":
      return `malformed MIME header initial line: ${quotedTexts}`;
    case "headerName":
      return `malformed MIME header: missing colon: ${quotedTexts}`;
    case "headerTooLong":
      return `a header ${texts.join()} is longer than ${LIMITS.maxLineBytes} bytes`;
    case "headTooLong":
      return `net/http: server response headers exceeded ${LIMITS.maxHeadBytes} bytes; aborted`;
    case "twoLengths":
      return `http: message cannot contain multiple Content-Length headers; got [${quotedTexts}]`;
    case "length":
      return `bad Content-Length ${quotedTexts}`;
    case "twoEncodings":
      return `too many transfer encodings: [${quotedTexts}]`;
    case "encoding":
      return `unsupported transfer encoding: ${quotedTexts}`;
    default:
      return fault;
  }
}

/** Bounds the quoted text: messages of events are cut at 1024 characters. */
const MAX_QUOTED_LENGTH = 1024;
const quoted = (text: string): string => goQuote(Buffer.from(text.slice(0, MAX_QUOTED_LENGTH), "latin1"));
