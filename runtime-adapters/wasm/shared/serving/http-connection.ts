/**
 * One connection of a client. Its bytes go through llhttp, requests are answered one after the other, and only a
 * bounded number of bytes is read ahead of the component. It ends with `close`, for every cause.
 */
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isHostField } from "../http/request-line.ts";
import { Exchange, type ExchangeLimits } from "./exchange.ts";
import {
  END_OF_FILE,
  type HttpParser,
  type NodePrivateApi,
  ON_BODY,
  ON_HEADERS,
  ON_HEADERS_COMPLETE,
  ON_MESSAGE_COMPLETE,
  PARSE_BODY,
  type TcpHandle,
  UPGRADE_FOLLOWS,
  type WriteRequest,
} from "./node-parts.ts";
import type { BodyReader, RequestBody } from "./request-body.ts";
import type { DateField, ResponseSink } from "./response-writer.ts";

export interface ConnectionLimits extends ExchangeLimits {
  /** All of a request's head. */
  readonly maxHeaderBytes: number;
  readonly maxHeaders: number;
  /** From the first byte of a head to its last. */
  readonly headMs: number;
  /** From the first byte of a request to its last. */
  readonly requestMs: number;
  /** Between two requests. */
  readonly keepAliveMs: number;
  /** Without a byte that is waited for, either way. */
  readonly idleMs: number;
  /** From a response's end until the client has taken all of it. */
  readonly takeMs: number;
  /** Bounds requests that have arrived and are not answered. A client that pipelines more is disconnected. */
  readonly maxPipelined: number;
  /** Bounds unsent bytes. Above it the component has to wait. */
  readonly highWaterBytes: number;
}

/** The parts that all connections of a server share. */
export interface ConnectionPort {
  readonly parts: NodePrivateApi;
  readonly date: DateField;
  readonly limits: ConnectionLimits;
  /** Milliseconds, monotonic. */
  readonly now: () => number;
  /** Read buffers: a small one, and a large one for a body that the component reads. */
  readonly small: Uint8Array;
  readonly large: Uint8Array;
  /** A request has arrived, and it is its turn. */
  take(exchange: Exchange): void;
  /** Bytes written and not taken: more of them, or fewer. */
  unsent(connection: HttpConnection, bytes: number): void;
  closed(connection: HttpConnection): void;
}

/**
 * After the last response further input is discarded for this time, because an immediate close would reset the
 * connection before the client has read the response.
 */
const LINGER_MS = 2000;
const LINGER_BYTES = MEBIBYTE;
const REQUEST_TIMEOUT = 408;
const BAD_REQUEST = 400;
const STATUS_OF: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
};

/** The memory of a pending write besides its bytes. A component may write one byte at a time. */
const WRITE_BYTES = 1024;

type Phase = "open" | "no more requests" | "lingering" | "closed";

export class HttpConnection implements ResponseSink, BodyReader {
  readonly #port: ConnectionPort;
  readonly #handle: TcpHandle;
  readonly #parser: HttpParser;
  /** Used again until a write takes longer than its call. */
  #write: WriteRequest;
  #phase: Phase = "open";
  /** In the order of arrival. The first one has the turn, or gets it when earlier output is sent. */
  readonly #exchanges: Exchange[] = [];
  #hasTurn = false;
  /** The body of the request that arrives. */
  #body: RequestBody | undefined;
  /** A head, or trailers, that arrives in parts. */
  #fields: string[] = [];
  #url = "";
  /** The last that was right. */
  #host: string | undefined;
  #hasTooManyFields = false;
  #buffer: Uint8Array;
  #isReading = false;
  #isParsing = false;
  #inputEnded = false;
  #unsent = 0;
  #queueSize = 0;
  #discarded = 0;
  #messageSinceMs: number | undefined;
  /** The time of the last byte in either direction, or of the last response's end. */
  #movedMs: number;
  #respondedMs: number;

