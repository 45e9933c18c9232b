/** The Huffman code of HPACK, RFC 7541 section 5.2 and appendix B. Decoding only: we send plain strings. */
import { PicoletError } from "@picolet/protocol/errors.ts";

/** Bits of the code of each byte value and, last, of EOS. The code is canonical, so the lengths are all of it. */
const CODE_LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
  28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6,
  5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23,
  22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22,
  23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26,
  20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27,
  27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
  27, 27, 27, 26, 30,
];
const EOS = 256;
const SHORTEST_CODE_BITS = 5;
const LONGEST_CODE_BITS = 30;

interface DecodeTable {
  /** The first code of each length. */
  readonly firstCode: readonly number[];
  /** The number of codes of each length. */
  readonly count: readonly number[];
  /** The index in `symbols` of the first code of each length. */
  readonly offset: readonly number[];
  /** Sorted by code length and then by code. */
  readonly symbols: Uint16Array;
}

function makeDecodeTable(): DecodeTable {
  const firstCode: number[] = [];
  const count: number[] = [];
  const offset: number[] = [];
  const symbols = new Uint16Array(CODE_LENGTHS.length);
  let code = 0;
  let filled = 0;
  for (let bits = 0; bits <= LONGEST_CODE_BITS; bits += 1) {
    code *= 2;
    firstCode[bits] = code;
    offset[bits] = filled;
    for (const [symbol, length] of CODE_LENGTHS.entries()) {
      if (length !== bits) continue;
      symbols[filled] = symbol;
      filled += 1;
    }
    count[bits] = filled - (offset[bits] ?? 0);
    code += count[bits] ?? 0;
  }
  return { firstCode, count, offset, symbols };
}

const TABLE = makeDecodeTable();

const corrupt = (what: string): PicoletError => new PicoletError("corrupt", `cannot decode a header: ${what}`);

/**
 * @returns one character for each byte (latin1), at most 8/5 of the input's length.
 * @throws `corrupt` for a code that is none, EOS, or padding other than up to 7 one bits.
 */
export function decodeHuffman(bytes: Uint8Array, start: number, end: number): string {
  let text = "";
  let code = 0;
  let bits = 0;
  for (let index = start; index < end; index += 1) {
    const byte = bytes[index] ?? 0;
    for (let bit = 7; bit >= 0; bit -= 1) {
      code = code * 2 + ((byte >> bit) & 1);
      bits += 1;
      const symbol = symbolOf(code, bits);
      if (symbol === undefined) continue;
      if (symbol === EOS) throw corrupt("a string has the end-of-string code");
      text += String.fromCharCode(symbol);
      code = 0;
      bits = 0;
    }
  }
  if (bits > 7 || code !== 2 ** bits - 1) throw corrupt("a string's padding is wrong");
  return text;
}

/** `undefined` while the code needs more bits. Every sequence of 30 bits begins with a code, so it ends. */
function symbolOf(code: number, bits: number): number | undefined {
  if (bits < SHORTEST_CODE_BITS) return undefined;
  const index = code - (TABLE.firstCode[bits] ?? 0);
  if (index < 0 || index >= (TABLE.count[bits] ?? 0)) return undefined;
  return TABLE.symbols[(TABLE.offset[bits] ?? 0) + index];
}
