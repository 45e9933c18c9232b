/**
 * The parts of `node-parts.ts` made of public ones, for a Node without the private ones: sockets of `node:net`, and
 * llhttp through a server of `node:http` that is fed bytes and never answers. Requests and refusals are the same, for
 * more memory and time. One thing is coarser: of a write that a client reads slowly, no progress is seen until all of
 * it has been sent.
 */

import {
  createServer as createHttpServer,
  type Server as HttpServer,
  IncomingMessage,
  METHODS,
  type ServerResponse,
} from "node:http";
import { BoundSocket, createServer, type Server, type Socket } from "node:net";
import { constants } from "node:os";
import { Duplex } from "node:stream";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
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
  type TcpListener,
  type WriteRequest,
} from "./node-parts.ts";

/** Node reads this much ahead of its reader. */
const READ_AHEAD_BYTES = 16_384;

export class PublicParts implements NodePrivateApi {
  /** Node reads 64 KiB at once, and each message has a stream of its own. */
  readonly weight = 4;
  readonly #servers = new Map<number, HttpServer>();
  bytesRead = 0;
  isWriting = false;

  listener(): TcpListener {
    return new PublicListener(this);
  }

  write(): WriteRequest {
    return { oncomplete: undefined };
  }

  shutdown(): WriteRequest {
    return { oncomplete: undefined };
  }

  requestParser(maxHeaderBytes: number): HttpParser {
    const server = this.#servers.get(maxHeaderBytes) ?? parsingServer(maxHeaderBytes);
    this.#servers.set(maxHeaderBytes, server);
    return new PublicParser(server);
  }

  methodName(number: number): string {
    return METHODS[number] ?? "";
  }
}

const statusOf = (error: unknown): number =>
  -(constants.errno[errnoOf(error) as keyof typeof constants.errno] ?? constants.errno.EIO);

class PublicListener implements TcpListener {
  readonly #parts: PublicParts;
  #bound: BoundSocket | undefined;
  #server: Server | undefined;
  onconnection: TcpListener["onconnection"];

  constructor(parts: PublicParts) {
    this.#parts = parts;
  }

  bind(host: string, port: number): number {
    try {
      this.#bound = new BoundSocket({ host, port });
      return 0;
    } catch (error) {
      return statusOf(error);
    }
  }

  bind6(host: string, port: number): number {
    return this.bind(host, port);
  }