  constructor(port: ConnectionPort, handle: TcpHandle) {
    this.#port = port;
    this.#handle = handle;
    const { parts, limits, small } = port;
    this.#buffer = small;
    this.#movedMs = port.now();
    this.#respondedMs = this.#movedMs;
    this.#write = parts.write();
    this.#parser = parts.requestParser(limits.maxHeaderBytes);
    this.#parser[ON_HEADERS] = (fields, url) => this.#moreFields(fields, url);
    this.#parser[ON_HEADERS_COMPLETE] = (major, minor, fields, method, url, _status, _message, _upgrade, keepAlive) =>
      this.#headed(major * 10 + minor, fields, method, url, keepAlive);
    this.#parser[ON_BODY] = (bytes) => this.#body?.push(bytes);
    this.#parser[ON_MESSAGE_COMPLETE] = () => this.#completed();
    handle.setNoDelay(true);
    handle.useUserBuffer(small);
    handle.onread = () => this.#read();
    this.#adjustReading();
  }

  /** True without a request under way. It can be closed then. */
  get isIdle(): boolean {
    return this.#phase === "open" && this.#exchanges.length === 0 && this.#messageSinceMs === undefined;
  }

  get hasUnsent(): boolean {
    return this.#unsent > 0;
  }

  /** True when another response may follow the current one. */
  get mayGoOn(): boolean {
    return this.#phase === "open" || this.#exchanges.length > 1;
  }

