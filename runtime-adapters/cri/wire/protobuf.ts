/**
 * Protocol Buffers (proto3, binary) driven by message descriptors written by hand.
 *
 * A descriptor names only the fields one wants: all others are skipped without being decoded, so a lean descriptor of
 * a fat message is how a caller spares itself the strings. Unknown fields and fields of another wire type than
 * declared are skipped too. https://protobuf.dev/programming-guides/encoding/
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { MAX_VARINT_BYTES, VarintReader } from "@picolet/protocol/varint-reader.ts";

/** CRI nests 6 deep at most; a message that nests deeper than this is not one of ours. */
const MAX_DEPTH = 16;
/**
 * List elements and map entries of one decoded message together. An empty element takes 2 bytes on the wire and some
 * 100 in memory, so a size limit alone does not bound memory. A node with 1,000 containers of 50 labels has 50,000.
 */
const MAX_ELEMENTS = 200_000;
/** An encoder that needs more fails with `resource_exhausted`: containerd accepts 16 MiB. */
const MAX_ENCODED_BYTES = 16 * MEBIBYTE;
const INITIAL_ENCODER_BYTES = 512;
/** Below this length a string is decoded byte by byte when it is ASCII, which beats the call into the runtime. */
const SHORT_STRING_BYTES = 12;

const WIRE_VARINT = 0;
const WIRE_FIXED64 = 1;
const WIRE_BYTES = 2;
const WIRE_FIXED32 = 5;
type WireType = 0 | 1 | 2 | 5;

const TWO_32 = 4_294_967_296;
const NANOSECONDS_PER_MS = 1_000_000;
const EMPTY_BYTES: Uint8Array = Buffer.alloc(0);

const corrupt = (what: string): PicoletError => new PicoletError("corrupt", `cannot decode a message: ${what}`);

/** Reads one message; a nested one sets `end` to its own end while it is read. */
class Reader extends VarintReader {
  depth = 0;
  elements = 0;

  protected override malformed(why: string): PicoletError {
    return corrupt(why);
  }

  countElement(): void {
    this.elements += 1;
    if (this.elements > MAX_ELEMENTS) {
      throw new PicoletError("resource_exhausted", `cannot decode a message of more than ${MAX_ELEMENTS} elements`);
    }
  }

  /** The length of what follows, known to lie within the message. */
  length(): number {
    const length = this.varint32();
    if (length > this.end - this.position) throw corrupt("a field is longer than its message");
    return length;
  }

  skip(wire: number): void {
    if (wire === WIRE_VARINT) this.varint32();
    else if (wire === WIRE_BYTES) {
      const length = this.length();
      this.position += length;
    } else if (wire === WIRE_FIXED64 || wire === WIRE_FIXED32) {
      const size = wire === WIRE_FIXED64 ? 8 : 4;
      if (size > this.end - this.position) throw corrupt("it ends within a field");
      this.position += size;
    } else throw corrupt(`a field has the wire type ${wire}`);
  }

  string(): string {
    const length = this.length();
    const start = this.position;
    this.position += length;
    if (length === 0) return "";
    const short = length <= SHORT_STRING_BYTES ? shortAscii(this.bytes, start, length) : undefined;
    return short ?? this.bytes.toString("utf8", start, start + length);
  }
}

function shortAscii(bytes: Buffer, start: number, length: number): string | undefined {
  let text = "";
  for (let index = start; index < start + length; index += 1) {
    const byte = bytes[index] ?? 0;
    if (byte >= 0x80) return undefined;
    text += String.fromCharCode(byte);
  }
  return text;
}

/** Grows by doubling; nested lengths are patched in once their content is written. */
class Writer {
  bytes: Buffer = Buffer.allocUnsafe(INITIAL_ENCODER_BYTES);
  position = 0;

  reserve(count: number): void {
    const needed = this.position + count;
    if (needed <= this.bytes.length) return;
    if (needed > MAX_ENCODED_BYTES) {
      throw new PicoletError("resource_exhausted", `cannot encode a message of more than ${MAX_ENCODED_BYTES} bytes`);
    }
    const grown = Buffer.allocUnsafe(Math.max(needed, this.bytes.length * 2));
    this.bytes.copy(grown, 0, 0, this.position);
    this.bytes = grown;
  }

  /** @param value unsigned, up to 2^53. */
  varint(value: number): void {
    this.reserve(MAX_VARINT_BYTES);
    let rest = value;
    while (rest >= 0x80) {
      this.bytes[this.position] = (rest % 0x80) | 0x80;
      this.position += 1;
      rest = Math.floor(rest / 0x80);
    }
    this.bytes[this.position] = rest;
    this.position += 1;
  }

