/** Frames of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00 with the connection's flow control of 3.1). Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

const VERSION = 3;
const HEADER_BYTES = 8;
/** Bounds a control frame's payload: header blocks have a few hundred bytes. A longer one ends the connection. */
export const MAX_CONTROL_BYTES = 16 * KIBIBYTE;
/** Payload of one data frame of ours; longer ones would hold up other streams. */
export const MAX_DATA_BYTES = 32 * KIBIBYTE;
const MAX_SETTINGS = 32;

const TYPE = { synStream: 1, synReply: 2, rstStream: 3, settings: 4, ping: 6, goAway: 7, headers: 8, windowUpdate: 9 };
const FLAG_FIN = 1;
const SETTING_INITIAL_WINDOW = 7;
const ID_MASK = 0x7fff_ffff;

export const RESET = {
  protocolError: 1,
  invalidStream: 2,
  refusedStream: 3,
  cancel: 5,
  internalError: 6,
  flowControlError: 7,
  streamInUse: 8,
} as const;

export type SpdyFrame =
  | { readonly kind: "synStream"; readonly id: number; readonly fin: boolean; readonly block: Uint8Array }
  | { readonly kind: "synReply" | "headers"; readonly id: number; readonly fin: boolean; readonly block: Uint8Array }
  | { readonly kind: "rstStream"; readonly id: number; readonly status: number }
  /** Undefined: it says nothing of the window. */
  | { readonly kind: "settings"; readonly initialWindow: number | undefined }
  | { readonly kind: "ping"; readonly id: number }
  | { readonly kind: "goAway"; readonly lastGoodId: number }
  /** `id` 0 is the connection. */
  | { readonly kind: "windowUpdate"; readonly id: number; readonly delta: number }
  /** A piece of a data frame, as it came; `fin` only with the last one. Shares memory with what was pushed. */
  | { readonly kind: "data"; readonly id: number; readonly fin: boolean; readonly bytes: Uint8Array };

const corrupt = (message: string): PicoletError => new PicoletError("corrupt", `this is no SPDY/3.1: ${message}`);

function control(type: number, flags: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  frame.writeUInt16BE(0x8000 | VERSION, 0);
  frame.writeUInt16BE(type, 2);
  frame.writeUInt32BE(payload.length, 4);
  frame[4] = flags;
  frame.set(payload, HEADER_BYTES);
  return frame;
}

function words(...values: readonly number[]): Buffer {
  const bytes = Buffer.allocUnsafe(values.length * 4);
  for (const [index, value] of values.entries()) bytes.writeUInt32BE(value, index * 4);
  return bytes;
}

export const synStreamFrame = (id: number, block: Uint8Array): Buffer =>
  control(TYPE.synStream, 0, Buffer.concat([words(id, 0), Buffer.alloc(2), block]));
export const synReplyFrame = (id: number, block: Uint8Array): Buffer =>
  control(TYPE.synReply, 0, Buffer.concat([words(id), block]));
export const rstStreamFrame = (id: number, status: number): Buffer => control(TYPE.rstStream, 0, words(id, status));
export const pingFrame = (id: number): Buffer => control(TYPE.ping, 0, words(id));
export const goAwayFrame = (lastGoodId: number): Buffer => control(TYPE.goAway, 0, words(lastGoodId, 0));
export const windowUpdateFrame = (id: number, delta: number): Buffer => control(TYPE.windowUpdate, 0, words(id, delta));

/** @param bytes at most MAX_DATA_BYTES */
export function dataFrame(id: number, fin: boolean, bytes: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + bytes.length);
  frame.writeUInt32BE(id, 0);
  frame.writeUInt32BE(bytes.length, 4);
  frame[4] = fin ? FLAG_FIN : 0;
  frame.set(bytes, HEADER_BYTES);
  return frame;
}

interface DataFrame {
  readonly id: number;
  readonly fin: boolean;
  left: number;
}

/** Takes a stream of frames that was cut anywhere apart. Keeps at most one control frame. */
export class SpdyFrameReader {
  #held = Buffer.alloc(0);
  #data: DataFrame | undefined;

