/** HTTP/1.x responses as far as a probe needs them: status, where it redirects to, how long the body is. */
import { goQuote } from "./go-text.ts";

export interface ResponseHead {
  readonly status: number;
  /** Of the header `Location`; "" without one. */
  readonly location: string;
}

/** The kubelet reads no more of a body, and takes the response for whole by then. */
export const MAX_BODY_BYTES = 10 * 1024;
/** Of one line of a head; of a longer one the rest is skipped. Only three headers are looked at, all of them short. */
const MAX_LINE_BYTES = 8 * 1024;
/** Of a head, informational responses and what frames the body included; the kubelet's is 10 MiB. More fails. */
const MAX_HEAD_BYTES = 256 * 1024;
/** A larger chunk is as good as endless; keeps the number exact. */
const MAX_CHUNK_DIGITS = 12;

type Stage =
  | { readonly kind: "status" }
  | { readonly kind: "headers"; readonly status: number; readonly fields: HeadFields }
  | { readonly kind: "sized"; left: number }
  | { readonly kind: "untilClosed" }
  | { readonly kind: "chunkSize" }
  | { readonly kind: "chunk"; left: number }
  | { readonly kind: "chunkEnd" }
  | { readonly kind: "trailers" }
  | { readonly kind: "done" };

interface HeadFields {
  location: string | undefined;
  contentLength: string | undefined;
  transferEncoding: string | undefined;
  count: number;
}

const DONE: Stage = { kind: "done" };
const CR = 13;
const LF = 10;

/** Fed with what comes from the connection; keeps at most one line of a head and what of the body is asked for. */
export class HttpResponseReader {
  #stage: Stage = { kind: "status" };
  #line = "";
  #lineBytes = 0;
  #headBytes = 0;
  #bodyBytes = 0;
  readonly #body: Buffer[] = [];
  #head: ResponseHead | undefined;

  /** Once it has been read. */
  get head(): ResponseHead | undefined {
    return this.#head;
  }

  /** All of the response, or as much of it as anybody wants. */
  get isDone(): boolean {
    return this.#stage.kind === "done";
  }

