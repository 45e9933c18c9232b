/**
 * The client's side of one HTTP/2 connection (RFC 9113) over a unix socket or TCP, as far as gRPC needs it: no push, no
 * priorities, no TLS. node:http2 is left out for its memory: it allocates 64 KiB for every read.
 */
import { connect as connectSocket, type Socket } from "node:net";
import { isPicoletError, PicoletError, type PicoletErrorInit } from "@picolet/protocol/errors.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { type HeaderList, HpackDecoder, MAX_HEADER_LIST_BYTES } from "./hpack.ts";
import {
  ERROR_CODE,
  FLAG,
  FRAME,
  FRAME_HEADER_BYTES,
  type FrameHandler,
  FrameReader,
  frame,
  MAX_FRAME_BYTES,
  ProtocolViolation,
  SETTING,
  writeFrameHeader,
} from "./http2-frames.ts";

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
/** Every read goes into one buffer, for the life of the connection. A relist of 50 pods is 3 to 5 reads. */
const READ_BUFFER_BYTES = 32 * KIBIBYTE;
/** RFC 9113 section 6.9.2. */
const DEFAULT_WINDOW_BYTES = 65_535;
const MAX_WINDOW_BYTES = 0x7fff_ffff;
/** Bounds the data of one stream that its reader has not taken: a relist of 100 pods in one go. */
const STREAM_WINDOW_BYTES = 256 * KIBIBYTE;
/** Bounds unread data on all streams together. */
const CONNECTION_WINDOW_BYTES = MEBIBYTE;
/** Requests that wait for a place under the other side's limit of concurrent streams; more fail at once. */
const MAX_WAITING_STREAMS = 1_000;
/** Pieces of one request that wait for the flow-control window; a sender that does not wait for them fails. */
const MAX_WAITING_PIECES = 16;
/** Bytes that the other side does not read; a connection with more is given up. Larger than the largest message. */
const MAX_UNSENT_BYTES = 32 * MEBIBYTE;
/** Stream identifiers are odd and 31 bits long. */
const LAST_STREAM_ID = 0x7fff_ffff;

/** The address of a server. */
export type ServerAddress = { readonly path: string } | { readonly host: string; readonly port: number };

/** The address for messages. */
export const nameOf = (address: ServerAddress): string =>
  "path" in address ? address.path : `${address.host}:${address.port}`;

/** Calls of a stream's owner. Nothing more comes after `onEnd` or `onFailed`. */
export interface StreamHandler {
  /** Response headers, and trailers; the latter always with `end`. */
  onHeaders(headers: HeaderList, end: boolean): void;
  /** `piece` is valid during the call only. Return its bytes with `consumed` once they are processed. */
  onData(piece: Buffer): void;
  /** The response ended without trailers. */
  onEnd(): void;
  /** @param processed `no`: the other side has not processed the request, so that it may be sent again */
  onFailed(error: PicoletError, processed: "no" | "maybe"): void;
}

export interface Http2Stream {
  /**
   * Sends a piece of the request. Resolves once all of it was handed to the socket; a failed stream resolves too, for
   * its handler has the error.
   */
  send(piece: Uint8Array, end: boolean): Promise<void>;
  /** Gives bytes of `onData` back to the other side's window. */
  consumed(bytes: number): void;
  /** Ends it from this side; the handler hears no more. */
  cancel(): void;
}

interface WaitingPiece {
  readonly bytes: Uint8Array;
  offset: number;
  readonly end: boolean;
  readonly done: () => void;
}

type StreamState = "waiting" | "open" | "localEnded" | "closed";

interface StreamRecord {
  id: number;
  state: StreamState;
  readonly block: Buffer;
  readonly handler: StreamHandler;
  readonly pieces: WaitingPiece[];
  sendWindow: number;
  receiveWindow: number;
  /** Consumed but not yet given back; sent in one WINDOW_UPDATE per half window. */
  toGiveBack: number;
}

type ConnectionState =
  | { readonly kind: "handshaking" }
  | { readonly kind: "open" }
  /** Takes no new streams; those at hand go on. */
  | { readonly kind: "draining" }
  | { readonly kind: "closed"; readonly error: PicoletError };

