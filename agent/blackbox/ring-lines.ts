/**
 * The lines of the ring: `CRC32 JSON\n`, the checksum as 8 hexadecimal digits over the JSON's bytes. A line that was cut
 * or overwritten in part has a wrong checksum, so that it is found wherever it is, and costs no other line. Pure.
 */
import { crc32 } from "node:zlib";

const NEWLINE = 0x0a;
const SPACE = 0x20;
const CRC_DIGITS = 8;
/** Bounds a record; the longest has two messages of 240 characters. */
export const MAX_LINE_BYTES = 2048;
/** The first field of a record, which orders it. */
const SEQUENCE = /^\{"n":(\d{1,15})[,}]/;

/** @returns the line of a record; `undefined` when it is longer than a line may be */
export function encodeLine(record: { readonly n: number }): Buffer | undefined {
  const json = Buffer.from(JSON.stringify(record));
  if (json.length + CRC_DIGITS + 2 > MAX_LINE_BYTES) return undefined;
  const head = Buffer.from(`${crc32(json).toString(16).padStart(CRC_DIGITS, "0")} `);
  return Buffer.concat([head, json, Buffer.of(NEWLINE)]);
}

export interface RingLine {
  readonly sequence: number;
  readonly json: string;
  /** The offset behind its line end. */
  readonly end: number;
}

/** Finds lines in the chunks of a file. Whatever lies between them is skipped. */
export class LineScanner {
  #rest: Buffer = Buffer.alloc(0);
  #offset = 0;

  /** @param chunk the bytes that follow the last chunk; it is not kept */
  *lines(chunk: Buffer): Generator<RingLine> {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(NEWLINE, from);
      if (end < 0) break;
      const line = lineOf(bytes.subarray(from, end), this.#offset + end + 1);
      if (line !== undefined) yield line;
      from = end + 1;
    }
    // Zeros and garbage without a line end are no line, however many there are.
    const start = Math.max(from, bytes.length - MAX_LINE_BYTES);
    this.#rest = Buffer.from(bytes.subarray(start));
    this.#offset += start;
  }
}

function lineOf(bytes: Buffer, end: number): RingLine | undefined {
  // What precedes a line in a file that was never full are zeros.
  const start = bytes.lastIndexOf(0) + 1;
  const line = bytes.subarray(start);
  if (line.length <= CRC_DIGITS + 1 || line.length >= MAX_LINE_BYTES || line[CRC_DIGITS] !== SPACE) return undefined;
  const json = line.subarray(CRC_DIGITS + 1);
  if (Number.parseInt(line.toString("latin1", 0, CRC_DIGITS), 16) !== crc32(json)) return undefined;
  const text = json.toString();
  const sequence = Number(SEQUENCE.exec(text)?.[1] ?? Number.NaN);
  return Number.isNaN(sequence) ? undefined : { sequence, json: text, end };
}