  /** Most clients send the same field each time, so that a request costs a comparison. */
  isHost(text: string): boolean {
    if (text === this.#host) return true;
    if (!isHostField(text)) return false;
    this.#host = text;
    return true;
  }

  get isFull(): boolean {
    return this.#unsent >= this.#port.limits.highWaterBytes;
  }

  /** Writes a part of the current response. */
  write(parts: readonly (string | Uint8Array)[]): void {
    if (this.#phase === "closed" || this.#phase === "lingering" || parts.length === 0) return;
    const { parts: node } = this.#port;
    const request = this.#write;
    const [first] = parts;
    let bytes = 0;
    let result: number;
    if (parts.length === 1 && typeof first === "string") {
      bytes = first.length;
      result = this.#handle.writeLatin1String(request, first);
    } else {
      for (const each of parts) bytes += each.length;
      const chunks = parts.flatMap((each) => [each, "latin1"]);
      result = this.#handle.writev(request, chunks, false);
      // libuv reads from them until it is done.
      Object.assign(request, { chunks });
    }
    if (result < 0) this.close();
    else if (node.isWriting) {
      const held = bytes + WRITE_BYTES;
      request.oncomplete = (status) => this.#written(status, held);
      this.#write = node.write();
      this.#unsent += held;
      this.#port.unsent(this, held);
    }
  }

  ended(keepAlive: boolean): void {
    const exchange = this.#exchanges.shift();
    this.#hasTurn = false;
    this.#respondedMs = this.#port.now();
    if (!keepAlive) this.#phase = "no more requests";
    // A component may answer before it has read everything.
    if (exchange?.body.isRead !== true || exchange.body.isOver) {
      exchange?.body.discard();
      if (!keepAlive) this.#finish();
    }
    this.#adjustReading();
    // Not at once: the component that has just answered is on the stack.
    if (this.#exchanges.length > 0) queueMicrotask(() => this.#advance());
  }

  destroy(): void {
    this.close();
  }

  /** The component requests the first byte of a body. */
  started(): void {
    const [exchange] = this.#exchanges;
    exchange?.bodyWanted();
    this.#adjustReading();
  }

  taken(): void {
    this.#adjustReading();
  }

  /** Ends what takes too long, or comes too slowly. Called about once a second. */
  tick(nowMs: number): void {
    const { headMs, requestMs, keepAliveMs, idleMs, takeMs } = this.#port.limits;
    const waited = nowMs - this.#movedMs;
    if (this.#phase === "lingering") {
      if (nowMs - this.#respondedMs > LINGER_MS && this.#unsent === 0) this.close();
    }
    if (this.#phase === "closed") return;
    if (this.#unsent > 0) {
      const { writeQueueSize } = this.#handle;
      if (writeQueueSize !== this.#queueSize) this.#movedMs = nowMs;
      this.#queueSize = writeQueueSize;
      const isTaking = this.#hasTurn || nowMs - this.#respondedMs <= takeMs;
      if (waited > idleMs || !isTaking) this.close();
    } else if (this.#messageSinceMs !== undefined) {
      const since = nowMs - this.#messageSinceMs;
      if (since > (this.#body === undefined ? headMs : requestMs)) this.#broken(REQUEST_TIMEOUT);
      else if (this.#body?.isRead === true && this.#isReading && waited > idleMs) {
        this.#body.fail({ tag: "connection-read-timeout" });
        this.close();
      }
    } else if (this.isIdle && nowMs - this.#respondedMs > keepAliveMs) this.close();
  }

  /** Closes at once, with a request under way too. */
  close(): void {
    if (this.#phase === "closed") return;
    this.#phase = "closed";
    this.#handle.close();
    if (!this.#isParsing) this.#parser.close();
    this.#body?.fail({ tag: "connection-terminated" });
    this.#body = undefined;
    for (const each of this.#exchanges.splice(0)) each.gone();
    const unsent = this.#unsent;
    this.#unsent = 0;
    this.#port.unsent(this, -unsent);
    this.#port.closed(this);
  }

  get isClosed(): boolean {
    return this.#phase === "closed" || this.#phase === "lingering";
  }

  /** @returns the buffer for the next bytes */
  #read(): Uint8Array | undefined {
    const length = this.#port.parts.bytesRead;
    if (length === END_OF_FILE) this.#inputOver();
    else if (length < 0) this.close();
    if (length <= 0 || this.#phase === "closed") return undefined;
    this.#movedMs = this.#port.now();
    if (this.#phase === "lingering") {
      this.#discarded += length;
      if (this.#discarded > LINGER_BYTES) this.close();
      return undefined;
    }
    this.#parse(this.#buffer.subarray(0, length));
    this.#buffer = this.#body?.isRead === true ? this.#port.large : this.#port.small;
    return this.#buffer;
  }

  #parse(bytes: Uint8Array): void {
    this.#messageSinceMs ??= this.#movedMs;
    this.#isParsing = true;
    let result = this.#parser.execute(bytes);
    // llhttp stops behind a request to upgrade, which is not granted: the next one follows.
    for (let at = 0; typeof result === "number" && this.#phase === "open" && at + result < bytes.length; ) {
      at += result;
      result = this.#parser.execute(bytes.subarray(at));
      if (result === 0) break;
    }
    this.#isParsing = false;
    if (this.#phase === "closed") {
      this.#parser.close();
      return;
    }
    if (this.#exchanges.length > this.#port.limits.maxPipelined) {
      this.close();
      return;
    }
    if (typeof result !== "number") this.#broken(STATUS_OF[result.code ?? ""] ?? BAD_REQUEST);
    this.#adjustReading();
    this.#advance();
  }

  #moreFields(fields: readonly string[], url: string): void {
    const { maxHeaders } = this.#port.limits;
    this.#url += url;
    if (this.#fields.length + fields.length > maxHeaders * 2) this.#hasTooManyFields = true;
    else this.#fields.push(...fields);
  }

  #headed(
    version: number,
    lastFields: readonly string[] | undefined,
    method: number,
    lastUrl: string | undefined,
    keepAlive: boolean,
  ): number {
    const { parts, limits, date } = this.#port;
    const head = {
      method: parts.methodName(method),
      url: lastUrl ?? this.#url,
      fields: lastFields ?? this.#fields,
      version,
      keepAlive,
    };
    const exchange = new Exchange(head, { connection: this, date, limits });
    if (this.#hasTooManyFields || head.fields.length > limits.maxHeaders * 2) exchange.refusal = 431;
    this.#fields = [];
    this.#url = "";
    this.#hasTooManyFields = false;
    this.#messageSinceMs ??= this.#movedMs;
    this.#body = exchange.body;
    this.#exchanges.push(exchange);
    if (exchange.refusal === undefined) return PARSE_BODY;
    // The rest of the input is ignored.
    this.#phase = "no more requests";
    return UPGRADE_FOLLOWS;
  }

  #completed(): void {
    this.#body?.complete(this.#hasTooManyFields ? [] : this.#fields);
    this.#body = undefined;
    this.#fields = [];
    this.#url = "";
    this.#hasTooManyFields = false;
    this.#messageSinceMs = undefined;
  }

  /** Gives the turn to the next request. */
  #advance(): void {
    if (this.#hasTurn || this.#unsent > 0 || this.isClosed) return;
    const [next] = this.#exchanges;
    if (next === undefined) {
      if (this.#phase === "no more requests" && this.#body === undefined) this.#finish();
      return;
    }
    this.#hasTurn = true;
    if (next.refusal === undefined) this.#port.take(next);
    else next.answer(next.refusal);
  }

  /** Refuses input that is no request, or did not arrive in time. */
  #broken(status: number): void {
    const body = this.#body;
    const exchange = this.#exchanges.find((each) => each.body === body);
    this.#phase = "no more requests";
    if (body === undefined) this.#exchanges.push(Exchange.refused(status, this, this.#port));
    else if (exchange === undefined) this.close();
    else if (exchange !== this.#exchanges[0] || !this.#hasTurn) exchange.refusal = status;
    else {
      body.fail({ tag: status === REQUEST_TIMEOUT ? "connection-read-timeout" : "HTTP-protocol-error" });
      exchange.answer(status);
    }
    this.#body = undefined;
    this.#messageSinceMs = undefined;
    this.#adjustReading();
    this.#advance();
  }

  /** The client sends nothing more. It still gets its answers. */
  #inputOver(): void {
    this.#inputEnded = true;
    this.#isReading = false;
    if (this.#phase === "lingering") {
      if (this.#unsent === 0) this.close();
    } else if (this.#body !== undefined || this.#isWithinHead()) this.#broken(BAD_REQUEST);
    else {
      this.#phase = "no more requests";
      this.#advance();
    }
  }

  /** llhttp knows whether the input ends within a message. */
  #isWithinHead(): boolean {
    return this.#messageSinceMs !== undefined || this.#parser.finish() !== undefined;
  }

  /** The last response has been written. */
  #finish(): void {
    if (this.isClosed) return;
    this.#phase = "lingering";
    this.#discarded = 0;
    this.#respondedMs = this.#port.now();
    this.#body?.fail({ tag: "connection-terminated" });
    for (const each of this.#exchanges.splice(0)) each.gone();
    const request = this.#port.parts.shutdown();
    request.oncomplete = () => {
      if (this.#inputEnded) this.close();
    };
    const result = this.#handle.shutdown(request);
    if (result < 0 || (result === 1 && this.#inputEnded)) this.close();
    else this.#adjustReading();
  }

  #written(status: number, bytes: number): void {
    if (this.#phase === "closed") return;
    this.#unsent -= bytes;
    this.#port.unsent(this, -bytes);
    if (status < 0) {
      this.close();
      return;
    }
    this.#movedMs = this.#port.now();
    if (!this.isFull && this.#hasTurn) this.#exchanges[0]?.drained();
    this.#advance();
  }

  /** Reads while the input is requested, or there is room. */
  #adjustReading(): void {
    const wanted = this.#wantsBytes();
    if (wanted === this.#isReading || this.#phase === "closed" || this.#inputEnded) return;
    this.#isReading = wanted;
    if (wanted) this.#handle.readStart();
    else this.#handle.readStop();
  }

  #wantsBytes(): boolean {
    if (this.#phase === "lingering") return true;
    const body = this.#body;
    if (body !== undefined) return body.isDiscarded || (body.isRead && body.available < this.#port.large.length);
    // One request is read ahead, so that the disconnection of a client that waits is seen.
    return this.#phase === "open" && this.#exchanges.length <= 1;
  }
}
