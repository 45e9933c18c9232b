/**
 * Frames between a runner and the agent, either way: a number of bytes that follow (u32, little endian), then a number
 * of bytes of JSON (u32) with that JSON, then any number of parts, each a length (u32) with its bytes. JSON, for both
 * ends have its parser anyway: cbor-x in a runner takes 2.8 MiB. Neither end trusts the other.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Plain, ServiceMessage } from "@picolet/runtime-contract/board-services.ts";

/** Bounds a frame: the keys and values of one call, 1 MiB each together, and their description. */
export const MAX_FRAME_BYTES = 2 * MEBIBYTE + 65_536;
const MAX_PARTS = 1100;
/**
 * Bounds what is parsed without a check of its depth. 2 MiB have room for a million nested lists, whose parsing takes a
 * second and 76 MiB.
 */
const MAX_UNSEEN_BYTES = 16_384;
/** Lists and objects of one frame; a thousand points of telemetry have three lists each. */
const MAX_CONTAINERS = 8192;
const LENGTH = 4;

/** The other end breaks the protocol, and the connection ends. */
const malformed = (what: string): PicoletError => new PicoletError("corrupt", `cannot read the frame: ${what}`);

/** @throws `resource_exhausted` for one that is too large to be sent. */
export function encodeFrame({ value, bytes }: ServiceMessage): Uint8Array {
  const json = Buffer.from(JSON.stringify(value));
  let total = LENGTH + json.length;
  for (const part of bytes) total += LENGTH + part.length;
  if (total > MAX_FRAME_BYTES || bytes.length > MAX_PARTS) {
    throw new PicoletError("resource_exhausted", `cannot send ${total} bytes: at most ${MAX_FRAME_BYTES} go at once`);
  }
  const frame = Buffer.allocUnsafeSlow(LENGTH + total);
  let offset = frame.writeUInt32LE(total, 0);
  for (const part of [json, ...bytes]) {
    offset = frame.writeUInt32LE(part.length, offset);
    frame.set(part, offset);
    offset += part.length;
  }
  return frame;
}

/** @param frame without its first length. Its parts are views of it. @throws `corrupt` */
export function decodeFrame(frame: Buffer): ServiceMessage {
  const parts: Buffer[] = [];
  for (let offset = 0; offset < frame.length; ) {
    if (offset + LENGTH > frame.length) throw malformed("it ends within a length");
    const start = offset + LENGTH;
    offset = start + frame.readUInt32LE(offset);
    if (offset > frame.length) throw malformed("a part is longer than the frame");
    if (parts.length > MAX_PARTS) throw malformed("it has too many parts");
    parts.push(frame.subarray(start, offset));
  }
  const [json, ...bytes] = parts;
  if (json === undefined) throw malformed("it is empty");
  if (json.length > MAX_UNSEEN_BYTES && hasMoreContainers(json, MAX_CONTAINERS)) {
    throw malformed(`it has more than ${MAX_CONTAINERS} lists and objects`);
  }
  try {
    return { value: JSON.parse(json.toString("utf8")) as Plain, bytes };
  } catch {
    throw malformed("it has no valid JSON");
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LIST = 0x5b;
const OBJECT = 0x7b;

/** @param json may be no JSON at all */
function hasMoreContainers(json: Uint8Array, most: number): boolean {
  let [containers, isText] = [0, false];
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) isText = !isText;
    else if (isText) at += byte === BACKSLASH ? 1 : 0;
    else if (byte === LIST || byte === OBJECT) containers += 1;
  }
  return containers > most;
}

/** Puts frames together from pieces of any size. Holds one unfinished frame, and the bytes that came with its end. */
export class FrameReader {
  /** The first `#held` of them have arrived. */
  #bytes: Buffer = Buffer.alloc(0);
  /** True when the buffer is this reader's own. The first piece is used without a copy. */
  #isOwn = false;
  #held = 0;

  /** Bytes of the frame that is arriving, by its own length field; 0 before that is read. */
  get announced(): number {
    return this.#held < LENGTH ? 0 : this.#bytes.readUInt32LE(0);
  }

  get isEmpty(): boolean {
    return this.#held === 0;
  }

  push(chunk: Buffer): void {
    if (this.#held === 0) this.#hold(chunk);
    else this.#append(chunk);
  }

  /**
   * @param maxBytes bounds the rest of a frame behind its length
   * @returns the next complete frame
   * @throws `corrupt`
   */
  next(maxBytes: number): ServiceMessage | undefined {
    if (this.#held < LENGTH) return undefined;
    const { announced } = this;
    if (announced > maxBytes) throw malformed(`it has ${announced} bytes, at most ${maxBytes} are allowed`);
    const end = LENGTH + announced;
    if (this.#held < end) return undefined;
    const all = this.#bytes.subarray(0, this.#held);
    this.#hold(all.subarray(end));
    return decodeFrame(all.subarray(LENGTH, end));
  }

  #hold(bytes: Buffer): void {
    this.#bytes = bytes;
    this.#held = bytes.length;
    this.#isOwn = false;
  }

  /** Each byte by itself would take some hundred. */
  #append(chunk: Buffer): void {
    const needed = this.#held + chunk.length;
    if (!this.#isOwn || needed > this.#bytes.length) {
      const room = Math.max(needed, Math.min(2 * this.#held, LENGTH + this.announced));
      const grown = Buffer.allocUnsafeSlow(room);
      this.#bytes.copy(grown, 0, 0, this.#held);
      this.#bytes = grown;
      this.#isOwn = true;
    }
    this.#bytes.set(chunk, this.#held);
    this.#held = needed;
  }
}
