/** Frames of HTTP/2 (RFC 9113 section 4 and 6), cut out of a byte stream with no allocation per read. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

export const FRAME_HEADER_BYTES = 9;
/** The protocol's smallest maximum. We never announce more, so a longer frame is an error. */
export const MAX_FRAME_BYTES = 16_384;
/**
 * Bounds one header block before decompression, HEADERS and CONTINUATION together. Compressed it is never longer than
 * its list (MAX_HEADER_LIST_BYTES), but for a little overhead. More fails the connection.
 */
const MAX_HEADER_BLOCK_BYTES = 80 * KIBIBYTE;
/** Empty CONTINUATION frames would otherwise go on for ever (CVE-2024-27316 and its kin). */
const MAX_CONTINUATIONS = 16;

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  resetStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

export const FLAG = { ack: 0x1, endStream: 0x1, endHeaders: 0x4, padded: 0x8, priority: 0x20 } as const;

/** RFC 9113 section 7. */
export const ERROR_CODE = {
  noError: 0x0,
  protocolError: 0x1,
  internalError: 0x2,
  flowControlError: 0x3,
  frameSizeError: 0x6,
  refusedStream: 0x7,
  cancel: 0x8,
  compressionError: 0x9,
  enhanceYourCalm: 0xb,
} as const;

export const SETTING = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
} as const;

/** The other side broke the protocol in a way that ends the connection. */
export class ProtocolViolation extends PicoletError {
  readonly errorCode: number;

  constructor(errorCode: number, what: string) {
    super("corrupt", `cannot go on with the connection: ${what}`);
    this.errorCode = errorCode;
  }
}

/** Buffers handed over are valid during the call only. */
export interface FrameHandler {
  /** @param flowBytes what the piece takes from the flow-control windows, padding included. */
  onData(stream: number, piece: Buffer, flowBytes: number): void;
  /** After the last piece of a DATA frame that ends its stream. */
  onDataEnd(stream: number): void;
  /** A whole header block. */
  onHeaders(stream: number, block: Buffer, endStream: boolean): void;
  onResetStream(stream: number, errorCode: number): void;
  onSettings(payload: Buffer): void;
  onSettingsAck(): void;
  onPing(payload: Buffer): void;
  onGoAway(lastStream: number, errorCode: number, debug: string): void;
  /** @param stream 0 for the connection. */
  onWindowUpdate(stream: number, increment: number): void;
}

/** Bounds the part of a GOAWAY's debug text that is kept for the message. */
const MAX_DEBUG_TEXT_BYTES = 256;

