/**
 * JSON values (Kubernetes' objects, statuses, deltas, a stream's parameters) in few bytes of CBOR. JSON has no byte
 * strings, so a byte string stands for a text that has a shorter form; its length says which:
 *
 * | bytes | the text |
 * | --- | --- |
 * | 1 | the word of that number in KUBERNETES_WORDS |
 * | 2 | the text that was the n-th (big-endian, from 0) of this value's own texts, as described below |
 * | 4 | a time with seconds, `2026-01-31T12:00:00Z`: seconds since 1970, big-endian |
 * | 16 | a UUID in lower case with hyphens |
 * | 33 | a word, then 64 lower-case hexadecimal digits (ids and digests): those as 32 bytes, then the word's number |
 * | 32, 34 and more | a text that ends in 64 lower-case hexadecimal digits: those as 32 bytes, then what is before them
 * |
 *
 * A map's key is a text or the number of a word. Texts (not keys) of 4 to 256 characters that are no words count, where
 * they come first, as the value's own texts; when one comes again its number may stand for it.
 */
import { PicoletError } from "../../errors.ts";
import { fromHex, toHex } from "./hex.ts";
import { KUBERNETES_WORDS } from "./word-table.ts";

const NUMBER_OF_WORD: ReadonlyMap<string, number> = new Map(KUBERNETES_WORDS.map((word, index) => [word, index]));
const LONGEST_WORD = Math.max(...KUBERNETES_WORDS.map((word) => word.length));

const TIME_LENGTH = 20;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const TIME_BYTES = 4;
const UUID_LENGTH = 36;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const UUID_BYTES = 16;
const HEX_LENGTH = 64;
const HEX_TAIL = /[0-9a-f]{64}$/;
const HEX_BYTES = 32;
const HEX_AND_WORD_BYTES = 33;
/** Bounds the search for digests: image names are shorter, and longer texts are user data, which is not searched. */
const MAX_HEX_TEXT = 512;

const REPEAT_BYTES = 2;
const MIN_REPEATED = 4;
/** Longer ones seldom repeat; and three bytes on the wire may not become megabytes here. */
const MAX_REPEATED = 256;
/** Bounds the table: two bytes are its index. Texts after that are sent each time. */
const MAX_OWN_TEXTS = 65_536;
/**
 * Bounds memory: all texts of one value. Twice the largest message: text itself takes at least a byte a character, so
 * that only a value made of nothing but repeats is refused.
 */
const MAX_CHARACTERS = 4 * 1024 * 1024;

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

/** The form that `encodeCbor` takes. Undefined fields are left out, as JSON does it; undefined elements become null. */
export const packJson = (value: unknown): unknown => pack(value, new Map());

function pack(value: unknown, own: Map<string, number>): unknown {
  switch (typeof value) {
    case "string":
      return packOwnText(value, own);
    case "number":
      return Number.isFinite(value) ? value : null;
    case "boolean":
      return value;
    case "object":
      return value === null ? null : packStructure(value, own);
    default:
      return null;
  }
}

function packStructure(value: object, own: Map<string, number>): unknown {
  if (Array.isArray(value)) return value.map((each) => pack(each, own));
  const packed = new Map<string | number, unknown>();
  for (const [key, each] of Object.entries(value)) {
    if (each !== undefined) packed.set(NUMBER_OF_WORD.get(key) ?? key, pack(each, own));
  }
  return packed;
}

const mayRepeat = (text: string): boolean => text.length >= MIN_REPEATED && text.length <= MAX_REPEATED;

function packOwnText(text: string, own: Map<string, number>): string | Uint8Array {
  if (!mayRepeat(text) || NUMBER_OF_WORD.has(text)) return packText(text);
  const number = own.get(text);
  if (number !== undefined) return Uint8Array.of(number >>> 8, number);
  if (own.size < MAX_OWN_TEXTS) own.set(text, own.size);
  return packText(text);
}

/** A text by itself, outside of any value. */
export function packText(text: string): string | Uint8Array {
  if (text.length <= LONGEST_WORD) {
    const word = NUMBER_OF_WORD.get(text);
    if (word !== undefined) return Uint8Array.of(word);
    if (text.length === TIME_LENGTH && TIME.test(text)) return packTime(text) ?? text;
  }
  if (text.length === UUID_LENGTH && UUID.test(text)) return fromHex(text.replaceAll("-", ""));
  if (text.length >= HEX_LENGTH && text.length <= MAX_HEX_TEXT && HEX_TAIL.test(text)) return packHexTail(text);
  return text;
}