  /** Two's complement, so that a negative number takes 10 bytes. */
  varint64(value: bigint): void {
    this.reserve(MAX_VARINT_BYTES);
    let rest = BigInt.asUintN(64, value);
    while (rest >= 0x80n) {
      this.bytes[this.position] = Number(rest & 0x7fn) | 0x80;
      this.position += 1;
      rest >>= 7n;
    }
    this.bytes[this.position] = Number(rest);
    this.position += 1;
  }

  tag(number: number, wire: WireType): void {
    this.varint(number * 8 + wire);
  }

  string(value: string): void {
    this.reserve(value.length * 3 + MAX_VARINT_BYTES);
    const start = this.beginLength();
    this.position += this.bytes.write(value, this.position);
    this.endLength(start);
  }

  raw(value: Uint8Array): void {
    this.varint(value.length);
    this.reserve(value.length);
    this.bytes.set(value, this.position);
    this.position += value.length;
  }

  /** Leaves one byte for a length, which is what most need. */
  beginLength(): number {
    this.reserve(1);
    this.position += 1;
    return this.position;
  }

  endLength(start: number): void {
    const length = this.position - start;
    if (length < 0x80) {
      this.bytes[start - 1] = length;
      return;
    }
    let extra = 0;
    for (let rest = length; rest >= 0x80; rest = Math.floor(rest / 0x80)) extra += 1;
    this.reserve(extra);
    this.bytes.copyWithin(start + extra, start, start + length);
    this.position = start - 1;
    this.varint(length);
    this.position += length;
  }
}

/** How one value of a field is read and written; `wire` is what its tag says. */
interface Codec<T, I> {
  readonly wire: WireType;
  readonly read: (reader: Reader) => T;
  readonly write: (writer: Writer, value: I) => void;
  /** proto3 leaves out a field without presence that has its zero value. */
  readonly isZero: (value: I) => boolean;
}

/** The codec of a field within its message; decoding gives `T`, encoding takes `I`. */
export interface Field<T, I = T> {
  readonly number: number;
  /** The value before the field is seen; shared, never changed. */
  readonly initial: T;
  /** Reads one occurrence. Returns the field's value after it, or SKIP when the wire type is another. */
  readonly read: (reader: Reader, wire: number, current: T) => T | typeof SKIP;
  readonly write: (writer: Writer, value: I) => void;
}

const SKIP = Symbol("skip");

// biome-ignore lint/suspicious/noExplicitAny: the one type that every field is assignable to
type AnyField = Field<any, any>;
type Fields = Readonly<Record<string, AnyField>>;
type Decoded<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T, infer _I> ? T : never };
type Encodable<F extends Fields> = {
  readonly [K in keyof F]?: (F[K] extends Field<infer _T, infer I> ? I : never) | undefined;
};

export interface MessageEncoder<I> {
  readonly name: string;
  /** @throws `invalid` for a number that is no integer, `resource_exhausted` beyond 16 MiB. */
  encode(value: I): Buffer;
}

export interface MessageDecoder<T> {
  readonly name: string;
  /** @throws `corrupt` when the bytes are no such message, `resource_exhausted` beyond its limits. */
  decode(bytes: Buffer, start?: number, end?: number): T;
}

/** A message's descriptor. `T` has every field; `I` may leave any out, which then has its zero value. */
export interface MessageType<T, I> extends MessageEncoder<I>, MessageDecoder<T> {
  readonly codec: Codec<T, I>;
}

// biome-ignore lint/suspicious/noExplicitAny: matches a descriptor with any input type
export type MessageOf<M> = M extends MessageType<infer T, any> ? T : never;
// biome-ignore lint/suspicious/noExplicitAny: matches a descriptor with any output type
export type InputOf<M> = M extends MessageType<any, infer I> ? I : never;

/** @param name as the .proto has it, for messages. */
export const message = <F extends Fields>(name: string, fields: F): MessageType<Decoded<F>, Encodable<F>> =>
  new Message(name, fields);

/** The tables that decoding needs; most messages are only ever encoded, or never seen. */
interface Decoding {
  /** Every field with its value before it is seen. */
  readonly blank: Readonly<Record<string, unknown>>;
  readonly keys: readonly (string | undefined)[];
}

/** Classes, not closures: a node has some five hundred fields of messages, at 40 bytes each instead of 400. */
class Message<F extends Fields> implements MessageType<Decoded<F>, Encodable<F>>, Codec<Decoded<F>, Encodable<F>> {
  readonly name: string;
  readonly #fields: F;
  #decoding: Decoding | undefined;

