/**
 * CBOR (RFC 8949) as the tunnel uses it: definite lengths, no tags, maps keyed by texts or small numbers, numbers that
 * JavaScript holds exactly. What comes from the other end is walked through once before the library sees it, so that
 * neither its extensions (records, references, dates, typed arrays) nor lengths that are not there can be used.
 */
import { Decoder } from "cbor-x/decode";
import { Encoder } from "cbor-x/encode";
import { PicoletError } from "../../errors.ts";

/** Maps stay Maps: a number and the text of that number are two keys, and `__proto__` is a key like any other. */
const OPTIONS = {
  useRecords: false,
  mapsAsObjects: false,
  useTag259ForMaps: false,
  variableMapSize: true,
  tagUint8Array: false,
};
const encoder = new Encoder(OPTIONS);
const decoder = new Decoder(OPTIONS);

/** A pod is some twelve levels deep, a status eight; the frame around them takes four. */
const MAX_DEPTH = 48;

export const encodeCbor = (value: unknown): Uint8Array => encoder.encode(value);

/**
 * Byte strings are views of `bytes`: a caller that keeps one copies it.
 * @throws `invalid` when `bytes` are not one whole item of the above
 */
export function decodeCbor(bytes: Uint8Array): unknown {
  const end = itemEnd(bytes, 0, 0);
  if (end !== bytes.length) throw malformed("bytes after its end");
  try {
    return decoder.decode(bytes);
  } catch (error) {
    throw new PicoletError("invalid", "cannot decode CBOR", { cause: error });
  }
}

const malformed = (what: string): PicoletError => new PicoletError("invalid", `cannot decode CBOR: ${what}`);

const UNSIGNED = 0;
const NEGATIVE = 1;
const BYTES = 2;
const TEXT = 3;
const ARRAY = 4;
const MAP = 5;
const TAG = 6;

/** 2^53 - 1 in the upper of two words. */
const MAX_UPPER_WORD = 0x1f_ffff;

/** Simple values and floats: false, true, null; half, single and double precision. The bytes that follow the first. */
const SIMPLE_LENGTHS: Readonly<Record<number, number>> = { 20: 0, 21: 0, 22: 0, 25: 2, 26: 4, 27: 8 };

interface Head {
  readonly major: number;
  readonly value: number;
  readonly end: number;
}

function headAt(bytes: Uint8Array, position: number): Head {
  const first = bytes[position];
  if (first === undefined) throw malformed("it is cut off");
  const major = first >> 5;
  const info = first & 31;
  if (info < 24) return { major, value: info, end: position + 1 };
  if (info > 27) throw malformed("an indefinite length");
  const end = position + 1 + 2 ** (info - 24);
  if (end > bytes.length) throw malformed("it is cut off");
  let value = 0;
  for (let at = position + 1; at < end; at += 1) {
    if (info === 27 && at === position + 5 && value > MAX_UPPER_WORD) throw malformed("a number above 2^53");
    value = value * 256 + (bytes[at] ?? 0);
  }
  return { major, value, end };
}

/** Where the item at `position` ends. */
function itemEnd(bytes: Uint8Array, position: number, depth: number): number {
  if (depth > MAX_DEPTH) throw malformed(`more than ${MAX_DEPTH} levels`);
  const first = bytes[position] ?? 0;
  if (first >> 5 === 7) return simpleEnd(bytes, position, first & 31);
  const { major, value, end } = headAt(bytes, position);
  switch (major) {
    case UNSIGNED:
    case NEGATIVE:
      return end;
    case BYTES:
    case TEXT:
      if (value > bytes.length - end) throw malformed("it is cut off");
      return end + value;
    case ARRAY:
      return itemsEnd(bytes, end, value, depth, false);
    case MAP:
      return itemsEnd(bytes, end, value * 2, depth, true);
    default:
      throw malformed(major === TAG ? "a tag" : "an unknown type");
  }
}

function itemsEnd(bytes: Uint8Array, position: number, count: number, depth: number, isMap: boolean): number {
  // Each item takes a byte at least: a count that cannot be true is found before anything is allocated for it.
  if (count > bytes.length - position) throw malformed("it is cut off");
  let end = position;
  for (let index = 0; index < count; index += 1) {
    if (isMap && index % 2 === 0) {
      const major = (bytes[end] ?? 0) >> 5;
      if (major !== TEXT && major !== UNSIGNED) throw malformed("a key that is neither text nor number");
    }
    end = itemEnd(bytes, end, depth + 1);
  }
  return end;
}

function simpleEnd(bytes: Uint8Array, position: number, info: number): number {
  const length = SIMPLE_LENGTHS[info];
  if (length === undefined) throw malformed("an unknown simple value");
  if (position + 1 + length > bytes.length) throw malformed("it is cut off");
  return position + 1 + length;
}
