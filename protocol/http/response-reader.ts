import { PicoletError } from "../errors.ts";
import { KIBIBYTE } from "../units.ts";

/** Bounds a line that frames chunks (Go's client has the same limit). A longer one is refused. */
const MAX_CHUNK_LINE_BYTES = 4096;
/**
 * Bounds what frames chunks against the data in them, as Go's client does: 16 bytes and twice the data are free for
 * each chunk, so a stream of single bytes may last for ever.
 */
const MAX_CHUNK_EXCESS_BYTES = 16 * KIBIBYTE;
const FREE_BYTES_PER_CHUNK = 16;
/** Keeps the size of a chunk an exact number. */
const MAX_CHUNK_DIGITS = 12;

const CR = 13;
const LF = 10;

/** Why bytes are not a response, with the words of an error message. */
const FAULTS = {
  statusLine: "it does not begin as one",
  version: "another version",
  statusCode: "a status that is no number",
  bareLineFeed: "a line that ends without a carriage return",
  firstHeaderFolded: "a header without a name",
  headerFolded: "a header in several lines",
  headerName: "a header without a name",
  headerValue: "a header with a control character",
  headerTooLong: "a header that is too long",
  lineTooLong: "a line that is too long",
  headTooLong: "a head that is too long",
  twoLengths: "two lengths",
  length: "a body of unknown length",
  lengthAndEncoding: "a length beside a transfer encoding",
  twoEncodings: "two transfer encodings",
  encoding: "an unknown transfer encoding",
  chunkSize: "a chunk without a size",
  chunkTooLarge: "a chunk that is too large",
  chunkEnd: "a chunk that is longer than its size",
  framingTooLong: "more framing than data",
} as const;
const END_FAULTS = ["noResponse", "endInHead", "endInBody"] as const;

export type ResponseFault = keyof typeof FAULTS | (typeof END_FAULTS)[number];

/** `corrupt` for bytes that are no HTTP/1 response, `unavailable` for one that ended early. */
export class HttpResponseError extends PicoletError {
  readonly fault: ResponseFault;
  /** The lines or values at fault, as they came (Latin-1); each may be as long as a line. */
  readonly texts: readonly string[];

  constructor(fault: ResponseFault, ...texts: readonly string[]) {
    if (isEndFault(fault)) super("unavailable", "the answer ended early");
    else super("corrupt", `the answer is no HTTP: ${FAULTS[fault]}`);
    this.fault = fault;
    this.texts = texts;
  }
}

const isEndFault = (fault: ResponseFault): fault is (typeof END_FAULTS)[number] =>
  END_FAULTS.some((each) => each === fault);

export interface ResponseHead {
  readonly status: number;
  /** Names in lower case; the values of a header in the order in which they came. */
  readonly headers: ReadonlyMap<string, readonly string[]>;
}

export interface ResponseLimits {
  /** Bounds the status line, the headers and the trailers together, those of informational responses included. */
  readonly maxHeadBytes: number;
  /** Bounds what is kept of one line. Default: `maxHeadBytes`. */
  readonly maxLineBytes?: number;
  /** The response counts as read after so many bytes of its body; 0: after its head. Default: no bound. */
  readonly maxBodyBytes?: number;
  /** The headers to keep, in lower case; of another one a long line is skipped instead of refused. Default: all. */
  readonly wanted?: ReadonlySet<string>;
  /**
   * Accepts what Go's client accepts: bare line feeds, folded headers, a transfer encoding that overrules a length,
   * equal lengths. Safe only where a connection carries a single response. Default: false.
   */
  readonly isLenient?: boolean;
}

interface HeadersStage {
  readonly kind: "headers";
  readonly status: number;
  count: number;
  headers: Map<string, string[]> | undefined;
  length: string | undefined;
  encoding: string | undefined;
}

type Stage =
  | { readonly kind: "status" | "untilClose" | "chunkSize" | "chunkEnd" | "trailers" | "done" }
  | HeadersStage
  | { readonly kind: "sized" | "chunk"; left: number };