/** DATA is passed on piece by piece as it comes; everything else is put together first, in buffers made once. */
export class FrameReader {
  readonly #handler: FrameHandler;
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES);
  #headerFilled = 0;
  #type = 0;
  #flags = 0;
  #stream = 0;
  /** Payload bytes of the current frame that have not been seen. */
  #remaining = 0;
  /** DATA only: padding at its end, -1 until the pad length has been read. */
  #padding = 0;
  /** Payload of a frame that came in several reads; made when first needed. */
  #assembly: Buffer | undefined;
  #assembled = 0;
  /** Header block that goes on in CONTINUATION frames. */
  #block: { readonly stream: number; readonly endStream: boolean; readonly parts: Buffer[]; bytes: number } | undefined;

  constructor(handler: FrameHandler) {
    this.#handler = handler;
  }

  /**
   * @param chunk valid during the call only.
   * @throws ProtocolViolation; the reader is of no use afterwards. What the handler throws passes through.
   */
  feed(chunk: Buffer): void {
    let position = 0;
    while (position < chunk.length) {
      if (this.#headerFilled < FRAME_HEADER_BYTES) {
        const taken = Math.min(FRAME_HEADER_BYTES - this.#headerFilled, chunk.length - position);
        chunk.copy(this.#header, this.#headerFilled, position, position + taken);
        this.#headerFilled += taken;
        position += taken;
        if (this.#headerFilled < FRAME_HEADER_BYTES) return;
        this.#begin();
        if (this.#remaining > 0) continue;
      }
      const taken = Math.min(this.#remaining, chunk.length - position);
      this.#remaining -= taken;
      if (this.#type === FRAME.data) this.#data(chunk, position, position + taken);
      else this.#assemble(chunk, position, position + taken);
      position += taken;
      if (this.#remaining === 0) this.#headerFilled = 0;
    }
  }

  #begin(): void {
    const header = this.#header;
    this.#remaining = header.readUIntBE(0, 3);
    this.#type = header[3] ?? 0;
    this.#flags = header[4] ?? 0;
    this.#stream = header.readUInt32BE(5) & 0x7fff_ffff;
    this.#assembled = 0;
    this.#padding = this.#has(FLAG.padded) ? -1 : 0;
    if (this.#remaining > MAX_FRAME_BYTES) violate(ERROR_CODE.frameSizeError, "a frame is too long");
    if (this.#block !== undefined && (this.#type !== FRAME.continuation || this.#stream !== this.#block.stream)) {
      violate(ERROR_CODE.protocolError, "a header block is interrupted");
    }
    if (this.#type === FRAME.data) {
      this.#needStream();
      if (this.#padding < 0 && this.#remaining === 0) violate(ERROR_CODE.protocolError, "a frame lacks its padding");
    }
  }

  #has(flag: number): boolean {
    return (this.#flags & flag) !== 0;
  }

  #data(chunk: Buffer, start: number, end: number): void {
    let from = start;
    if (this.#padding < 0 && from < end) {
      this.#padding = chunk[from] ?? 0;
      from += 1;
      if (this.#padding > this.#remaining + (end - from)) violate(ERROR_CODE.protocolError, "padding is too long");
    }
    const padding = Math.max(0, this.#padding - this.#remaining);
    const to = Math.max(from, end - padding);
    if (end > start) this.#handler.onData(this.#stream, chunk.subarray(from, to), end - start);
    if (this.#remaining === 0 && this.#has(FLAG.endStream)) this.#handler.onDataEnd(this.#stream);
  }

  #assemble(chunk: Buffer, start: number, end: number): void {
    if (this.#remaining === 0 && this.#assembled === 0) {
      this.#dispatch(chunk.subarray(start, end));
      return;
    }
    this.#assembly ??= Buffer.alloc(MAX_FRAME_BYTES);
    chunk.copy(this.#assembly, this.#assembled, start, end);
    this.#assembled += end - start;
    if (this.#remaining === 0) this.#dispatch(this.#assembly.subarray(0, this.#assembled));
  }

  #dispatch(payload: Buffer): void {
    switch (this.#type) {
      case FRAME.headers:
        this.#headers(payload);
        break;
      case FRAME.continuation:
        this.#continuation(payload);
        break;
      case FRAME.resetStream:
        this.#needStream();
        needLength(payload, 4);
        this.#handler.onResetStream(this.#stream, payload.readUInt32BE(0));
        break;
      case FRAME.settings:
        this.#settings(payload);
        break;
      case FRAME.ping:
        this.#needNoStream();
        needLength(payload, 8);
        if (!this.#has(FLAG.ack)) this.#handler.onPing(payload);
        break;
      case FRAME.goAway:
        this.#goAway(payload);
        break;
      case FRAME.windowUpdate:
        needLength(payload, 4);
        this.#handler.onWindowUpdate(this.#stream, payload.readUInt32BE(0) & 0x7fff_ffff);
        break;
      case FRAME.priority:
        this.#needStream();
        break;
      case FRAME.pushPromise:
        throw new ProtocolViolation(ERROR_CODE.protocolError, "a push that we have forbidden");
      default: // Unknown frames are ignored (section 4.1).
    }
  }

  #headers(payload: Buffer): void {
    this.#needStream();
    let start = 0;
    let end = payload.length;
    if (this.#has(FLAG.padded)) {
      end -= payload[0] ?? 0;
      start = 1;
    }
    if (this.#has(FLAG.priority)) start += 5;
    if (start > end) violate(ERROR_CODE.protocolError, "a frame lacks its padding or priority");
    const endStream = this.#has(FLAG.endStream);
    if (this.#has(FLAG.endHeaders)) this.#handler.onHeaders(this.#stream, payload.subarray(start, end), endStream);
    else {
      const part = Buffer.from(payload.subarray(start, end));
      this.#block = { stream: this.#stream, endStream, parts: [part], bytes: part.length };
    }
  }

  #continuation(payload: Buffer): void {
    const block = this.#block;
    if (block === undefined) violate(ERROR_CODE.protocolError, "a continuation of nothing");
    block.bytes += payload.length;
    block.parts.push(Buffer.from(payload));
    if (block.bytes > MAX_HEADER_BLOCK_BYTES || block.parts.length > MAX_CONTINUATIONS + 1) {
      violate(ERROR_CODE.enhanceYourCalm, "a header block without end");
    }
    if (!this.#has(FLAG.endHeaders)) return;
    this.#block = undefined;
    this.#handler.onHeaders(block.stream, Buffer.concat(block.parts), block.endStream);
  }

  #settings(payload: Buffer): void {
    this.#needNoStream();
    if (this.#has(FLAG.ack)) {
      needLength(payload, 0);
      this.#handler.onSettingsAck();
    } else if (payload.length % 6 !== 0) violate(ERROR_CODE.frameSizeError, "settings of a wrong length");
    else this.#handler.onSettings(payload);
  }

  #goAway(payload: Buffer): void {
    this.#needNoStream();
    if (payload.length < 8) violate(ERROR_CODE.frameSizeError, "a frame of a wrong length");
    const debug = payload.toString("latin1", 8, Math.min(payload.length, 8 + MAX_DEBUG_TEXT_BYTES));
    this.#handler.onGoAway(payload.readUInt32BE(0) & 0x7fff_ffff, payload.readUInt32BE(4), debug);
  }

  #needStream(): void {
    if (this.#stream === 0) violate(ERROR_CODE.protocolError, "a frame that belongs to a stream has none");
  }

  #needNoStream(): void {
    if (this.#stream !== 0) violate(ERROR_CODE.protocolError, "a frame that belongs to no stream has one");
  }
}

function needLength(payload: Buffer, length: number): void {
  if (payload.length !== length) violate(ERROR_CODE.frameSizeError, "a frame of a wrong length");
}

function violate(errorCode: number, what: string): never {
  throw new ProtocolViolation(errorCode, what);
}

/** Writes a frame's 9 bytes of header at `offset`; returns the offset after them. */
export function writeFrameHeader(
  into: Buffer,
  offset: number,
  length: number,
  type: number,
  flags: number,
  stream: number,
): number {
  into.writeUIntBE(length, offset, 3);
  into[offset + 3] = type;
  into[offset + 4] = flags;
  return into.writeUInt32BE(stream, offset + 5);
}

export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const whole = Buffer.allocUnsafe(FRAME_HEADER_BYTES + payload.length);
  whole.set(payload, writeFrameHeader(whole, 0, payload.length, type, flags, stream));
  return whole;
}
