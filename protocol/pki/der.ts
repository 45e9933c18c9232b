/**
 * DER (X.690), as much of it as certificates and requests for them need: written from values, read strictly. What is
 * not the one proper encoding of a value is refused, so that what has been read, checked and written again is what was
 * meant.
 */
import { PicoletError } from "../errors.ts";

export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** `[number]` with content of its own, as EXPLICIT tags and constructed IMPLICIT ones have it. */
export const contextConstructed = (number: number): number => 0xa0 | number;
export const contextPrimitive = (number: number): number => 0x80 | number;

/** Certificates have 2 to 4 KiB; with four bytes a length reaches far beyond any input that gets here. */
const MAX_LENGTH_BYTES = 4;
/** One item of what is read: a view into the input, nothing is copied. */
export interface DerItem {
  readonly tag: number;
  readonly content: Uint8Array;
  /** The element with tag and length. */
  readonly whole: Uint8Array;
}

export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const part of parts) {
    all.set(part, offset);
    offset += part.length;
  }
  return all;
}

export const equalBytes = (left: Uint8Array, right: Uint8Array): boolean =>
  left.length === right.length && left.every((byte, index) => byte === right[index]);

export function der(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const head = [tag];
  if (length < 0x80) head.push(length);
  else {
    const bytes: number[] = [];
    for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
    head.push(0x80 | bytes.length, ...bytes);
  }
  return concatBytes([Uint8Array.from(head), ...parts]);
}

export const derSequence = (...parts: readonly Uint8Array[]): Uint8Array => der(TAG.sequence, ...parts);
export const derSet = (...parts: readonly Uint8Array[]): Uint8Array => der(TAG.set, ...parts);
export const derUtf8 = (text: string): Uint8Array => der(TAG.utf8String, new TextEncoder().encode(text));
export const derTrue = (): Uint8Array => der(TAG.boolean, Uint8Array.of(0xff));

/** @param bytes big-endian, not negative, of any length */
export function derInteger(bytes: Uint8Array): Uint8Array {
  const first = bytes.findIndex((byte) => byte !== 0);
  const digits = first === -1 ? Uint8Array.of(0) : bytes.subarray(first);
  return der(TAG.integer, (digits[0] ?? 0) >= 0x80 ? concatBytes([Uint8Array.of(0), digits]) : digits);
}

/** @param unused bits at the end of the last byte */
export const derBitString = (bytes: Uint8Array, unused = 0): Uint8Array =>
  der(TAG.bitString, Uint8Array.of(unused), bytes);

/** @param dotted `2.5.4.3` */
export function derOid(dotted: string): Uint8Array {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes: number[] = [];
  for (const arc of [first * 40 + second, ...rest]) {
    const digits = [arc % 128];
    for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128)) digits.unshift(0x80 | (left % 128));
    bytes.push(...digits);
  }
  return der(TAG.oid, Uint8Array.from(bytes));
}

/** UTCTime up to 2049, then GeneralizedTime (RFC 5280, 4.1.2.5); whole seconds, rounded down. */
export function derTime(atMs: number): Uint8Array {
  const text = `${new Date(atMs).toISOString().slice(0, 19).replace(/[-T:]/g, "")}Z`;
  const year = new Date(atMs).getUTCFullYear();
  const isUtc = year >= 1950 && year < 2050;
  return der(isUtc ? TAG.utcTime : TAG.generalizedTime, new TextEncoder().encode(isUtc ? text.slice(2) : text));
}

const malformed = (what: string): PicoletError => new PicoletError("invalid", `malformed DER: ${what}`);

