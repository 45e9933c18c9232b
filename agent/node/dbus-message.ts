/**
 * D-Bus messages as far as logind and systemd need them (D-Bus specification, "Message Protocol"): calls out, replies,
 * errors and signals in. What comes in with a body of other types than the basic ones is passed over.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

export type DbusValue = string | number | bigint | boolean;

/** A struct is the list of its values, as an array is. */
export type DbusArgument =
  | DbusValue
  | readonly DbusArgument[]
  | { readonly type: string; readonly value: DbusArgument };

export interface DbusCall {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  /** Consists of `s`, `o`, `g`, `b`, `i`, `u`, `x`, `t`, `v`, and arrays and structs of them. */
  readonly signature: string;
  readonly body: readonly DbusArgument[];
}

export interface DbusMessage {
  readonly kind: "call" | "return" | "error" | "signal";
  readonly serial: number;
  /** The serial of the call that is answered; 0 for a message that is no answer. */
  readonly replySerial: number;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly errorName: string;
  readonly sender: string;
  /** Variants are their values. Empty when there is something in it that is not of a basic type. */
  readonly body: readonly DbusValue[];
}

/**
 * Bounds memory: the specification allows 128 MiB, logind's messages have 300 bytes. A peer that sends more is not
 * logind.
 */
export const MAX_MESSAGE_BYTES = 64 * KIBIBYTE;
/** A variant holds a value; ours are never held by other variants. */
const MAX_VARIANT_DEPTH = 4;

const KINDS = ["call", "return", "error", "signal"] as const;
/** The fixed part of the header: endianness, type, flags, version, body length, serial, length of the fields. */
const FIXED_HEADER_BYTES = 16;
const LITTLE = 0x6c;
const BIG = 0x42;
const VERSION = 1;
const FIELD = {
  path: 1,
  interface: 2,
  member: 3,
  errorName: 4,
  replySerial: 5,
  destination: 6,
  sender: 7,
  signature: 8,
};

const alignUp = (offset: number, to: number): number => Math.ceil(offset / to) * to;

const corrupt = (why: string): PicoletError =>
  new PicoletError("corrupt", "cannot read a D-Bus message", { cause: new Error(why) });

class Writer {
  readonly #parts: Buffer[] = [];
  #length = 0;

  align(to: number): void {
    const missing = alignUp(this.#length, to) - this.#length;
    if (missing > 0) this.bytes(Buffer.alloc(missing));
  }

  bytes(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }

  number(value: number): void {
    this.align(4);
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value >>> 0);
    this.bytes(bytes);
  }

  text(value: string): void {
    this.number(Buffer.byteLength(value));
    this.bytes(Buffer.from(`${value}\0`));
  }

  signature(value: string): void {
    this.bytes(Buffer.from([value.length]));
    this.bytes(Buffer.from(`${value}\0`));
  }

  /** @param value as the type says. @throws `internal` for one that is something else */
  value(type: string, value: DbusArgument): void {
    if (type.startsWith("a")) this.#array(type.slice(1), listOf(type, value));
    else if (type.startsWith("(")) this.#struct(type, listOf(type, value));
    else if (type === "v") {
      if (typeof value !== "object" || !("type" in value)) throw mistaken(type);
      this.signature(value.type);
      this.value(value.type, value.value);
    } else this.#basic(type, value);
  }

  #array(of: string, values: readonly DbusArgument[]): void {
    this.align(4);
    const length = Buffer.alloc(4);
    this.bytes(length);
    // Between the length and the first element, which is not counted.
    this.align(alignmentOf(of));
    const start = this.#length;
    for (const each of values) this.value(of, each);
    length.writeUInt32LE(this.#length - start);
  }

  #struct(type: string, values: readonly DbusArgument[]): void {
    this.align(8);
    const types = typesIn(type.slice(1, -1));
    if (types.length !== values.length) throw mistaken(type);
    for (const [index, each] of values.entries()) this.value(types[index] ?? "", each);
  }

  #basic(type: string, value: DbusArgument): void {
    if (typeof value === "object") throw mistaken(type);
    if (type === "s" || type === "o") this.text(String(value));
    else if (type === "g") this.signature(String(value));
    else if (type === "x" || type === "t") this.#long(BigInt(value));
    else if ("ibu".includes(type)) this.number(Number(value));
    else throw mistaken(type);
  }

  #long(value: bigint): void {
    this.align(8);
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt.asUintN(64, value));
    this.bytes(bytes);
  }

  done(): Buffer {
    return Buffer.concat(this.#parts, this.#length);
  }
}