  listen(backlog: number): number {
    const options = { allowHalfOpen: true, pauseOnConnect: true, highWaterMark: READ_AHEAD_BYTES };
    const server = createServer(options, (socket) => this.onconnection?.(0, new PublicHandle(this.#parts, socket)));
    this.#server = server;
    server.on("error", ignore("it comes later, when its only cause can be another server on the same port"));
    server.listen(this.#bound, backlog);
    this.#bound = undefined;
    return server.listening ? 0 : -constants.errno.EADDRINUSE;
  }

  close(): void {
    this.#bound?.close();
    this.#bound = undefined;
    this.#server?.close();
  }
}

class PublicHandle implements TcpHandle {
  readonly #parts: PublicParts;
  readonly #socket: Socket;
  #buffer = new Uint8Array();
  /** Bytes that arrived while reading was stopped. */
  #rest: Uint8Array | undefined;
  #hasEnded = false;
  #isReading = false;
  onread: TcpHandle["onread"];

  constructor(parts: PublicParts, socket: Socket) {
    this.#parts = parts;
    this.#socket = socket;
    socket.on("data", (bytes) => this.#take(bytes));
    socket.on("end", () => {
      this.#hasEnded = true;
      if (this.#rest === undefined) this.#report(END_OF_FILE);
    });
    socket.on("error", (error) => this.#report(statusOf(error)));
  }

  get writeQueueSize(): number {
    return this.#socket.writableLength;
  }

  setNoDelay(on: boolean): number {
    this.#socket.setNoDelay(on);
    return 0;
  }

  useUserBuffer(buffer: Uint8Array<ArrayBuffer>): void {
    this.#buffer = buffer;
  }

  readStart(): number {
    this.#isReading = true;
    // Not within the call.
    if (this.#rest !== undefined) queueMicrotask(() => this.#takeRest());
    else this.#socket.resume();
    return 0;
  }

  readStop(): number {
    this.#isReading = false;
    this.#socket.pause();
    return 0;
  }

  writeLatin1String(request: WriteRequest, text: string): number {
    return this.#written(request, (done) => this.#socket.write(text, "latin1", done));
  }

  writev(request: WriteRequest, chunks: readonly unknown[]): number {
    return this.#written(request, (done) => {
      this.#socket.cork();
      for (let at = 0; at < chunks.length; at += 2) {
        const chunk = chunks[at] as string | Uint8Array;
        const isLast = at + 2 >= chunks.length;
        const then = isLast ? done : undefined;
        if (typeof chunk === "string") this.#socket.write(chunk, "latin1", then);
        else this.#socket.write(chunk, then);
      }
      this.#socket.uncork();
    });
  }

  shutdown(request: WriteRequest): number {
    this.#socket.end(() => request.oncomplete?.(0));
    return 0;
  }

  close(): void {
    this.onread = undefined;
    this.#rest = undefined;
    this.#socket.destroy();
  }

  #written(request: WriteRequest, write: (done: (error?: Error | null) => void) => void): number {
    if (this.#socket.destroyed) return -constants.errno.EPIPE;
    let isAsync = false;
    write((error) => {
      if (isAsync) request.oncomplete?.(error ? statusOf(error) : 0);
    });
    isAsync = this.#socket.writableLength > 0;
    this.#parts.isWriting = isAsync;
    return 0;
  }

  #take(bytes: Uint8Array): void {
    this.#rest = bytes;
    this.#takeRest();
  }

  #takeRest(): void {
    while (this.#rest !== undefined && this.#isReading && this.onread !== undefined) {
      const piece = this.#rest.subarray(0, this.#buffer.length);
      this.#rest = piece.length < this.#rest.length ? this.#rest.subarray(piece.length) : undefined;
      this.#buffer.set(piece);
      this.#report(piece.length);
    }
    if (this.#rest !== undefined) return;
    if (this.#hasEnded) this.#report(END_OF_FILE);
    else if (this.#isReading) this.#socket.resume();
  }

  #report(length: number): void {
    this.#parts.bytesRead = length;
    const next = this.onread?.();
    if (next !== undefined) this.#buffer = next as Uint8Array<ArrayBuffer>;
  }
}

/** A connection for the parsing server. Its responses are discarded. */
class Feed extends Duplex {
  /** Not `parser`: Node sets a property of that name. */
  readonly reader: PublicParser;

  constructor(reader: PublicParser) {
    super({ allowHalfOpen: true });
    this.reader = reader;
    this.on("error", ignore("`close` follows, which ends the request"));
  }

  override _read(): void {
    // It is fed.
  }

  override _write(_bytes: unknown, _encoding: unknown, done: () => void): void {
    done();
  }
}

/** Passes its body on as it arrives, within the call that parses it. */
class FedMessage extends IncomingMessage {
  answer: ServerResponse | undefined;

  override push(bytes: Uint8Array | null): boolean {
    const { reader } = this.socket as unknown as Feed;
    if (bytes !== null) reader.fed(bytes);
    else {
      reader.ended(this.rawTrailers);
      // Only now, because the server closes such a connection behind its answer.
      this.answer?.end();
    }
    return true;
  }
}

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) !== 0;

function parsingServer(maxHeaderSize: number): HttpServer {
  const off = { keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 };
  const server = createHttpServer({
    ...{ ...off, maxHeaderSize, requireHostHeader: false, IncomingMessage: FedMessage },
    // Upgrades are refused, but Node returns the input behind such a request only to servers that accept it.
    shouldUpgradeCallback: (message) => !hasBody(message),
  });
  // All that there are: the limit is its reader's.
  server.maxHeadersCount = 0;
  const take = (message: FedMessage, answer?: ServerResponse): void => {
    message.answer = answer;
    (message.socket as unknown as Feed).reader.headed(message);
  };
  for (const event of ["request", "checkContinue", "checkExpectation"]) server.on(event, take);
  server.on("connect", (message) => take(message as FedMessage));
  server.on("upgrade", (message, feed, rest) => {
    take(message as FedMessage);
    (feed as unknown as Feed).reader.beginAgain(rest);
  });
  server.on("clientError", (error, socket) => (socket as unknown as Feed).reader.failed(error));
  return server;
}

class PublicParser implements HttpParser {
  readonly #server: HttpServer;
  #feed = new Feed(this);
  #error: Error | undefined;
  /** All further input is ignored. */
  #isOver = false;
  #isLast = false;
  [ON_HEADERS]!: HttpParser[typeof ON_HEADERS];
  [ON_HEADERS_COMPLETE]!: HttpParser[typeof ON_HEADERS_COMPLETE];
  [ON_BODY]!: HttpParser[typeof ON_BODY];
  [ON_MESSAGE_COMPLETE]!: HttpParser[typeof ON_MESSAGE_COMPLETE];

  constructor(server: HttpServer) {
    this.#server = server;
    server.emit("connection", this.#feed);
  }

  execute(bytes: Uint8Array): number | (Error & { readonly code?: string }) {
    this.#error = undefined;
    if (!this.#isOver) this.#feed.emit("data", Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length));
    return this.#error ?? bytes.length;
  }

  finish(): unknown {
    this.#error = undefined;
    if (!this.#isOver) this.#feed.emit("end");
    return this.#error;
  }

  close(): void {
    this.#isOver = true;
    this.#feed.destroy();
  }

  headed(message: FedMessage): void {
    if (this.#isOver) return;
    const { httpVersionMajor: major, httpVersionMinor: minor, rawHeaders, method = "", url } = message;
    const connection = (message.headers.connection ?? "").toLowerCase().split(/\s*,\s*/);
    const keepAlive = major > 1 || minor > 0 ? !connection.includes("close") : connection.includes("keep-alive");
    const number = METHODS.indexOf(method);
    const follows = this[ON_HEADERS_COMPLETE](
      major,
      minor,
      rawHeaders,
      number,
      url,
      undefined,
      undefined,
      false,
      keepAlive,
    );
    if (follows !== PARSE_BODY) this.#isOver = true;
    // The place where its body ends in the input is unknown, so that nothing may be taken for the next request.
    this.#isLast = hasBody(message) && message.headers.upgrade !== undefined && connection.includes("upgrade");
  }

  /** The request that was headed last has no body, and the parser has stopped behind it. */
  beginAgain(rest: Uint8Array): void {
    this.ended([]);
    this.#feed.destroy();
    this.#feed = new Feed(this);
    this.#server.emit("connection", this.#feed);
    if (rest.length > 0 && !this.#isOver) this.#feed.emit("data", rest);
  }

  fed(bytes: Uint8Array): void {
    if (!this.#isOver) this[ON_BODY](bytes);
  }

  ended(trailers: readonly string[]): void {
    if (this.#isOver) return;
    if (trailers.length > 0) this[ON_HEADERS](trailers, "");
    this[ON_MESSAGE_COMPLETE]();
    if (!this.#isLast) return;
    this.#isOver = true;
    this.#error = new Error("a request to upgrade had a body");
  }

  failed(error: Error): void {
    this.#error ??= error;
  }
}