const STATUS: Stage = { kind: "status" };
const UNTIL_CLOSE: Stage = { kind: "untilClose" };
const CHUNK_SIZE: Stage = { kind: "chunkSize" };
const CHUNK_END: Stage = { kind: "chunkEnd" };
const TRAILERS: Stage = { kind: "trailers" };
const DONE: Stage = { kind: "done" };
const NO_HEADERS: ReadonlyMap<string, readonly string[]> = new Map();

/**
 * Reads one HTTP/1 response (RFC 9112) from pieces that are cut anywhere. It keeps the wanted headers and at most one
 * line that is not complete, and no body. Informational responses are skipped, except 101, which has no body.
 */
export class HttpResponseReader {
  readonly #limits: ResponseLimits;
  readonly #onBody: ((piece: Uint8Array) => void) | undefined;
  readonly #maxLineBytes: number;
  /** The smallest limit: below it none is exceeded. */
  readonly #safeBytes: number;
  #stage: Stage = STATUS;
  #line = "";
  /** The bytes of the line so far, with its end, those that were not kept included. */
  #lineBytes = 0;
  /** The bytes of complete lines of heads and trailers. */
  #headBytes = 0;
  #bodyBytes = 0;
  #chunkExcess = 0;
  #head: ResponseHead | undefined;

  /** @param onBody takes the pieces of the body; they share the memory of the pushed bytes. */
  constructor(limits: ResponseLimits, onBody?: (piece: Uint8Array) => void) {
    this.#limits = limits;
    this.#onBody = onBody;
    this.#maxLineBytes = limits.maxLineBytes ?? limits.maxHeadBytes;
    this.#safeBytes = Math.min(limits.maxHeadBytes, this.#maxLineBytes, MAX_CHUNK_LINE_BYTES);
  }

  /** `undefined` until the head is complete. */
  get head(): ResponseHead | undefined {
    return this.#head;
  }

  get isDone(): boolean {
    return this.#stage.kind === "done";
  }

  /**
   * @param bytes are read during the call only.
   * @returns how many of them were read: all of them, unless the response ended before.
   * @throws HttpResponseError; the reader cannot be used afterwards.
   */
  push(bytes: Uint8Array): number {
    let position = 0;
    while (position < bytes.length && !this.isDone) {
      const stage = this.#stage;
      switch (stage.kind) {
        case "sized":
        case "chunk": {
          const count = this.#take(bytes, position, stage.left);
          position += count;
          stage.left -= count;
          if (stage.left === 0 && !this.isDone) this.#stage = stage.kind === "sized" ? DONE : CHUNK_END;
          break;
        }
        case "untilClose":
          position += this.#take(bytes, position, bytes.length);
          break;
        default:
          position = this.#scan(bytes, position);
      }
    }
    return position;
  }