function listOf(type: string, value: DbusArgument): readonly DbusArgument[] {
  if (!Array.isArray(value)) throw mistaken(type);
  return value;
}

const mistaken = (type: string): PicoletError =>
  new PicoletError("internal", "cannot write a D-Bus message", { cause: new Error(`no value of type ${type}`) });

const alignmentOf = (type: string): number => (/^[(xtd]/.test(type) ? 8 : /^[vgy]/.test(type) ? 1 : 4);

/** The complete types one after the other: `sa(sv)` is `s` and `a(sv)`. */
function typesIn(signature: string): string[] {
  const types: string[] = [];
  let start = 0;
  let depth = 0;
  for (const [at, letter] of [...signature].entries()) {
    if (letter === "(") depth += 1;
    if (letter === ")") depth -= 1;
    if (depth > 0 || letter === "a") continue;
    types.push(signature.slice(start, at + 1));
    start = at + 1;
  }
  return types;
}

/** @param serial not 0; no other call of this connection may have it */
export function encodeCall(call: DbusCall, serial: number): Buffer {
  const body = new Writer();
  for (const [index, type] of typesIn(call.signature).entries()) body.value(type, call.body[index] ?? []);
  const fields = new Writer();
  const field = (code: number, type: string, value: string): void => {
    fields.align(8);
    fields.bytes(Buffer.from([code]));
    fields.signature(type);
    if (type === "g") fields.signature(value);
    else fields.text(value);
  };
  field(FIELD.path, "o", call.path);
  field(FIELD.interface, "s", call.interface);
  field(FIELD.member, "s", call.member);
  field(FIELD.destination, "s", call.destination);
  if (call.signature !== "") field(FIELD.signature, "g", call.signature);
  const bodyBytes = body.done();
  const fieldBytes = fields.done();
  const message = new Writer();
  message.bytes(Buffer.from([LITTLE, 1, 0, VERSION]));
  message.number(bodyBytes.length);
  message.number(serial);
  message.number(fieldBytes.length);
  message.bytes(fieldBytes);
  message.align(8);
  message.bytes(bodyBytes);
  return message.done();
}

/** Reads values from one message; places are counted from its start, by which everything is aligned. */
class Reader {
  readonly #bytes: Buffer;
  readonly #isLittle: boolean;
  #at: number;
  readonly #end: number;

  constructor(bytes: Buffer, from: number, end: number) {
    this.#bytes = bytes;
    this.#isLittle = bytes[0] === LITTLE;
    this.#at = from;
    this.#end = end;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#end;
  }

  align(to: number): void {
    this.#at = Math.min(alignUp(this.#at, to), this.#end);
  }

  byte(): number {
    return this.#bytes.readUInt8(this.#take(1));
  }

  u32(): number {
    this.align(4);
    const at = this.#take(4);
    return this.#isLittle ? this.#bytes.readUInt32LE(at) : this.#bytes.readUInt32BE(at);
  }

  text(): string {
    return this.#terminated(this.u32());
  }

  signature(): string {
    return this.#terminated(this.byte());
  }

  /** @throws `corrupt` for a type that is not basic, too */
  value(type: string | undefined, depth = 0): DbusValue {
    switch (type) {
      case "y":
        return this.byte();
      case "b":
        return this.u32() !== 0;
      case "n":
      case "q":
        return this.#short(type === "n");
      case "u":
      case "h":
        return this.u32();
      case "i":
        return this.u32() | 0;
      case "x":
      case "t":
      case "d":
        return this.#long(type);
      case "s":
      case "o":
        return this.text();
      case "g":
        return this.signature();
      case "v": {
        const held = this.signature();
        if (held.length !== 1 || depth >= MAX_VARIANT_DEPTH) throw corrupt("a variant of a type that is not basic");
        return this.value(held, depth + 1);
      }
      default:
        throw corrupt(`a value of type ${JSON.stringify(type)}`);
    }
  }

  #short(isSigned: boolean): number {
    this.align(2);
    const at = this.#take(2);
    const value = this.#isLittle ? this.#bytes.readUInt16LE(at) : this.#bytes.readUInt16BE(at);
    return isSigned ? (value << 16) >> 16 : value;
  }

  #long(type: "x" | "t" | "d"): DbusValue {
    this.align(8);
    const at = this.#take(8);
    if (type === "d") return this.#isLittle ? this.#bytes.readDoubleLE(at) : this.#bytes.readDoubleBE(at);
    const value = this.#isLittle ? this.#bytes.readBigUInt64LE(at) : this.#bytes.readBigUInt64BE(at);
    return type === "x" ? BigInt.asIntN(64, value) : value;
  }

  #terminated(length: number): string {
    const at = this.#take(length + 1);
    return this.#bytes.toString("utf8", at, at + length);
  }

  #take(count: number): number {
    const at = this.#at;
    if (count > this.#end - at) throw corrupt("it ends too early");
    this.#at += count;
    return at;
  }
}