  constructor(name: string, fields: F) {
    this.name = name;
    this.#fields = fields;
  }

  get codec(): Codec<Decoded<F>, Encodable<F>> {
    return this;
  }

  get wire(): WireType {
    return WIRE_BYTES;
  }

  encode(value: Encodable<F>): Buffer {
    const writer = new Writer();
    this.#writeFields(writer, value);
    return writer.bytes.subarray(0, writer.position);
  }

  decode(bytes: Buffer, start = 0, end = bytes.length): Decoded<F> {
    return this.#readFields(new Reader(bytes, start, end));
  }

  read(reader: Reader): Decoded<F> {
    const length = reader.length();
    const outerEnd = reader.end;
    reader.end = reader.position + length;
    reader.depth += 1;
    if (reader.depth > MAX_DEPTH) throw corrupt(`it nests deeper than ${MAX_DEPTH} messages`);
    const value = this.#readFields(reader);
    reader.depth -= 1;
    reader.end = outerEnd;
    return value;
  }

  write(writer: Writer, value: Encodable<F>): void {
    const start = writer.beginLength();
    this.#writeFields(writer, value);
    writer.endLength(start);
  }

  isZero(): boolean {
    return false;
  }

  #readFields(reader: Reader): Decoded<F> {
    this.#decoding ??= this.#makeDecoding();
    const { blank, keys } = this.#decoding;
    const value: Record<string, unknown> = { ...blank };
    while (reader.position < reader.end) {
      const tag = reader.varint32();
      if (tag < 8) throw corrupt("a field has the number 0");
      const wire = tag & 7;
      const key = keys[tag >>> 3];
      const read = key === undefined ? SKIP : this.#fields[key]?.read(reader, wire, value[key]);
      if (key === undefined || read === SKIP) reader.skip(wire);
      else value[key] = read;
    }
    return value as Decoded<F>;
  }

  #writeFields(writer: Writer, value: Encodable<F>): void {
    for (const key in this.#fields) {
      const given = value[key];
      if (given !== undefined) this.#fields[key]?.write(writer, given);
    }
  }

  #makeDecoding(): Decoding {
    const blank: Record<string, unknown> = {};
    const keys: string[] = [];
    for (const [key, { number, initial }] of Object.entries(this.#fields)) {
      blank[key] = initial;
      keys[number] = key;
    }
    return { blank, keys };
  }
}

class ScalarField<T> implements Field<T> {
  readonly number: number;
  readonly initial: T;
  readonly #codec: Codec<T, T>;

  constructor(number: number, zero: T, codec: Codec<T, T>) {
    this.number = number;
    this.initial = zero;
    this.#codec = codec;
  }

  read(reader: Reader, wire: number): T | typeof SKIP {
    return wire === this.#codec.wire ? this.#codec.read(reader) : SKIP;
  }

