/** The server's side of one HTTP/2 connection (RFC 9113) that carries unary gRPC calls. No push, no priorities. */
import type { Socket } from "node:net";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Deadline, Deadlines } from "./deadlines.ts";
import { MessageAssembler, withPrefix } from "./grpc-messages.ts";
import { printableStatus } from "./grpc-status.ts";
import { encodeHeaders, type HeaderList, HpackDecoder } from "./hpack.ts";
import {
  ERROR_CODE,
  FLAG,
  FRAME,
  type FrameHandler,
  FrameReader,
  frame,
  MAX_FRAME_BYTES,
  ProtocolViolation,
  SETTING,
} from "./http2-frames.ts";

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
/** RFC 9113 section 6.9.2. */
const DEFAULT_WINDOW_BYTES = 65_535;
const MAX_WINDOW_BYTES = 0x7fff_ffff;
/** Requests name a socket or a pod. One message fits in a stream's first window, which is never given back. */
const MAX_REQUEST_BYTES = 16 * KIBIBYTE;
/** Calls of one connection at once, also those that the client has given up but whose answer is being made. */
const MAX_CALLS = 16;
/** From a call's headers until its answer was handed to the socket. */
const CALL_TIMEOUT_MS = 10_000;
/** Answers to PING and SETTINGS that the other side does not read: it floods. */
const MAX_UNSENT_BYTES = 4 * MEBIBYTE;

/** A method as the server finds it: bytes in, bytes out. */
export interface ServedMethod {
  /** `/package.Service/Method` */
  readonly path: string;
  /** Rejects with an error that becomes the call's status. */
  readonly answer: (bytes: Buffer, start: number, end: number, signal: AbortSignal) => Promise<Uint8Array>;
}

interface ServerStream {
  readonly id: number;
  readonly method: ServedMethod | undefined;
  readonly assembler: MessageAssembler;
  readonly deadline: Deadline;
  readonly abort: AbortController;
  answer: Promise<Uint8Array> | undefined;
  sendWindow: number;
  /** The rest of the answer, which waits for the window. */
  unsent: Uint8Array;
  trailers: Buffer | undefined;
}

export class GrpcServerConnection {
  readonly #socket: Socket;
  readonly #methods: ReadonlyMap<string, ServedMethod>;
  readonly #deadlines: Deadlines;
  readonly #hpack = new HpackDecoder();
  readonly #reader: FrameReader;
  readonly #streams = new Map<number, ServerStream>();
  readonly #handshake: Deadline;
  #prefaceBytes = 0;
  #lastId = 0;
  #running = 0;
  #sendWindow = DEFAULT_WINDOW_BYTES;
  #initialSendWindow = DEFAULT_WINDOW_BYTES;

  constructor(
    components: {
      readonly socket: Socket;
      readonly methods: ReadonlyMap<string, ServedMethod>;
      readonly deadlines: Deadlines;
    },
    onClose: () => void,
  ) {
    this.#socket = components.socket;
    this.#methods = components.methods;
    this.#deadlines = components.deadlines;
    this.#reader = new FrameReader(this.#frames());
    this.#handshake = this.#deadlines.add(CALL_TIMEOUT_MS, () => this.close());
    const settings = Buffer.alloc(6);
    settings.writeUInt16BE(SETTING.maxConcurrentStreams, 0);
    settings.writeUInt32BE(MAX_CALLS, 2);
    this.#write(frame(FRAME.settings, 0, 0, settings));
    this.#socket.on("error", ignore("the connection closes with it"));
    this.#socket.on("data", (chunk: Buffer) => this.#onBytes(chunk));
    this.#socket.on("close", () => {
      this.#handshake[Symbol.dispose]();
      for (const stream of [...this.#streams.values()]) this.#forget(stream);
      onClose();
    });
  }

  /** True when no call is under way. */
  get isIdle(): boolean {
    return this.#running === 0 && this.#streams.size === 0;
  }

  close(): void {
    this.#socket.destroy();
  }

