/**
 * Reads the primitive encodings of WebAssembly binaries. Every method throws `invalid` past the end or on a wrong
 * encoding.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";

/** The longest u32 in LEB128, in bytes. */
const MAX_U32_LEB_LENGTH = 5;
/** The longest u64 in LEB128, in bytes. */
const MAX_U64_LEB_LENGTH = 10;

export class ByteReader {
  readonly #bytes: Uint8Array;
  #offset: number;

  constructor(bytes: Uint8Array, offset = 0) {
    this.#bytes = bytes;
    this.#offset = offset;
  }

  get offset(): number {
    return this.#offset;
  }

  get atEnd(): boolean {
    return this.#offset >= this.#bytes.length;
  }

  byte(): number {
    const value = this.#bytes[this.#offset];
    if (value === undefined) throw malformed("it ends too early");
    this.#offset += 1;
    return value;
  }

  /** The byte that is next; undefined: there is none. */
  peek(): number | undefined {
    return this.#bytes[this.#offset];
  }

  skip(length: number): void {
    if (length > this.#bytes.length - this.#offset) throw malformed("it ends too early");
    this.#offset += length;
  }

  take(length: number): Uint8Array {
    const start = this.#offset;
    this.skip(length);
    return this.#bytes.subarray(start, start + length);
  }

  u32(): number {
    let value = 0;
    for (let index = 0; index < MAX_U32_LEB_LENGTH; index += 1) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** (7 * index);
      if ((byte & 0x80) === 0) {
        if (value > 0xffff_ffff) break;
        return value;
      }
    }
    throw malformed("a number is too long");
  }

  /** Callers use a u64 only as a size. A value that does not fit a double is rounded. */
  u64(): number {
    let value = 0;
    for (let index = 0; index < MAX_U64_LEB_LENGTH; index += 1) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** (7 * index);
      if ((byte & 0x80) === 0) return value;
    }
    throw malformed("a number is too long");
  }

  name(maxLength: number): string {
    const length = this.u32();
    if (length > maxLength) throw malformed(`a name has more than ${maxLength} bytes`);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(this.take(length));
    } catch (error) {
      if (error instanceof PicoletError) throw error;
      throw malformed("a name is not UTF-8");
    }
  }
}

export const malformed = (why: string): PicoletError => new PicoletError("invalid", `malformed WebAssembly: ${why}`);

/** Always 5 bytes long: the binary format allows the padding, so that a number can be overwritten in place. */
export function paddedU32(value: number): Uint8Array {
  const bytes = new Uint8Array(MAX_U32_LEB_LENGTH);
  let rest = value;
  for (let index = 0; index < MAX_U32_LEB_LENGTH; index += 1) {
    const low = rest % 128;
    rest = (rest - low) / 128;
    bytes[index] = index === MAX_U32_LEB_LENGTH - 1 ? low : low | 0x80;
  }
  return bytes;
}