  /** Of a response that redirects; nobody looks at any other. */
  get body(): string {
    return Buffer.concat(this.#body).toString("utf8");
  }

  /**
   * @param bytes valid during the call only.
   * @throws Error with Go's text when this is no HTTP; the reader is of no use afterwards.
   */
  feed(bytes: Buffer): void {
    let position = 0;
    while (position < bytes.length && !this.isDone) {
      const stage = this.#stage;
      switch (stage.kind) {
        case "sized":
        case "chunk": {
          const count = Math.min(stage.left, bytes.length - position);
          this.#take(bytes, position, count);
          position += count;
          stage.left -= count;
          if (stage.left === 0 && !this.isDone) this.#stage = stage.kind === "sized" ? DONE : { kind: "chunkEnd" };
          break;
        }
        case "untilClosed":
          this.#take(bytes, position, bytes.length - position);
          position = bytes.length;
          break;
        default:
          position = this.#scan(bytes, position);
      }
    }
  }

  /** The connection was closed in good order. @throws Error with Go's text when something is missing */
  end(): void {
    switch (this.#stage.kind) {
      case "done":
        return;
      case "untilClosed":
        this.#stage = DONE;
        return;
      case "status":
        throw new Error(this.#headBytes === 0 ? "EOF" : broken("unexpected EOF"));
      case "headers":
        throw new Error(broken("unexpected EOF"));
      default:
        throw new Error("unexpected EOF");
    }
  }

  /** Up to the end of a line, which may not have come yet. @returns where to go on */
  #scan(bytes: Buffer, start: number): number {
    const found = bytes.indexOf(LF, start);
    const end = found < 0 ? bytes.length : found;
    const kept = Math.min(end - start, MAX_LINE_BYTES - this.#line.length);
    if (kept > 0) this.#line += bytes.toString("latin1", start, start + kept);
    this.#lineBytes += end - start;
    this.#headBytes += end - start + 1;
    if (this.#headBytes > MAX_HEAD_BYTES) {
      if (this.#head !== undefined) throw new Error("chunked encoding contains too much non-data");
      throw new Error(broken(`net/http: server response headers exceeded ${MAX_HEAD_BYTES} bytes; aborted`));
    }
    if (this.#lineBytes > MAX_LINE_BYTES) this.#tooLong();
    if (found < 0) return bytes.length;
    const line = this.#line.charCodeAt(this.#line.length - 1) === CR ? this.#line.slice(0, -1) : this.#line;
    const isCut = this.#lineBytes > MAX_LINE_BYTES;
    this.#line = "";
    this.#lineBytes = 0;
    this.#onLine(line, isCut);
    return found + 1;
  }

  #tooLong(): void {
    if (this.#stage.kind === "status") throw new Error(broken(`malformed HTTP response ${quoted(this.#line)}`));
    if (this.#stage.kind === "chunkSize" || this.#stage.kind === "trailers") throw new Error("header line too long");
  }

  #onLine(line: string, isCut: boolean): void {
    const stage = this.#stage;
    switch (stage.kind) {
      case "status":
        this.#stage = { kind: "headers", status: statusOf(line), fields: noFields() };
        return;
      case "headers":
        if (line === "") this.#endOfHead(stage.status, stage.fields);
        else addField(stage.fields, line, isCut);
        return;
      case "chunkSize": {
        const left = chunkSizeOf(line);
        this.#stage = left === 0 ? { kind: "trailers" } : { kind: "chunk", left };
        return;
      }
      case "chunkEnd":
        if (line !== "") throw new Error("malformed chunked encoding");
        this.#stage = { kind: "chunkSize" };
        return;
      case "trailers":
        if (line === "") this.#stage = DONE;
        return;
      default:
    }
  }

  #endOfHead(status: number, fields: HeadFields): void {
    // Only an informational one is followed by another; of an upgrade nobody knows what comes next.
    if (status >= 100 && status < 200 && status !== 101) {
      this.#stage = { kind: "status" };
      return;
    }
    this.#stage = bodyStage(status, fields);
    this.#head = { status, location: fields.location ?? "" };
  }

  #take(bytes: Buffer, start: number, count: number): void {
    const wanted = Math.min(count, MAX_BODY_BYTES - this.#bodyBytes);
    if ((this.#head?.status ?? 0) >= 300 && (this.#head?.status ?? 0) < 400) {
      this.#body.push(Buffer.from(bytes.subarray(start, start + wanted)));
    }
    this.#bodyBytes += wanted;
    if (this.#bodyBytes >= MAX_BODY_BYTES) this.#stage = DONE;
  }
}

/** What Go puts before what is wrong with a head. */
const broken = (what: string): string => `net/http: HTTP/1.x transport connection broken: ${what}`;

/** Event messages are cut at 1024 characters anyway. */
const MAX_QUOTED_LENGTH = 1024;
const quoted = (line: string): string => goQuote(Buffer.from(line.slice(0, MAX_QUOTED_LENGTH), "latin1"));

function statusOf(line: string): number {
  const space = line.indexOf(" ");
  if (space < 0) throw new Error(broken(`malformed HTTP response ${quoted(line)}`));
  const [code = ""] = line.slice(space).trimStart().split(" ", 1);
  if (!/^\d{3}$/.test(code)) throw new Error(broken(`malformed HTTP status code ${quoted(code)}`));
  const version = line.slice(0, space);
  if (!/^HTTP\/\d\.\d$/.test(version)) throw new Error(broken(`malformed HTTP version ${quoted(version)}`));
  return Number(code);
}

const noFields = (): HeadFields => ({
  location: undefined,
  contentLength: undefined,
  transferEncoding: undefined,
  count: 0,
});

const NAMES: ReadonlyMap<string, "location" | "contentLength" | "transferEncoding"> = new Map([
  ["location", "location"],
  ["content-length", "contentLength"],
  ["transfer-encoding", "transferEncoding"],
]);

/** @param isCut there was more of it than is looked at. */
function addField(fields: HeadFields, line: string, isCut: boolean): void {
  const isContinued = line.startsWith(" ") || line.startsWith("\t");
  if (isContinued && fields.count === 0) {
    throw new Error(broken(`malformed MIME header initial line: ${quoted(line)}`));
  }
  fields.count += 1;
  if (isContinued) return;
  const colon = line.indexOf(":");
  if (colon < 0 && !isCut) throw new Error(broken(`malformed MIME header: missing colon: ${quoted(line)}`));
  const key = NAMES.get(line.slice(0, colon).toLowerCase());
  if (key === undefined) return;
  const value = line.slice(colon + 1).trim();
  if (isCut) throw new Error(broken(`a header ${line.slice(0, colon)} is longer than ${MAX_LINE_BYTES} bytes`));
  const before = fields[key];
  if (before === undefined) fields[key] = value;
  else if (key === "contentLength" && before !== value) {
    const both = `[${quoted(before)} ${quoted(value)}]`;
    throw new Error(broken(`http: message cannot contain multiple Content-Length headers; got ${both}`));
  } else if (key === "transferEncoding") {
    throw new Error(broken(`too many transfer encodings: [${quoted(before)} ${quoted(value)}]`));
  }
}

function bodyStage(status: number, { contentLength, transferEncoding }: HeadFields): Stage {
  if (status === 101 || status === 204 || status === 304) return DONE;
  if (transferEncoding !== undefined) {
    if (transferEncoding.toLowerCase() === "chunked") return { kind: "chunkSize" };
    throw new Error(broken(`unsupported transfer encoding: ${quoted(transferEncoding)}`));
  }
  if (contentLength === undefined) return { kind: "untilClosed" };
  if (!/^\d{1,18}$/.test(contentLength)) throw new Error(broken(`bad Content-Length ${quoted(contentLength)}`));
  const left = Number(contentLength);
  return left === 0 ? DONE : { kind: "sized", left };
}

function chunkSizeOf(line: string): number {
  const [size = ""] = line.split(";", 1);
  const digits = size.trim();
  if (!/^[0-9a-f]+$/i.test(digits)) throw new Error("invalid byte in chunk length");
  if (digits.length > MAX_CHUNK_DIGITS) throw new Error("http chunk length too large");
  return Number.parseInt(digits, 16);
}
