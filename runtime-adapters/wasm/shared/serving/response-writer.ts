/** One response as HTTP/1.1 puts it (RFC 9112): status line, fields, and where its body ends. */
import type { FieldList } from "../http/fields.ts";
import { latin1 } from "../http/fields.ts";
import type { BodyTarget, TargetListener } from "../http/outgoing-body.ts";

/** The connection, while it is the turn of this response. */
export interface ResponseSink {
  readonly isFull: boolean;
  /** Texts are Latin-1. */
  write(parts: readonly (string | Uint8Array)[]): void;
  /** The response is whole. @param keepAlive whether another one may follow */
  ended(keepAlive: boolean): void;
  destroy(): void;
}

/** The parts of the request that decide how its response is framed. */
export interface RequestFraming {
  readonly isHead: boolean;
  /** HTTP/1.1: the client knows chunks, and keeps the connection unless a field says otherwise. */
  readonly isHttp11: boolean;
  /** @returns whether the connection can be used again after this response */
  keepAlive(): boolean;
}

/** Beyond it one more part of the write costs less than making a text of the bytes. */
const MAX_TEXT_BYTES = 16_384;
const MILLISECONDS = 1000;
const NO_CONTENT: ReadonlySet<number> = new Set([204, 304]);

type Framing = "length" | "chunks" | "until the end" | "none";

/** The header field Date (RFC 9110, 6.6.1), made once a second. */
export class DateField {
  readonly #wallNow: () => number;
  #second = -1;
  #line = "";

  constructor(wallNow: () => number) {
    this.#wallNow = wallNow;
  }

  get line(): string {
    const now = this.#wallNow();
    const second = Math.floor(now / MILLISECONDS);
    if (second !== this.#second) {
      this.#second = second;
      this.#line = `date: ${new Date(now).toUTCString()}\r\n`;
    }
    return this.#line;
  }
}

export class ResponseWriter implements BodyTarget {
  readonly #sink: ResponseSink;
  readonly #request: RequestFraming;
  readonly #date: DateField;
  #status = 0;
  #fields: FieldList | undefined;
  /** The head that is not written yet. It is sent with the first part of the body. */
  #head = "";
  #framing: Framing = "none";
  #phase: "not begun" | "begun" | "ended" = "not begun";
  #keepAlive = false;
  #listener: TargetListener | undefined;

  constructor(sink: ResponseSink, request: RequestFraming, date: DateField) {
    this.#sink = sink;
    this.#request = request;
    this.#date = date;
  }

  /** Sets the head that `begin` writes. */
  respond(status: number, fields: FieldList): void {
    this.#status = status;
    this.#fields = fields;
  }

  get withoutBody(): boolean {
    return this.#request.isHead || NO_CONTENT.has(this.#status);
  }

  get isFull(): boolean {
    return this.#sink.isFull;
  }

  get hasBegun(): boolean {
    return this.#phase !== "not begun";
  }

  get hasEnded(): boolean {
    return this.#phase === "ended";
  }

  listen(listener: TargetListener): void {
    this.#listener = listener;
  }