/** Reads the items of one constructed value, or of a whole text, one after the other. */
export class DerReader {
  readonly #bytes: Uint8Array;
  #offset = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#offset >= this.#bytes.length;
  }

  /** The tag of the next item; undefined at the end. */
  get nextTag(): number | undefined {
    return this.#bytes[this.#offset];
  }

  /** @throws `invalid` when there is none, or it is not properly encoded */
  next(): DerItem {
    const start = this.#offset;
    const tag = this.#byte();
    if ((tag & 0x1f) === 0x1f) throw malformed("a tag of more than one byte");
    const length = this.#length();
    const from = this.#offset;
    if (length > this.#bytes.length - from) throw malformed("an item that is cut off");
    this.#offset = from + length;
    return {
      tag,
      content: this.#bytes.subarray(from, this.#offset),
      whole: this.#bytes.subarray(start, this.#offset),
    };
  }

  /** @throws `invalid` when the next item is none with `tag` */
  expect(tag: number, what: string): DerItem {
    if (this.nextTag !== tag) throw malformed(`no ${what} where one has to be`);
    return this.next();
  }

  /** The next item if it has `tag`. */
  optional(tag: number): DerItem | undefined {
    return this.nextTag === tag ? this.next() : undefined;
  }

  sequence(what: string): DerReader {
    return new DerReader(this.expect(TAG.sequence, what).content);
  }

  oid(what: string): string {
    return oidText(this.expect(TAG.oid, what).content);
  }

  /** @throws `invalid` when anything is left */
  end(what: string): void {
    if (!this.atEnd) throw malformed(`something after the end of ${what}`);
  }

  #byte(): number {
    const byte = this.#bytes[this.#offset];
    if (byte === undefined) throw malformed("the end comes too early");
    this.#offset += 1;
    return byte;
  }

  #length(): number {
    const first = this.#byte();
    if (first < 0x80) return first;
    const count = first & 0x7f;
    if (count === 0 || count > MAX_LENGTH_BYTES) throw malformed("a length of this form");
    let length = 0;
    for (let n = 0; n < count; n += 1) length = length * 256 + this.#byte();
    if (length < 0x80 || length < 256 ** (count - 1)) throw malformed("a length that is longer than it has to be");
    return length;
  }
}

/** The one item that `bytes` are. */
export function derOf(bytes: Uint8Array, tag: number, what: string): DerReader {
  const outer = new DerReader(bytes);
  const item = outer.expect(tag, what);
  outer.end(what);
  return new DerReader(item.content);
}

export function oidText(content: Uint8Array): string {
  const arcs: number[] = [];
  let arc = 0;
  let fresh = true;
  for (const byte of content) {
    if (fresh && byte === 0x80) throw malformed("an object identifier with a leading zero");
    arc = arc * 128 + (byte & 0x7f);
    if (arc > Number.MAX_SAFE_INTEGER / 128) throw malformed("an object identifier that is too large");
    fresh = byte < 0x80;
    if (fresh) {
      arcs.push(arc);
      arc = 0;
    }
  }
  const [head, ...rest] = arcs;
  if (head === undefined || !fresh) throw malformed("an object identifier that is cut off");
  const first = Math.min(2, Math.floor(head / 40));
  return [first, head - first * 40, ...rest].join(".");
}

/** The text of a DirectoryString's usual forms; undefined: of another form, or not what its form allows. */
export function stringOf({ tag, content }: DerItem): string | undefined {
  if (tag === TAG.utf8String) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    } catch {
      return undefined;
    }
  }
  if (tag !== TAG.printableString && tag !== TAG.ia5String) return undefined;
  const text = String.fromCharCode(...content.subarray(0, MAX_STRING_BYTES));
  if (content.length > MAX_STRING_BYTES) return undefined;
  const allowed = tag === TAG.ia5String ? /^[ -~]*$/ : /^[A-Za-z0-9 '()+,\-./:=?]*$/;
  return allowed.test(text) ? text : undefined;
}

/** No name in a certificate is longer; a DNS name has 253. */
const MAX_STRING_BYTES = 1024;

/** The bytes of a BIT STRING of whole bytes. */
export function bitStringOf({ content }: DerItem): Uint8Array {
  if (content[0] !== 0) throw malformed("a bit string that is not of whole bytes");
  return content.subarray(1);
}
