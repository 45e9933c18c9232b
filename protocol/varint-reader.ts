import type { PicoletError } from "./errors.ts";

/** 64 bits in groups of 7. */
export const MAX_VARINT_BYTES = 10;

/** Reads protobuf's varints (https://protobuf.dev/programming-guides/encoding/#varints) from part of a buffer. */
export abstract class VarintReader {
  readonly bytes: Buffer;
  position: number;
  end: number;
  /** The lower half of the last `varint64`, unsigned. */
  low = 0;
  /** The upper half of the last `varint64`, unsigned. */
  high = 0;

  constructor(bytes: Buffer, start: number, end: number) {
    this.bytes = bytes;
    this.position = start;
    this.end = end;
  }

  /** Makes the error for bytes that are not a message. */
  protected abstract malformed(why: string): PicoletError;

  byte(): number {
    if (this.position >= this.end) throw this.malformed("it ends within a field");
    const value = this.bytes[this.position] ?? 0;
    this.position += 1;
    return value;
  }

  /** @returns the low 32 bits; protobuf drops the others of narrower types */
  varint32(): number {
    let value = 0;
    for (let count = 0; count < MAX_VARINT_BYTES; count += 1) {
      const byte = this.byte();
      if (count < 5) value |= (byte & 0x7f) << (count * 7);
      if (byte < 0x80) return value >>> 0;
    }
    throw this.malformed("a varint is longer than 10 bytes");
  }

  /** Reads 64 bits into `low` and `high`, which avoids a bigint. */
  varint64(): void {
    let low = 0;
    let high = 0;
    for (let count = 0; count < MAX_VARINT_BYTES; count += 1) {
      const byte = this.byte();
      const bits = byte & 0x7f;
      if (count < 4) low |= bits << (count * 7);
      else if (count === 4) {
        low |= bits << 28;
        high |= bits >>> 4;
      } else high |= bits << (count * 7 - 32);
      if (byte < 0x80) {
        this.low = low >>> 0;
        this.high = high >>> 0;
        return;
      }
    }
    throw this.malformed("a varint is longer than 10 bytes");
  }
}