  write(writer: Writer, value: T): void {
    if (this.#codec.isZero(value)) return;
    writer.tag(this.number, this.#codec.wire);
    this.#codec.write(writer, value);
  }
}

const scalar = <T>(number: number, zero: T, codec: Codec<T, T>): Field<T> => new ScalarField(number, zero, codec);

const stringCodec: Codec<string, string> = {
  wire: WIRE_BYTES,
  read: (reader) => reader.string(),
  write: (writer, value) => writer.string(value),
  isZero: (value) => value === "",
};

const bytesCodec: Codec<Uint8Array, Uint8Array> = {
  wire: WIRE_BYTES,
  read: (reader) => {
    const length = reader.length();
    const start = reader.position;
    reader.position += length;
    return Uint8Array.prototype.slice.call(reader.bytes, start, start + length);
  },
  write: (writer, value) => writer.raw(value),
  isZero: (value) => value.length === 0,
};

const boolCodec: Codec<boolean, boolean> = {
  wire: WIRE_VARINT,
  read: (reader) => reader.varint32() !== 0,
  write: (writer, value) => writer.varint(value ? 1 : 0),
  isZero: (value) => !value,
};

const int32Codec: Codec<number, number> = {
  wire: WIRE_VARINT,
  read: (reader) => reader.varint32() | 0,
  write: writeInteger,
  isZero: (value) => value === 0,
};

const uint32Codec: Codec<number, number> = { ...int32Codec, read: (reader) => reader.varint32() };

function readUnsigned64(reader: Reader): number {
  reader.varint64();
  return reader.high * TWO_32 + reader.low;
}

function readSigned64(reader: Reader): number {
  reader.varint64();
  return (reader.high | 0) * TWO_32 + reader.low;
}

function writeInteger(writer: Writer, value: number): void {
  if (!Number.isSafeInteger(value)) {
    throw new PicoletError("invalid", `cannot encode ${value} as an integer`);
  }
  if (value >= 0) writer.varint(value);
  else writer.varint64(BigInt(value));
}

const int64Codec: Codec<number, number> = { ...int32Codec, read: readSigned64 };
const uint64Codec: Codec<number, number> = { ...int32Codec, read: readUnsigned64 };

const bigInt64Codec: Codec<bigint, bigint> = {
  wire: WIRE_VARINT,
  read: (reader) => {
    reader.varint64();
    return BigInt.asIntN(64, (BigInt(reader.high) << 32n) | BigInt(reader.low));
  },
  write: (writer, value) => writer.varint64(value),
  isZero: (value) => value === 0n,
};

/** Nanoseconds on the wire, milliseconds here, rounded down. */
const nanosecondsCodec: Codec<number, number> = {
  wire: WIRE_VARINT,
  read: (reader) => {
    reader.varint64();
    const high = reader.high | 0;
    // 2^32 ns are 4294 ms and 967,296 ns. Each term is exact in a double; the whole of it would not be.
    return high * 4294 + Math.floor((high * 967_296 + reader.low) / NANOSECONDS_PER_MS);
  },
  write: (writer, value) => writer.varint64(BigInt(Math.trunc(value)) * 1_000_000n),
  isZero: (value) => value === 0,
};

const doubleCodec: Codec<number, number> = {
  wire: WIRE_FIXED64,
  read: (reader) => {
    if (reader.end - reader.position < 8) throw corrupt("it ends within a field");
    const value = reader.bytes.readDoubleLE(reader.position);
    reader.position += 8;
    return value;
  },
  write: (writer, value) => {
    writer.reserve(8);
    writer.position = writer.bytes.writeDoubleLE(value, writer.position);
  },
  isZero: (value) => Object.is(value, 0),
};

export const string = (number: number): Field<string> => scalar(number, "", stringCodec);
/** Decoded into memory of its own. */
export const bytes = (number: number): Field<Uint8Array> => scalar(number, EMPTY_BYTES, bytesCodec);
export const bool = (number: number): Field<boolean> => scalar(number, false, boolCodec);
/** Enums too: an unknown value stays the number it is. */
export const int32 = (number: number): Field<number> => scalar(number, 0, int32Codec);
export const uint32 = (number: number): Field<number> => scalar(number, 0, uint32Codec);
/** Exact up to 2^53, decoded to the nearest double beyond. Encoding takes safe integers only. */
export const int64 = (number: number): Field<number> => scalar(number, 0, int64Codec);
export const uint64 = (number: number): Field<number> => scalar(number, 0, uint64Codec);
/** For where every bit counts. */
export const bigInt64 = (number: number): Field<bigint> => scalar(number, 0n, bigInt64Codec);
/** An int64 of nanoseconds since the epoch, here milliseconds since the epoch. */
export const nanosecondTime = (number: number): Field<number> => scalar(number, 0, nanosecondsCodec);
export const double = (number: number): Field<number> => scalar(number, 0, doubleCodec);

class NestedField<T, I> implements Field<T | undefined, I> {
  readonly number: number;
  readonly #type: MessageType<T, I>;

  constructor(number: number, type: MessageType<T, I>) {
    this.number = number;
    this.#type = type;
  }

  get initial(): undefined {
    return undefined;
  }

  read(reader: Reader, wire: number): T | typeof SKIP {
    return wire === WIRE_BYTES ? this.#type.codec.read(reader) : SKIP;
  }

  write(writer: Writer, value: I): void {
    writer.tag(this.number, WIRE_BYTES);
    this.#type.codec.write(writer, value);
  }
}

/** A nested message; `undefined` when it is not there. One that comes twice: the last counts. */
export const nested = <T, I>(number: number, type: MessageType<T, I>): Field<T | undefined, I> =>
  new NestedField(number, type);

const NO_ITEMS: readonly never[] = Object.freeze([]);

class ListField<T, I> implements Field<readonly T[], readonly I[]> {
  readonly number: number;
  readonly #codec: Codec<T, I>;

  constructor(number: number, codec: Codec<T, I>) {
    this.number = number;
    this.#codec = codec;
  }

  get initial(): readonly T[] {
    return NO_ITEMS;
  }

  read(reader: Reader, wire: number, current: readonly T[]): readonly T[] | typeof SKIP {
    if (wire === this.#codec.wire) return this.#append(reader, current);
    if (wire !== WIRE_BYTES) return SKIP;
    const end = reader.length() + reader.position;
    const outerEnd = reader.end;
    reader.end = end;
    let items = current;
    while (reader.position < end) items = this.#append(reader, items);
    reader.end = outerEnd;
    return items;
  }

  write(writer: Writer, values: readonly I[]): void {
    if (values.length === 0) return;
    if (this.#codec.wire === WIRE_BYTES) {
      for (const value of values) {
        writer.tag(this.number, WIRE_BYTES);
        this.#codec.write(writer, value);
      }
      return;
    }
    writer.tag(this.number, WIRE_BYTES);
    const start = writer.beginLength();
    for (const value of values) this.#codec.write(writer, value);
    writer.endLength(start);
  }

  #append(reader: Reader, current: readonly T[]): readonly T[] {
    reader.countElement();
    const items = current === NO_ITEMS ? [] : (current as T[]);
    items.push(this.#codec.read(reader));
    return items;
  }
}

const list = <T, I>(number: number, codec: Codec<T, I>): Field<readonly T[], readonly I[]> =>
  new ListField(number, codec);

export const strings = (number: number): Field<readonly string[]> => list(number, stringCodec);
/** Written packed, read packed or not. */
export const int32s = (number: number): Field<readonly number[]> => list(number, int32Codec);
export const int64s = (number: number): Field<readonly number[]> => list(number, int64Codec);
export const repeated = <T, I>(number: number, type: MessageType<T, I>): Field<readonly T[], readonly I[]> =>
  list(number, type.codec);

const ENTRY_KEY = 1;
const ENTRY_VALUE = 2;

const NO_ENTRIES: ReadonlyMap<string, string> = new Map();

class StringMapField implements Field<ReadonlyMap<string, string>> {
  readonly number: number;
  readonly #wanted: readonly WantedKey[] | undefined;

  constructor(number: number, only: readonly string[] | undefined) {
    this.number = number;
    this.#wanted = only?.map((key) => ({ key, bytes: Buffer.from(key) }));
  }

  get initial(): ReadonlyMap<string, string> {
    return NO_ENTRIES;
  }

  read(reader: Reader, wire: number, current: ReadonlyMap<string, string>): ReadonlyMap<string, string> | typeof SKIP {
    if (wire !== WIRE_BYTES) return SKIP;
    reader.countElement();
    const end = reader.length() + reader.position;
    const outerEnd = reader.end;
    reader.end = end;
    const known = current === NO_ENTRIES ? undefined : (current as Map<string, string>);
    const map = readMapEntry(reader, known, this.#wanted);
    reader.position = end;
    reader.end = outerEnd;
    return map ?? NO_ENTRIES;
  }

  write(writer: Writer, values: ReadonlyMap<string, string>): void {
    for (const [key, value] of values) {
      writer.tag(this.number, WIRE_BYTES);
      const start = writer.beginLength();
      writer.tag(ENTRY_KEY, WIRE_BYTES);
      writer.string(key);
      writer.tag(ENTRY_VALUE, WIRE_BYTES);
      writer.string(value);
      writer.endLength(start);
    }
  }
}

/**
 * `map<string, string>`.
 * @param only decodes these keys and skips the others; all when missing.
 */
export const stringMap = (number: number, only?: readonly string[]): Field<ReadonlyMap<string, string>> =>
  new StringMapField(number, only);

interface WantedKey {
  readonly key: string;
  readonly bytes: Buffer;
}

/** Encoders write the key first, so that an entry not asked for costs one comparison; other orders work as well. */
function readMapEntry(
  reader: Reader,
  map: Map<string, string> | undefined,
  wanted: readonly WantedKey[] | undefined,
): Map<string, string> | undefined {
  let key: string | undefined;
  let value = "";
  while (reader.position < reader.end) {
    const tag = reader.varint32();
    if (tag === ENTRY_KEY * 8 + WIRE_BYTES) {
      key = wanted === undefined ? reader.string() : readWantedKey(reader, wanted);
      if (key === undefined) return map;
    } else if (tag === ENTRY_VALUE * 8 + WIRE_BYTES) value = reader.string();
    else reader.skip(tag & 7);
  }
  if (key === undefined && wanted !== undefined && !wanted.some((each) => each.key === "")) return map;
  const into = map ?? new Map<string, string>();
  into.set(key ?? "", value);
  return into;
}

function readWantedKey(reader: Reader, wanted: readonly WantedKey[]): string | undefined {
  const length = reader.length();
  const start = reader.position;
  reader.position += length;
  for (const each of wanted) {
    if (each.bytes.length !== length) continue;
    if (reader.bytes.compare(each.bytes, 0, length, start, start + length) === 0) return each.key;
  }
  return undefined;
}