function packTime(text: string): Uint8Array | undefined {
  const seconds = Date.parse(text) / 1000;
  if (!(seconds >= 0 && seconds < 2 ** 32) || timeText(seconds) !== text) return undefined;
  return Uint8Array.of(seconds >>> 24, seconds >>> 16, seconds >>> 8, seconds);
}

const timeText = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, -5)}Z`;

function packHexTail(text: string): Uint8Array | string {
  const head = text.slice(0, -HEX_LENGTH);
  const word = NUMBER_OF_WORD.get(head);
  const before = word === undefined ? utf8.encode(head) : Uint8Array.of(word);
  if (word === undefined && before.length === 1) return text;
  const packed = new Uint8Array(HEX_BYTES + before.length);
  packed.set(fromHex(text.slice(-HEX_LENGTH)));
  packed.set(before, HEX_BYTES);
  return packed;
}

/**
 * Plain objects and arrays again. Nothing of it points into the frame it came in.
 * @throws `invalid` for what `packJson` never makes, and for more than MAX_CHARACTERS of text
 */
export const unpackJson = (packed: unknown): unknown => new Unpacker().unpack(packed);

class Unpacker {
  readonly #own: string[] = [];
  #characters = 0;

  unpack(packed: unknown): unknown {
    switch (typeof packed) {
      case "boolean":
        return packed;
      case "string":
        return this.#ownText(packed);
      case "number":
        if (!Number.isFinite(packed)) throw unreadable("a number that is not finite");
        return packed;
      case "object":
        return packed === null ? null : this.#structure(packed);
      default:
        throw unreadable("an unknown type");
    }
  }

  #structure(packed: object): unknown {
    if (packed instanceof Uint8Array) return this.#bytes(packed);
    if (Array.isArray(packed)) return packed.map((each) => this.unpack(each));
    if (!(packed instanceof Map)) throw unreadable("an unknown type");
    const object: Record<string, unknown> = {};
    for (const [key, value] of packed) {
      setField(object, typeof key === "number" ? wordOf(key) : key, this.unpack(value));
    }
    return object;
  }

  #bytes(packed: Uint8Array): string {
    if (packed.length === 1) return this.#counted(unpackText(packed));
    if (packed.length !== REPEAT_BYTES) return this.#ownText(unpackText(packed));
    const text = this.#own[(packed[0] ?? 0) * 256 + (packed[1] ?? 0)];
    if (text === undefined) throw unreadable("a repeat of nothing");
    return this.#counted(text);
  }

  #ownText(text: string): string {
    if (mayRepeat(text) && this.#own.length < MAX_OWN_TEXTS && !NUMBER_OF_WORD.has(text)) this.#own.push(text);
    return this.#counted(text);
  }

  #counted(text: string): string {
    this.#characters += text.length;
    if (this.#characters > MAX_CHARACTERS) throw unreadable(`more than ${MAX_CHARACTERS} characters`);
    return text;
  }
}

/** Kubernetes allows `__proto__` as a key of a ConfigMap. */
export function setField(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key === "__proto__") {
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  } else object[key] = value;
}

/** @throws `invalid` */
export function unpackText(packed: unknown): string {
  if (typeof packed === "string") return packed;
  if (!(packed instanceof Uint8Array)) throw unreadable("not a text");
  if (packed.length === 1) return wordOf(packed[0] ?? 0);
  if (packed.length === TIME_BYTES) return timeText(packed.reduce((seconds, byte) => seconds * 256 + byte, 0));
  if (packed.length === UUID_BYTES) return uuidText(toHex(packed));
  if (packed.length < HEX_BYTES) throw unreadable(`a text in ${packed.length} bytes`);
  const before = packed.subarray(HEX_BYTES);
  const isWord = packed.length === HEX_AND_WORD_BYTES;
  return (isWord ? wordOf(before[0] ?? 0) : fromUtf8.decode(before)) + toHex(packed.subarray(0, HEX_BYTES));
}

const uuidText = (hex: string): string =>
  `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;

function wordOf(number: number): string {
  const found = KUBERNETES_WORDS[number];
  if (found === undefined) throw unreadable(`word ${number}`);
  return found;
}

const unreadable = (what: string): PicoletError => new PicoletError("invalid", `cannot read packed JSON: ${what}`);