  /** @throws `corrupt` for what is no SPDY/3.1, `resource_exhausted` for a control frame above MAX_CONTROL_BYTES. */
  *push(bytes: Uint8Array): Generator<SpdyFrame> {
    let rest = this.#held.length === 0 ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length) : this.#join(bytes);
    this.#held = Buffer.alloc(0);
    while (rest.length > 0) {
      if (this.#data !== undefined) {
        const piece = rest.subarray(0, this.#data.left);
        rest = rest.subarray(piece.length);
        yield* this.#piece(this.#data, piece);
        continue;
      }
      if (rest.length < HEADER_BYTES) break;
      const length = rest.readUIntBE(5, 3);
      if ((rest[0] ?? 0) < 0x80) {
        this.#data = { id: rest.readUInt32BE(0), fin: ((rest[4] ?? 0) & FLAG_FIN) !== 0, left: length };
        rest = rest.subarray(HEADER_BYTES);
        if (length === 0) yield* this.#piece(this.#data, rest.subarray(0, 0));
        continue;
      }
      if (length > MAX_CONTROL_BYTES) {
        throw new PicoletError(
          "resource_exhausted",
          `a SPDY frame of ${length} bytes is longer than ${MAX_CONTROL_BYTES}`,
        );
      }
      if (rest.length < HEADER_BYTES + length) break;
      const frame = controlFrame(rest, rest.subarray(HEADER_BYTES, HEADER_BYTES + length));
      rest = rest.subarray(HEADER_BYTES + length);
      if (frame !== undefined) yield frame;
    }
    // A copy: what was pushed may be used again.
    this.#held = Buffer.from(rest);
  }

  #join(bytes: Uint8Array): Buffer {
    return Buffer.concat([this.#held, bytes]);
  }

  *#piece(data: DataFrame, bytes: Uint8Array): Generator<SpdyFrame> {
    data.left -= bytes.length;
    const last = data.left === 0;
    if (last) this.#data = undefined;
    if (bytes.length > 0 || (last && data.fin)) yield { kind: "data", id: data.id, fin: last && data.fin, bytes };
  }
}

/** Undefined: of a type that says nothing to us. */
function controlFrame(header: Buffer, payload: Buffer): SpdyFrame | undefined {
  const version = header.readUInt16BE(0) & 0x7fff;
  if (version !== VERSION) throw corrupt(`a frame has version ${version}`);
  const type = header.readUInt16BE(2);
  const fin = ((header[4] ?? 0) & FLAG_FIN) !== 0;
  const word = (index: number): number => {
    if (payload.length < index * 4 + 4) throw corrupt(`a frame of type ${type} ends early`);
    return payload.readUInt32BE(index * 4);
  };
  const id = (): number => word(0) & ID_MASK;
  // Frames are kept beyond the call while the headers before them are unpacked.
  const block = (from: number): Uint8Array => Uint8Array.prototype.slice.call(payload, from);
  switch (type) {
    case TYPE.synStream:
      word(1);
      if (payload.length < 10) throw corrupt("a new stream's frame ends early");
      return { kind: "synStream", id: id(), fin, block: block(10) };
    case TYPE.synReply:
      return { kind: "synReply", id: id(), fin, block: block(4) };
    case TYPE.headers:
      return { kind: "headers", id: id(), fin, block: block(4) };
    case TYPE.rstStream:
      return { kind: "rstStream", id: id(), status: word(1) };
    case TYPE.settings:
      return { kind: "settings", initialWindow: initialWindow(payload, word) };
    case TYPE.ping:
      return { kind: "ping", id: word(0) };
    case TYPE.goAway:
      return { kind: "goAway", lastGoodId: id() };
    case TYPE.windowUpdate:
      return { kind: "windowUpdate", id: id(), delta: word(1) & ID_MASK };
    default:
      return undefined;
  }
}

function initialWindow(payload: Buffer, word: (index: number) => number): number | undefined {
  const count = word(0);
  if (count > MAX_SETTINGS || payload.length < 4 + count * 8) throw corrupt("a settings frame is not what it says");
  let window: number | undefined;
  for (let index = 0; index < count; index += 1) {
    if ((word(1 + index * 2) & 0xff_ffff) === SETTING_INITIAL_WINDOW) window = word(2 + index * 2) & ID_MASK;
  }
  return window;
}