  /** The connection was closed. @throws HttpResponseError when the response is not complete */
  end(): void {
    switch (this.#stage.kind) {
      case "done":
        return;
      case "untilClose":
        this.#stage = DONE;
        return;
      case "status":
        throw new HttpResponseError(this.#headBytes + this.#lineBytes === 0 ? "noResponse" : "endInHead");
      case "headers":
        throw new HttpResponseError("endInHead");
      default:
        throw new HttpResponseError("endInBody");
    }
  }

  /** Passes on at most `left` bytes of the body. @returns how many */
  #take(bytes: Uint8Array, start: number, left: number): number {
    const { maxBodyBytes = Number.POSITIVE_INFINITY } = this.#limits;
    const count = Math.min(left, bytes.length - start, maxBodyBytes - this.#bodyBytes);
    this.#onBody?.(bytes.subarray(start, start + count));
    this.#bodyBytes += count;
    if (this.#bodyBytes >= maxBodyBytes) this.#stage = DONE;
    return count;
  }

  /** Reads to the end of a line, which may not have come yet. @returns where to go on */
  #scan(bytes: Uint8Array, start: number): number {
    const found = bytes.indexOf(LF, start);
    const end = found < 0 ? bytes.length : found + 1;
    const keptEnd = Math.min(found < 0 ? end : found, start + this.#maxLineBytes - this.#line.length);
    if (keptEnd > start) this.#line += latin1(bytes.subarray(start, keptEnd));
    this.#lineBytes += end - start;
    if (this.#headBytes + this.#lineBytes > this.#safeBytes) this.#checkLimits();
    if (found < 0) return end;
    const isCut = this.#lineBytes - 1 > this.#maxLineBytes;
    const line = isCut ? this.#line : this.#lineWithoutEnd();
    const lineBytes = this.#lineBytes;
    this.#line = "";
    this.#lineBytes = 0;
    this.#onLine(line, lineBytes, isCut);
    return end;
  }

  #lineWithoutEnd(): string {
    const line = this.#line;
    if (line.charCodeAt(line.length - 1) === CR) return line.slice(0, -1);
    if (this.#limits.isLenient !== true) throw new HttpResponseError("bareLineFeed", line);
    return line;
  }

  /** The first limit that a line exceeds decides, so that the cuts between pieces make no difference. */
  #checkLimits(): void {
    const { kind } = this.#stage;
    const isChunkLine = kind === "chunkSize" || kind === "chunkEnd";
    const roomInHead = isChunkLine ? Number.POSITIVE_INFINITY : this.#limits.maxHeadBytes - this.#headBytes;
    let longestLine = isChunkLine || kind === "trailers" ? MAX_CHUNK_LINE_BYTES : this.#maxLineBytes;
    if (kind === "headers") longestLine = Number.POSITIVE_INFINITY;
    if (this.#lineBytes <= Math.min(roomInHead, longestLine)) return;
    if (longestLine < roomInHead)
      throw new HttpResponseError(kind === "status" ? "statusLine" : "lineTooLong", this.#line);
    throw new HttpResponseError(kind === "trailers" ? "framingTooLong" : "headTooLong");
  }

  #onLine(line: string, lineBytes: number, isCut: boolean): void {
    const stage = this.#stage;
    switch (stage.kind) {
      case "status":
        this.#headBytes += lineBytes;
        this.#stage = headersStage(statusOf(line, this.#limits.isLenient === true));
        return;
      case "headers":
        this.#headBytes += lineBytes;
        if (line === "") this.#endHead(stage);
        else this.#addHeader(stage, line, isCut);
        return;
      case "chunkSize": {
        const left = chunkSizeOf(line);
        const free = FREE_BYTES_PER_CHUNK + 2 * left;
        this.#chunkExcess = Math.max(0, this.#chunkExcess + lineBytes + 2 - free);
        if (this.#chunkExcess > MAX_CHUNK_EXCESS_BYTES) throw new HttpResponseError("framingTooLong");
        this.#stage = left === 0 ? TRAILERS : { kind: "chunk", left };
        return;
      }
      case "chunkEnd":
        if (line !== "") throw new HttpResponseError("chunkEnd");
        this.#stage = CHUNK_SIZE;
        return;
      case "trailers":
        this.#headBytes += lineBytes;
        if (line === "") this.#stage = DONE;
        return;
      default:
    }
  }

  #addHeader(fields: HeadersStage, line: string, isCut: boolean): void {
    const { wanted, isLenient } = this.#limits;
    const isFolded = line.startsWith(" ") || line.startsWith("\t");
    if (isFolded && (fields.count === 0 || isLenient !== true)) {
      throw new HttpResponseError(fields.count === 0 ? "firstHeaderFolded" : "headerFolded", line);
    }
    fields.count += 1;
    if (isFolded) return;
    const colon = line.indexOf(":");
    if (colon < 0 && !isCut) throw new HttpResponseError("headerName", line);
    const name = line.slice(0, colon < 0 ? line.length : colon).toLowerCase();
    if (isLenient !== true) checkHeader(name, line);
    const isKept = wanted === undefined || wanted.has(name);
    const isLength = name === "content-length";
    const isEncoding = name === "transfer-encoding";
    if (!isKept && !isLength && !isEncoding) return;
    if (isCut) throw new HttpResponseError("headerTooLong", line.slice(0, Math.max(colon, 0)));
    const value = line.slice(colon + 1).trim();
    if (isLength) this.#addLength(fields, value);
    if (isEncoding) {
      if (fields.encoding !== undefined) throw new HttpResponseError("twoEncodings", fields.encoding, value);
      fields.encoding = value;
    }
    if (!isKept) return;
    fields.headers ??= new Map();
    const values = fields.headers.get(name);
    if (values === undefined) fields.headers.set(name, [value]);
    else values.push(value);
  }

  #addLength(fields: HeadersStage, value: string): void {
    const { length } = fields;
    if (length !== undefined && (length !== value || this.#limits.isLenient !== true)) {
      throw new HttpResponseError("twoLengths", length, value);
    }
    fields.length = value;
  }

  #endHead(fields: HeadersStage): void {
    const { status, headers } = fields;
    if (status >= 100 && status < 200 && status !== 101) {
      this.#stage = STATUS;
      return;
    }
    this.#stage = this.#limits.maxBodyBytes === 0 ? DONE : bodyStage(fields, this.#limits.isLenient === true);
    this.#head = { status, headers: headers ?? NO_HEADERS };
  }
}

const headersStage = (status: number): HeadersStage => ({
  kind: "headers",
  status,
  count: 0,
  headers: undefined,
  length: undefined,
  encoding: undefined,
});

const latin1 = (bytes: Uint8Array): string => String.fromCharCode.apply(null, bytes as unknown as number[]);

function statusOf(line: string, isLenient: boolean): number {
  if (!isLenient && !/^HTTP\/1\.[01] \d{3}(?: |$)/.test(line)) throw new HttpResponseError("statusLine", line);
  const space = line.indexOf(" ");
  if (space < 0) throw new HttpResponseError("statusLine", line);
  const [code = ""] = line.slice(space).trimStart().split(" ", 1);
  if (!/^\d{3}$/.test(code)) throw new HttpResponseError("statusCode", code);
  const version = line.slice(0, space);
  if (!/^HTTP\/\d\.\d$/.test(version)) throw new HttpResponseError("version", version);
  return Number(code);
}

/** Refuses a name that two readers may understand in two ways, and a value that may end a line for one of them. */
function checkHeader(name: string, line: string): void {
  if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(name)) throw new HttpResponseError("headerName", line);
  if (line.includes("\r") || line.includes("\0")) throw new HttpResponseError("headerValue", line);
}

function bodyStage({ status, length, encoding }: HeadersStage, isLenient: boolean): Stage {
  if (length !== undefined && encoding !== undefined && !isLenient) throw new HttpResponseError("lengthAndEncoding");
  if (status === 101 || status === 204 || status === 304) return DONE;
  if (encoding !== undefined) {
    if (encoding.toLowerCase() === "chunked") return CHUNK_SIZE;
    throw new HttpResponseError("encoding", encoding);
  }
  if (length === undefined) return UNTIL_CLOSE;
  if (!/^\d{1,15}$/.test(length)) throw new HttpResponseError("length", length);
  const left = Number(length);
  return left === 0 ? DONE : { kind: "sized", left };
}

function chunkSizeOf(line: string): number {
  const digits = /^[0-9a-f]+(?=[ \t]*(?:;|$))/i.exec(line)?.[0];
  if (digits === undefined) throw new HttpResponseError("chunkSize", line);
  if (digits.length > MAX_CHUNK_DIGITS) throw new HttpResponseError("chunkTooLarge", line);
  return Number.parseInt(digits, 16);
}
