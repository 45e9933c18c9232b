/**
 * Frames between a runner and the agent, either way: a number of bytes that follow (u32, little endian), then a number of
 * bytes of JSON (u32) with that JSON, then any number of parts, each a length (u32) with its bytes. JSON, for both ends have its
 * parser anyway: cbor-x in a runner takes 2.8 MiB. Neither end trusts the other.
 */
import { PicoletError } from "../../../protocol/errors.ts";
import type { Plain, ServiceMessage } from "../../contract/board-services.ts";

/** One call's keys and values, 1 MiB each together, and what describes them. */
export const MAX_FRAME_BYTES = 2 * 1024 * 1024 + 65_536;
const MAX_PARTS = 1100;
const LENGTH = 4;

/** What ends a connection: the other end has gone wrong. */
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
  try {
    return { value: JSON.parse(json.toString("utf8")) as Plain, bytes };
  } catch {
    throw malformed("it has no valid JSON");
  }
}

/** Puts frames together from what arrives. Holds one unfinished frame and whatever came with its end. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #held = 0;

  /** Bytes of the frame that is arriving, as it says itself; 0 before that is known. */
  get announced(): number {
    if (this.#held < LENGTH) return 0;
    return this.#front(LENGTH).readUInt32LE(0);
  }

  get isEmpty(): boolean {
    return this.#held === 0;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
  }

  /** The next whole one. @param maxBytes of what may follow a length. @throws `corrupt` */
  next(maxBytes: number): ServiceMessage | undefined {
    if (this.#held < LENGTH) return undefined;
    const { announced } = this;
    if (announced > maxBytes) throw malformed(`it has ${announced} bytes, at most ${maxBytes} are allowed`);
    if (this.#held < LENGTH + announced) return undefined;
    const all = this.#front(this.#held);
    const end = LENGTH + announced;
    this.#chunks = all.length > end ? [all.subarray(end)] : [];
    this.#held -= end;
    return decodeFrame(all.subarray(LENGTH, end));
  }

  /** The first chunk, which holds `length` bytes at least afterwards. */
  #front(length: number): Buffer {
    const [first = Buffer.alloc(0)] = this.#chunks;
    if (first.length >= length) return first;
    const whole = Buffer.concat(this.#chunks);
    this.#chunks = [whole];
    return whole;
  }
}