  #onBytes(chunk: Buffer): void {
    try {
      const rest = this.#prefaceBytes < PREFACE.length ? this.#preface(chunk) : chunk;
      if (rest.length > 0) this.#reader.feed(rest);
    } catch (error) {
      this.#goAway(error instanceof ProtocolViolation ? error.errorCode : ERROR_CODE.protocolError);
    }
  }

  #preface(chunk: Buffer): Buffer {
    const taken = Math.min(PREFACE.length - this.#prefaceBytes, chunk.length);
    if (PREFACE.compare(chunk, 0, taken, this.#prefaceBytes, this.#prefaceBytes + taken) !== 0)
      throw new ProtocolViolation(ERROR_CODE.protocolError, "this is not HTTP/2");
    this.#prefaceBytes += taken;
    if (this.#prefaceBytes === PREFACE.length) this.#handshake[Symbol.dispose]();
    return chunk.subarray(taken);
  }

  #frames(): FrameHandler {
    return {
      onData: (id, piece, flowBytes) => this.#onData(id, piece, flowBytes),
      onDataEnd: (id) => this.#onRequestEnd(id),
      onHeaders: (id, block, end) => this.#onHeaders(id, block, end),
      onResetStream: (id) => this.#forget(this.#streams.get(id)),
      onSettings: (payload) => this.#onSettings(payload),
      onSettingsAck: () => undefined,
      onPing: (payload) => this.#write(frame(FRAME.ping, FLAG.ack, 0, payload)),
      onGoAway: () => undefined,
      onWindowUpdate: (id, increment) => this.#onWindowUpdate(id, increment),
    };
  }

  #onHeaders(id: number, block: Buffer, end: boolean): void {
    const headers = this.#hpack.decode(block);
    if (id % 2 === 0) throw new ProtocolViolation(ERROR_CODE.protocolError, "a client's stream has an even number");
    // Trailers of a known stream, or of one that has been answered.
    if (id <= this.#lastId) {
      if (end) this.#onRequestEnd(id);
      return;
    }
    this.#lastId = id;
    if (this.#running + this.#streams.size >= MAX_CALLS) {
      this.#reset(id, ERROR_CODE.refusedStream);
      return;
    }
    const abort = new AbortController();
    const stream: ServerStream = {
      id,
      method: this.#methods.get(header(headers, ":path") ?? ""),
      assembler: new MessageAssembler(MAX_REQUEST_BYTES, (bytes, start, to) =>
        this.#onRequest(stream, bytes, start, to),
      ),
      deadline: this.#deadlines.add(CALL_TIMEOUT_MS, () => {
        this.#reset(id, ERROR_CODE.cancel);
        this.#forget(stream);
      }),
      abort,
      answer: undefined,
      sendWindow: this.#initialSendWindow,
      unsent: new Uint8Array(0),
      trailers: undefined,
    };
    this.#streams.set(id, stream);
    if (stream.method === undefined) {
      const path = header(headers, ":path") ?? "";
      this.#fail(stream, new PicoletError("unimplemented", `unknown method ${path.slice(0, 128)}`));
    } else if (end) this.#onRequestEnd(id);
  }

  #onData(id: number, piece: Buffer, flowBytes: number): void {
    const increment = Buffer.allocUnsafe(4);
    increment.writeUInt32BE(flowBytes);
    if (flowBytes > 0) this.#write(frame(FRAME.windowUpdate, 0, 0, increment));
    const stream = this.#streams.get(id);
    if (stream === undefined || stream.trailers !== undefined) return;
    try {
      stream.assembler.feed(piece);
    } catch (error) {
      this.#fail(stream, error);
    }
  }

  #onRequest(stream: ServerStream, bytes: Buffer, start: number, end: number): void {
    if (stream.answer !== undefined) throw new PicoletError("invalid", "the method takes one message");
    this.#running += 1;
    const done = (): void => {
      this.#running -= 1;
    };
    const asked = async (): Promise<Uint8Array> =>
      (await stream.method?.answer(bytes, start, end, stream.abort.signal)) ?? new Uint8Array(0);
    stream.answer = asked();
    stream.answer.then(done, done);
  }

  #onRequestEnd(id: number): void {
    const stream = this.#streams.get(id);
    if (stream === undefined || stream.trailers !== undefined) return;
    if (stream.answer === undefined) {
      this.#fail(stream, new PicoletError("invalid", "the call has no message"));
      return;
    }
    stream.answer.then(
      (message) => {
        if (this.#streams.get(id) !== stream) return;
        const headers = encodeHeaders([":status", "200", "content-type", "application/grpc"]);
        this.#write(frame(FRAME.headers, FLAG.endHeaders, id, headers));
        stream.unsent = withPrefix(message);
        stream.trailers = encodeHeaders(["grpc-status", "0"]);
        this.#pump(stream);
      },
      (error: unknown) => this.#fail(stream, error),
    );
  }

  /** Answers with trailers alone. */
  #fail(stream: ServerStream, error: unknown): void {
    if (this.#streams.get(stream.id) !== stream) return;
    const { status, message } = printableStatus(error);
    const trailers = [":status", "200", "content-type", "application/grpc"];
    trailers.push("grpc-status", String(status), "grpc-message", message);
    stream.answer?.catch(ignore("the call has its status"));
    this.#write(frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream.id, encodeHeaders(trailers)));
    this.#forget(stream);
  }

  #pump(stream: ServerStream): void {
    while (stream.unsent.length > 0) {
      const count = Math.min(stream.unsent.length, stream.sendWindow, this.#sendWindow, MAX_FRAME_BYTES);
      if (count <= 0) return;
      this.#write(frame(FRAME.data, 0, stream.id, stream.unsent.subarray(0, count)));
      stream.unsent = stream.unsent.subarray(count);
      stream.sendWindow -= count;
      this.#sendWindow -= count;
    }
    if (stream.trailers === undefined) return;
    this.#write(frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream.id, stream.trailers));
    this.#forget(stream);
  }

  #onSettings(payload: Buffer): void {
    for (let offset = 0; offset < payload.length; offset += 6) {
      if (payload.readUInt16BE(offset) !== SETTING.initialWindowSize) continue;
      const value = payload.readUInt32BE(offset + 2);
      if (value > MAX_WINDOW_BYTES) throw new ProtocolViolation(ERROR_CODE.flowControlError, "a window is too large");
      for (const stream of this.#streams.values()) stream.sendWindow += value - this.#initialSendWindow;
      this.#initialSendWindow = value;
    }
    this.#write(frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)));
    this.#pumpAll();
  }

  #onWindowUpdate(id: number, increment: number): void {
    const stream = this.#streams.get(id);
    if (id === 0) this.#sendWindow += increment;
    else if (stream !== undefined) stream.sendWindow += increment;
    if (this.#sendWindow > MAX_WINDOW_BYTES || (stream?.sendWindow ?? 0) > MAX_WINDOW_BYTES)
      throw new ProtocolViolation(ERROR_CODE.flowControlError, "a window is too large");
    this.#pumpAll();
  }

  #pumpAll(): void {
    for (const stream of [...this.#streams.values()]) if (stream.trailers !== undefined) this.#pump(stream);
  }

  #reset(id: number, code: number): void {
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32BE(code);
    this.#write(frame(FRAME.resetStream, 0, id, payload));
  }

  #forget(stream: ServerStream | undefined): void {
    if (stream === undefined) return;
    this.#streams.delete(stream.id);
    stream.deadline[Symbol.dispose]();
    stream.assembler.abandon();
    stream.abort.abort();
    stream.answer?.catch(ignore("its client is gone"));
  }

  #goAway(code: number): void {
    const payload = Buffer.alloc(8);
    payload.writeUInt32BE(this.#lastId, 0);
    payload.writeUInt32BE(code, 4);
    this.#write(frame(FRAME.goAway, 0, 0, payload));
    this.#socket.destroySoon();
  }

  #write(bytes: Buffer): void {
    if (!this.#socket.writable) return;
    this.#socket.write(bytes);
    if (this.#socket.writableLength > MAX_UNSENT_BYTES) this.close();
  }
}

function header(headers: HeaderList, name: string): string | undefined {
  for (let index = 0; index < headers.length; index += 2) if (headers[index] === name) return headers[index + 1];
  return undefined;
}