  begin(length: number | undefined): void {
    const status = this.#status;
    const own = this.#fields;
    this.#phase = "begun";
    let head = statusLine(status);
    let said: number | undefined;
    let saysDate = false;
    if (own !== undefined) {
      const { flat } = own;
      for (let at = 0; at < flat.length; at += 2) {
        const name = flat[at] as string;
        const lower = name.toLowerCase();
        if (lower === "content-length") said = Number(flat[at + 1]);
        else head += `${name}: ${flat[at + 1]}\r\n`;
        saysDate ||= lower === "date";
      }
    }
    if (!saysDate) head += this.#date.line;
    const { isHttp11 } = this.#request;
    // The answer to HEAD has the length that GET would have. A 204 has no length.
    const announced = this.withoutBody ? said : (said ?? length);
    if (announced !== undefined && status !== 204) head += `content-length: ${announced}\r\n`;
    this.#framing = this.withoutBody
      ? "none"
      : announced !== undefined
        ? "length"
        : isHttp11
          ? "chunks"
          : "until the end";
    if (this.#framing === "chunks") head += "transfer-encoding: chunked\r\n";
    this.#keepAlive = this.#framing !== "until the end" && this.#request.keepAlive();
    if (!this.#keepAlive) head += "connection: close\r\n";
    else if (!isHttp11) head += "connection: keep-alive\r\n";
    this.#head = `${head}\r\n`;
  }

  write(bytes: Uint8Array): void {
    if (this.#phase === "ended") return;
    this.#sink.write(this.#taken([bytes]));
  }

  end(last: readonly Uint8Array[], trailers: FieldList | undefined): void {
    if (this.#phase === "ended") return;
    const parts = this.#taken(last);
    if (this.#framing === "chunks") parts.push(`0\r\n${linesOf(trailers)}\r\n`);
    this.#phase = "ended";
    this.#sink.write(joined(parts));
    this.#sink.ended(this.#keepAlive);
  }

  /** A whole response of the host's own, where none has begun. @param fields lines */
  answer(status: number, fields: readonly string[]): void {
    this.#status = status;
    this.#fields = undefined;
    this.begin(0);
    this.#head = `${this.#head.slice(0, -2)}${fields.map((each) => `${each}\r\n`).join("")}\r\n`;
    this.end([], undefined);
  }

  destroy(): void {
    this.#sink.destroy();
  }

  drained(): void {
    this.#listener?.drained();
  }

  /** The client has gone. */
  gone(): void {
    this.#listener?.failed({ tag: "connection-terminated" });
  }

  /** @returns the bytes to write for a part of the body, with the head if it has not been written yet */
  #taken(body: readonly Uint8Array[]): (string | Uint8Array)[] {
    const parts: (string | Uint8Array)[] = [];
    if (this.#head !== "") parts.push(this.#head);
    this.#head = "";
    if (this.#framing === "none") return parts;
    for (const each of body) {
      if (this.#framing === "chunks") parts.push(`${each.length.toString(16)}\r\n`, each, "\r\n");
      else parts.push(each);
    }
    return parts;
  }
}

const statusLine = (status: number): string => `HTTP/1.1 ${status} ${reasonPhrase(status)}\r\n`;

function linesOf(trailers: FieldList | undefined): string {
  if (trailers === undefined) return "";
  return trailers
    .pairs()
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("");
}

/** A small response is one text, and so one write of one string. */
function joined(parts: readonly (string | Uint8Array)[]): readonly (string | Uint8Array)[] {
  let bytes = 0;
  for (const each of parts) if (typeof each !== "string") bytes += each.length;
  if (bytes > MAX_TEXT_BYTES) return parts;
  let text = "";
  for (const each of parts) text += typeof each === "string" ? each : latin1(each);
  return [text];
}

/** Names of status codes in RFC 9110 and its extensions. People read them; clients ignore them. */
const PHRASES: Readonly<Record<number, string>> = {
  200: "OK",
  201: "Created",
  202: "Accepted",
  203: "Non-Authoritative Information",
  204: "No Content",
  205: "Reset Content",
  206: "Partial Content",
  300: "Multiple Choices",
  301: "Moved Permanently",
  302: "Found",
  303: "See Other",
  304: "Not Modified",
  307: "Temporary Redirect",
  308: "Permanent Redirect",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  408: "Request Timeout",
  409: "Conflict",
  410: "Gone",
  411: "Length Required",
  412: "Precondition Failed",
  413: "Payload Too Large",
  414: "URI Too Long",
  415: "Unsupported Media Type",
  416: "Range Not Satisfiable",
  417: "Expectation Failed",
  421: "Misdirected Request",
  422: "Unprocessable Entity",
  425: "Too Early",
  426: "Upgrade Required",
  428: "Precondition Required",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  451: "Unavailable For Legal Reasons",
  500: "Internal Server Error",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  505: "HTTP Version Not Supported",
  507: "Insufficient Storage",
  508: "Loop Detected",
};

const reasonPhrase = (status: number): string => PHRASES[status] ?? "";