const unavailable = (message: string, init: PicoletErrorInit = {}): PicoletError =>
  new PicoletError("unavailable", message, { retryable: true, ...init });

export class Http2Connection {
  /** The other side's name for messages. */
  readonly #peer: string;
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  readonly #hpack = new HpackDecoder();
  readonly #streams = new Map<number, StreamRecord>();
  readonly #waiting: StreamRecord[] = [];
  readonly #onChange: () => void;
  #state: ConnectionState = { kind: "handshaking" };
  #nextId = 1;
  #maxStreams = Number.POSITIVE_INFINITY;
  #initialSendWindow = DEFAULT_WINDOW_BYTES;
  #sendWindow = DEFAULT_WINDOW_BYTES;
  #receiveWindow = CONNECTION_WINDOW_BYTES;
  #toGiveBack = 0;
  /** The other side wants a smaller header table than the default: said once in our next block (RFC 7541, 4.2). */
  #shrinkTable = false;
  /** The socket's buffer is full: DATA waits for `drain`. */
  #socketFull = false;

  /**
   * Connects at once; `state` tells how it goes.
   * @param readBuffer that connections may share; one of its own unless given.
   * @param onChange called after each change of `state`.
   */
  constructor(address: ServerAddress, readBuffer: Buffer | undefined, onChange: () => void) {
    const peer = nameOf(address);
    this.#peer = peer;
    this.#onChange = onChange;
    this.#reader = new FrameReader(this.#frameHandler());
    this.#socket = connectSocket({
      ...address,
      onread: {
        buffer: readBuffer ?? Buffer.allocUnsafeSlow(READ_BUFFER_BYTES),
        callback: (count, buffer) => this.#read(buffer as Buffer, count),
      },
    });
    this.#socket.on("connect", () => this.#greet());
    this.#socket.on("drain", () => {
      this.#socketFull = false;
      this.#pumpAll();
    });
    this.#socket.on("end", () => this.#fail(unavailable(`cannot talk to ${peer}: it closed the connection`)));
    this.#socket.on("close", () => this.#fail(unavailable(`cannot talk to ${peer}: the connection is closed`)));
    this.#socket.on("error", (cause: NodeJS.ErrnoException) => {
      const forbidden = cause.code === "EACCES" || cause.code === "EPERM";
      this.#fail(
        forbidden
          ? new PicoletError("permission_denied", `cannot connect to ${peer}`, { cause })
          : unavailable(`cannot talk to ${peer}`, { cause }),
      );
    });
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /**
   * Begins a request; it waits for its turn when the other side limits the number of streams.
   * @param block from `encodeHeaders`.
   * @param first goes out in one write with the headers.
   * @throws `unavailable` when the connection is not open, `resource_exhausted` when too many wait already.
   */
  open(
    block: Buffer,
    handler: StreamHandler,
    first?: { readonly bytes: Uint8Array; readonly end: boolean },
  ): Http2Stream {
    if (this.#state.kind !== "open") throw unavailable(`cannot talk to ${this.#peer}: the connection is not open`);
    if (this.#waiting.length >= MAX_WAITING_STREAMS) {
      throw new PicoletError("resource_exhausted", `cannot have more than ${MAX_WAITING_STREAMS} calls wait`);
    }
    const stream: StreamRecord = {
      id: 0,
      state: "waiting",
      block,
      handler,
      pieces: first === undefined ? [] : [{ ...first, offset: 0, done: () => undefined }],
      sendWindow: 0,
      receiveWindow: STREAM_WINDOW_BYTES,
      toGiveBack: 0,
    };
    this.#waiting.push(stream);
    this.#activateWaiting();
    return {
      send: (bytes, end) => this.#send(stream, bytes, end),
      consumed: (count) => this.#consumed(stream, count),
      cancel: () => this.#cancel(stream),
    };
  }

  /** Ends the connection; its streams fail with `error`. */
  close(error: PicoletError): void {
    if (this.#state.kind !== "closed" && this.#socket.writable) this.#write(this.#goAwayFrame(ERROR_CODE.noError));
    this.#fail(error);
  }

  #become(state: ConnectionState): void {
    this.#state = state;
    this.#onChange();
  }

  #greet(): void {
    const settings: readonly (readonly [number, number])[] = [
      [SETTING.enablePush, 0],
      [SETTING.initialWindowSize, STREAM_WINDOW_BYTES],
      [SETTING.maxHeaderListSize, MAX_HEADER_LIST_BYTES],
    ];
    const payload = Buffer.alloc(settings.length * 6);
    for (const [index, [name, value]] of settings.entries()) {
      payload.writeUInt16BE(name, index * 6);
      payload.writeUInt32BE(value, index * 6 + 2);
    }
    const increment = windowUpdate(0, CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
    this.#write(Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0, payload), increment]));
  }

  #read(buffer: Buffer, count: number): boolean {
    if (this.#state.kind === "closed") return false;
    try {
      this.#reader.feed(buffer.subarray(0, count));
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      const code = error instanceof ProtocolViolation ? error.errorCode : ERROR_CODE.compressionError;
      this.#write(this.#goAwayFrame(code));
      this.#fail(unavailable(`cannot talk to ${this.#peer}`, { cause: error }));
    }
    return true;
  }

  #frameHandler(): FrameHandler {
    return {
      onData: (id, piece, flowBytes) => this.#onData(id, piece, flowBytes),
      onDataEnd: (id) => {
        const stream = this.#known(id);
        if (stream === undefined) return;
        this.#finish(stream);
        stream.handler.onEnd();
      },
      onHeaders: (id, block, end) => this.#onHeaders(id, block, end),
      onResetStream: (id, code) => this.#onResetStream(id, code),
      onSettings: (payload) => this.#onSettings(payload),
      onSettingsAck: () => undefined,
      onPing: (payload) => this.#write(frame(FRAME.ping, FLAG.ack, 0, payload)),
      onGoAway: (last, code, debug) => this.#onGoAway(last, code, debug),
      onWindowUpdate: (id, increment) => this.#onWindowUpdate(id, increment),
    };
  }

  /** `undefined` for one that is closed already, for which frames may still be on their way. */
  #known(id: number): StreamRecord | undefined {
    if (id % 2 === 0 || id >= this.#nextId) {
      throw new ProtocolViolation(ERROR_CODE.protocolError, `a frame for stream ${id}, which was never opened`);
    }
    return this.#streams.get(id);
  }

  #onData(id: number, piece: Buffer, flowBytes: number): void {
    this.#receiveWindow -= flowBytes;
    if (this.#receiveWindow < 0) {
      throw new ProtocolViolation(ERROR_CODE.flowControlError, "more data than the connection's window");
    }
    // Memory is bounded by the streams' windows; the connection's goes back at once so that none blocks another.
    this.#toGiveBack += flowBytes;
    if (this.#toGiveBack >= CONNECTION_WINDOW_BYTES / 2) {
      this.#write(windowUpdate(0, this.#toGiveBack));
      this.#receiveWindow += this.#toGiveBack;
      this.#toGiveBack = 0;
    }
    const stream = this.#known(id);
    if (stream === undefined) return;
    stream.receiveWindow -= flowBytes;
    if (stream.receiveWindow < 0) {
      throw new ProtocolViolation(ERROR_CODE.flowControlError, "more data than a stream's window");
    }
    this.#consumed(stream, flowBytes - piece.length);
    if (piece.length > 0) stream.handler.onData(piece);
  }

  #onHeaders(id: number, block: Buffer, end: boolean): void {
    // Also for a closed stream, for the block may change the table.
    const headers = this.#hpack.decode(block);
    const stream = this.#known(id);
    if (stream === undefined) return;
    if (end) this.#finish(stream);
    stream.handler.onHeaders(headers, end);
  }

  #onResetStream(id: number, code: number): void {
    const stream = this.#known(id);
    if (stream === undefined) return;
    this.#forget(stream);
    const refused = code === ERROR_CODE.refusedStream;
    stream.handler.onFailed(
      unavailable(`cannot finish the call: the other side reset it with code ${code}`),
      refused ? "no" : "maybe",
    );
  }

  #onSettings(payload: Buffer): void {
    for (let offset = 0; offset < payload.length; offset += 6) {
      this.#applySetting(payload.readUInt16BE(offset), payload.readUInt32BE(offset + 2));
    }
    this.#write(frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)));
    if (this.#state.kind === "handshaking") this.#become({ kind: "open" });
    this.#activateWaiting();
    this.#pumpAll();
  }

  #applySetting(name: number, value: number): void {
    if (name === SETTING.maxConcurrentStreams) this.#maxStreams = value;
    else if (name === SETTING.headerTableSize) this.#shrinkTable ||= value < 4096;
    else if (name === SETTING.initialWindowSize) {
      if (value > MAX_WINDOW_BYTES) {
        throw new ProtocolViolation(ERROR_CODE.flowControlError, "the initial window is too large");
      }
      const change = value - this.#initialSendWindow;
      this.#initialSendWindow = value;
      for (const stream of this.#streams.values()) stream.sendWindow += change;
    }
    // Frames longer than the smallest maximum are never sent, header lists are short, and push is off.
  }

  #onGoAway(last: number, code: number, debug: string): void {
    const cause = new PicoletError(
      "unavailable",
      `it is going away with code ${code}${debug === "" ? "" : `: ${debug}`}`,
    );
    const error = unavailable(`cannot talk to ${this.#peer}`, { cause });
    const lost = [...this.#waiting.splice(0), ...[...this.#streams.values()].filter((each) => each.id > last)];
    for (const stream of lost) this.#streams.delete(stream.id);
    // Refuse new streams first: streams that fail now are likely to be sent again at once.
    if (this.#state.kind !== "closed") this.#become({ kind: "draining" });
    for (const stream of lost) {
      this.#forget(stream);
      stream.handler.onFailed(error, "no");
    }
    if (this.#streams.size === 0) this.#fail(error);
  }

  #onWindowUpdate(id: number, increment: number): void {
    if (id === 0) {
      if (increment === 0) throw new ProtocolViolation(ERROR_CODE.protocolError, "a window update of nothing");
      this.#sendWindow += increment;
      if (this.#sendWindow > MAX_WINDOW_BYTES) {
        throw new ProtocolViolation(ERROR_CODE.flowControlError, "the connection's window is too large");
      }
      this.#pumpAll();
      return;
    }
    const stream = this.#known(id);
    if (stream === undefined) return;
    stream.sendWindow += increment;
    if (increment === 0 || stream.sendWindow > MAX_WINDOW_BYTES) {
      this.#reset(stream, increment === 0 ? ERROR_CODE.protocolError : ERROR_CODE.flowControlError);
      stream.handler.onFailed(unavailable("cannot finish the call: its window update is wrong"), "maybe");
      return;
    }
    this.#pump(stream);
  }

  #send(stream: StreamRecord, bytes: Uint8Array, end: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      if (stream.state === "closed" || stream.state === "localEnded") return resolve();
      if (stream.pieces.length >= MAX_WAITING_PIECES) {
        reject(new PicoletError("resource_exhausted", "cannot send: earlier pieces still wait for the window"));
        return;
      }
      stream.pieces.push({ bytes, offset: 0, end, done: resolve });
      if (stream.state === "open") this.#pump(stream);
    });
  }

  /** Opens as many of the waiting streams as the other side lets us, oldest first. */
  #activateWaiting(): void {
    while (this.#state.kind === "open" && this.#streams.size < this.#maxStreams) {
      const stream = this.#waiting.shift();
      if (stream === undefined) return;
      stream.id = this.#nextId;
      stream.state = "open";
      stream.sendWindow = this.#initialSendWindow;
      this.#nextId += 2;
      this.#streams.set(stream.id, stream);
      this.#sendHeaders(stream);
      if (this.#nextId > LAST_STREAM_ID) this.#become({ kind: "draining" });
    }
  }

  /** HEADERS and as much of the first piece as may go, in one write. */
  #sendHeaders(stream: StreamRecord): void {
    const block = this.#shrinkTable ? Buffer.concat([Buffer.from([0x20]), stream.block]) : stream.block;
    this.#shrinkTable = false;
    const headers = frame(FRAME.headers, FLAG.endHeaders, stream.id, block);
    this.#pump(stream, headers);
  }

  #pumpAll(): void {
    for (const stream of this.#streams.values()) if (stream.pieces.length > 0) this.#pump(stream);
  }

  /** @param before frames that go out in any case, ahead of the data. */
  #pump(stream: StreamRecord, before?: Buffer): void {
    const parts: Buffer[] = before === undefined ? [] : [before];
    for (let piece = stream.pieces[0]; piece !== undefined && !this.#socketFull; piece = stream.pieces[0]) {
      const left = piece.bytes.length - piece.offset;
      const count = Math.max(0, Math.min(left, stream.sendWindow, this.#sendWindow, MAX_FRAME_BYTES));
      if (count === 0 && (left > 0 || !piece.end)) {
        if (left > 0) break;
        stream.pieces.shift();
        piece.done();
        continue;
      }
      const whole = count === left;
      const end = whole && piece.end;
      parts.push(dataFrame(stream.id, piece.bytes, piece.offset, count, end));
      piece.offset += count;
      stream.sendWindow -= count;
      this.#sendWindow -= count;
      if (!whole) continue;
      stream.pieces.shift();
      if (end) stream.state = "localEnded";
      piece.done();
    }
    if (parts.length > 0) this.#write(parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts));
  }

  #consumed(stream: StreamRecord, count: number): void {
    if (stream.state === "closed" || count === 0) return;
    stream.toGiveBack += count;
    if (stream.toGiveBack < STREAM_WINDOW_BYTES / 2) return;
    this.#write(windowUpdate(stream.id, stream.toGiveBack));
    stream.receiveWindow += stream.toGiveBack;
    stream.toGiveBack = 0;
  }

  #cancel(stream: StreamRecord): void {
    if (stream.state === "waiting") {
      const index = this.#waiting.indexOf(stream);
      if (index >= 0) this.#waiting.splice(index, 1);
      this.#forget(stream);
    } else if (stream.state !== "closed") this.#reset(stream, ERROR_CODE.cancel);
  }

  /** The response is whole. What of the request is still unsent is of no use any more. */
  #finish(stream: StreamRecord): void {
    if (stream.state === "open") this.#reset(stream, ERROR_CODE.noError);
    else this.#forget(stream);
  }

  #reset(stream: StreamRecord, code: number): void {
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32BE(code);
    this.#write(frame(FRAME.resetStream, 0, stream.id, payload));
    this.#forget(stream);
  }

  #forget(stream: StreamRecord): void {
    stream.state = "closed";
    this.#streams.delete(stream.id);
    for (const piece of stream.pieces.splice(0)) piece.done();
    if (this.#state.kind === "draining" && this.#streams.size === 0) {
      this.#fail(unavailable(`cannot talk to ${this.#peer}: the connection has ended`));
    } else if (this.#waiting.length > 0) this.#activateWaiting();
  }

  #write(bytes: Buffer): void {
    if (!this.#socket.writable) return;
    if (!this.#socket.write(bytes)) this.#socketFull = true;
    if (this.#socket.writableLength > MAX_UNSENT_BYTES) {
      // Later, not within the call of a stream that is about to send.
      this.#socket.destroy(new Error("the other side does not read"));
    }
  }

  #goAwayFrame(code: number): Buffer {
    const payload = Buffer.alloc(8);
    payload.writeUInt32BE(code, 4);
    return frame(FRAME.goAway, 0, 0, payload);
  }

  #fail(error: PicoletError): void {
    if (this.#state.kind === "closed") return;
    const untouched = this.#waiting.splice(0);
    const touched = [...this.#streams.values()];
    this.#become({ kind: "closed", error });
    this.#socket.destroy();
    for (const stream of [...untouched, ...touched]) {
      const processed = stream.state === "waiting" ? "no" : "maybe";
      this.#forget(stream);
      stream.handler.onFailed(error, processed);
    }
  }
}

function windowUpdate(stream: number, increment: number): Buffer {
  const payload = Buffer.allocUnsafe(4);
  payload.writeUInt32BE(increment);
  return frame(FRAME.windowUpdate, 0, stream, payload);
}

function dataFrame(stream: number, bytes: Uint8Array, offset: number, count: number, end: boolean): Buffer {
  const whole = Buffer.allocUnsafe(FRAME_HEADER_BYTES + count);
  const start = writeFrameHeader(whole, 0, count, FRAME.data, end ? FLAG.endStream : 0, stream);
  whole.set(bytes.subarray(offset, offset + count), start);
  return whole;
}