/** Makes messages of bytes that come in pieces. What it threw once, it is of no more use. */
export class DbusDecoder {
  #rest: Buffer = Buffer.alloc(0);

  /** @throws PicoletError `corrupt` */
  push(bytes: Buffer): readonly DbusMessage[] {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    const messages: DbusMessage[] = [];
    for (;;) {
      const length = messageLength(this.#rest);
      if (length === undefined || this.#rest.length < length) return messages;
      messages.push(decodeMessage(this.#rest.subarray(0, length)));
      // A copy: what is left must not keep what was read.
      this.#rest = Buffer.from(this.#rest.subarray(length));
    }
  }
}

/** @returns `undefined` while its header is not there */
function messageLength(bytes: Buffer): number | undefined {
  const [endianness, , , version] = bytes;
  if (endianness !== undefined && endianness !== LITTLE && endianness !== BIG) throw corrupt("no endianness");
  if (version !== undefined && version !== VERSION) throw corrupt(`version ${version}`);
  if (bytes.length < FIXED_HEADER_BYTES) return undefined;
  const read = (at: number): number => (endianness === LITTLE ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at));
  const length = alignUp(FIXED_HEADER_BYTES + read(12), 8) + read(4);
  if (length > MAX_MESSAGE_BYTES) throw corrupt(`${length} bytes: may have at most ${MAX_MESSAGE_BYTES}`);
  return length;
}

function decodeMessage(bytes: Buffer): DbusMessage {
  const header = new Reader(bytes, 4, FIXED_HEADER_BYTES);
  const bodyLength = header.u32();
  const serial = header.u32();
  const fieldsEnd = FIXED_HEADER_BYTES + header.u32();
  const fields = readFields(new Reader(bytes, FIXED_HEADER_BYTES, fieldsEnd));
  const text = (code: number): string => {
    const value = fields.get(code);
    return typeof value === "string" ? value : "";
  };
  const kind = KINDS[(bytes[1] ?? 0) - 1];
  if (kind === undefined) throw corrupt(`type ${bytes[1]}`);
  return {
    kind,
    serial,
    replySerial: Number(fields.get(FIELD.replySerial) ?? 0),
    path: text(FIELD.path),
    interface: text(FIELD.interface),
    member: text(FIELD.member),
    errorName: text(FIELD.errorName),
    sender: text(FIELD.sender),
    body: readBody(new Reader(bytes, bytes.length - bodyLength, bytes.length), text(FIELD.signature)),
  };
}

function readFields(reader: Reader): ReadonlyMap<number, DbusValue> {
  const fields = new Map<number, DbusValue>();
  while (!reader.isAtEnd) {
    reader.align(8);
    fields.set(reader.byte(), reader.value("v"));
  }
  return fields;
}

function readBody(reader: Reader, signature: string): readonly DbusValue[] {
  if (!/^[ybnqiuxtdsogvh]*$/.test(signature)) return [];
  try {
    return [...signature].map((type) => reader.value(type));
  } catch {
    // A variant of more than a value, say. Where the next message starts is known all the same.
    return [];
  }
}
