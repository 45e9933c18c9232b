/**
 * Kubernetes' protobuf encoding of objects (`application/vnd.kubernetes.protobuf`), read into the JSON that stands for
 * the same object. kubectl and typed Go clients send it; they all take JSON for an answer.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { VarintReader } from "@picolet/protocol/varint-reader.ts";
import { MAX_BODY_VALUES, MAX_DEPTH, tooLarge } from "../api/limits.ts";
import type { FieldType, ModelSource } from "./models.ts";
import { PROTOBUF_FIELDS } from "./protobuf-fields.ts";
import { scanJson } from "./scan-json.ts";

export const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

const MAGIC = Buffer.from("k8s\0");
type Fields = Record<string, unknown>;

interface MessageField {
  readonly name: string;
  readonly keepsZero: boolean;
  /** Set where the message's fields are the outer one's. */
  readonly inlined: string | undefined;
}

const malformed = (why: string): PicoletError => new PicoletError("invalid", `cannot decode protobuf: ${why}`);

type WireValue =
  | { readonly kind: "varint"; readonly value: bigint }
  | { readonly kind: "bytes"; readonly value: Buffer }
  | { readonly kind: "fixed"; readonly value: Buffer };

/**
 * Fields that one body may still have, unknown and empty ones too: the smallest takes two bytes, and every one takes
 * time.
 */
class FieldBudget {
  #left = MAX_BODY_VALUES;

  /** @throws StatusError 413 */
  take(): void {
    this.#left -= 1;
    if (this.#left < 0) throw tooLarge(`it holds more than ${MAX_BODY_VALUES} values`);
  }
}

class WireReader extends VarintReader {
  readonly #budget: FieldBudget;

  constructor(bytes: Buffer, budget: FieldBudget) {
    super(bytes, 0, bytes.length);
    this.#budget = budget;
  }

  protected override malformed(why: string): PicoletError {
    return malformed(why);
  }

  *fields(): Iterable<readonly [number: number, value: WireValue]> {
    while (this.position < this.end) {
      this.#budget.take();
      const tag = this.varint32();
      yield [tag >>> 3, this.#value(tag & 7)];
    }
  }

  #value(wireType: number): WireValue {
    switch (wireType) {
      case 0:
        return { kind: "varint", value: this.#unsigned() };
      case 1:
        return { kind: "fixed", value: this.#take(8) };
      case 2:
        return { kind: "bytes", value: this.#take(Number(this.#unsigned())) };
      case 5:
        return { kind: "fixed", value: this.#take(4) };
      default:
        throw malformed(`wire type ${wireType}`);
    }
  }

  #take(length: number): Buffer {
    if (length > this.end - this.position) throw malformed("it ends within a field");
    this.position += length;
    return this.bytes.subarray(this.position - length, this.position);
  }

  #unsigned(): bigint {
    this.varint64();
    return (BigInt(this.high) << 32n) | BigInt(this.low);
  }
}

const signed = (value: bigint): number => Number(BigInt.asIntN(64, value));

export interface Envelope {
  readonly apiVersion: string;
  readonly kind: string;
  readonly raw: Buffer;
}

/** @throws `invalid` */
export function readEnvelope(bytes: Buffer): Envelope {
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) throw malformed("it does not begin with k8s");
  let apiVersion = "";
  let kind = "";
  let raw: Buffer = Buffer.alloc(0);
  const budget = new FieldBudget();
  for (const [number, { kind: wire, value }] of new WireReader(bytes.subarray(MAGIC.length), budget).fields()) {
    if (wire !== "bytes") continue;
    if (number === 2) raw = value;
    if (number !== 1) continue;
    for (const [inner, text] of new WireReader(value, budget).fields()) {
      if (text.kind !== "bytes") continue;
      if (inner === 1) apiVersion = text.value.toString("utf8");
      if (inner === 2) kind = text.value.toString("utf8");
    }
  }
  return { apiVersion, kind, raw };
}

/** The place in a body at which a message is read. */
interface Scope {
  readonly depth: number;
  readonly budget: FieldBudget;
}

const within = ({ depth, budget }: Scope): Scope => ({ depth: depth + 1, budget });

/** Reads messages by the table of field numbers and the types of the models. */
export class ProtobufReader {
  readonly #models: ModelSource;
  readonly #messages = new Map<string, ReadonlyMap<number, MessageField>>();

  constructor(models: ModelSource) {
    this.#models = models;
  }

  /** @param model `V1Pod` @throws `invalid` for what is no such message, `not_found` for a model without a table */
  read(model: string, bytes: Buffer): Fields {
    return this.#message(model, model, bytes, { depth: 0, budget: new FieldBudget() });
  }

  /** @param typed the model that says what the message's fields are in JSON: the outer one of an inlined message */
  #message(message: string, typed: string, bytes: Buffer, scope: Scope): Fields {
    if (scope.depth > MAX_DEPTH) throw malformed("it nests too deeply");
    const table = this.#tableOf(message);
    const object: Fields = {};
    for (const [number, value] of new WireReader(bytes, scope.budget).fields()) {
      const field = table.get(number);
      if (field === undefined) continue;
      if (field.inlined !== undefined) {
        if (value.kind === "bytes")
          Object.assign(object, this.#message(field.inlined, typed, value.value, within(scope)));
        continue;
      }
      const type = this.#typeOf(typed, field.name);
      if (type !== undefined) this.#set(object, field, type, value, scope);
    }
    return object;
  }

  #typeOf(model: string, field: string): FieldType | undefined {
    return this.#models.get(model).fields.get(field)?.type;
  }

  #set(object: Fields, { name, keepsZero }: MessageField, type: FieldType, value: WireValue, scope: Scope): void {
    if (type.kind === "array") {
      const list = (object[name] ?? []) as unknown[];
      object[name] = list;
      list.push(...this.#items(type.items, value, scope));
      return;
    }
    if (type.kind === "map") {
      if (value.kind !== "bytes") throw malformed(`${name} is no map`);
      const map = (object[name] ?? {}) as Fields;
      object[name] = map;
      const [key, item] = this.#entry(type.values, value.value, scope);
      if (key === "__proto__") throw malformed('the key "__proto__" is not allowed');
      map[key] = item;
      return;
    }
    const read = this.#single(type, value, scope);
    const isZero = read === "" || read === 0 || read === false || read === undefined;
    if (!isZero || (keepsZero && read !== undefined)) object[name] = read;
  }

  #items(type: FieldType, value: WireValue, scope: Scope): readonly unknown[] {
    const isNumber = type.kind === "integer" || type.kind === "boolean";
    if (!isNumber || value.kind !== "bytes") return [this.#single(type, value, scope)];
    // Packed: one number after the other, without tags.
    return [...packed(value.value, scope.budget)].map((each) =>
      this.#single(type, { kind: "varint", value: each }, scope),
    );
  }

  #entry(type: FieldType, bytes: Buffer, scope: Scope): readonly [string, unknown] {
    let key = "";
    let item: unknown = type.kind === "array" ? [] : type.kind === "object" ? {} : "";
    for (const [number, value] of new WireReader(bytes, scope.budget).fields()) {
      if (value.kind !== "bytes") continue;
      if (number === 1) key = value.value.toString("utf8");
      // A list in a map is a message with the list as its first field.
      else if (number === 2 && type.kind === "array") item = this.#listMessage(type.items, value.value, scope);
      else if (number === 2) item = this.#single(type, value, scope);
    }
    return [key, item];
  }

  #listMessage(type: FieldType, bytes: Buffer, scope: Scope): unknown[] {
    const list: unknown[] = [];
    for (const [number, value] of new WireReader(bytes, scope.budget).fields()) {
      if (number === 1) list.push(this.#single(type, value, scope));
    }
    return list;
  }

  #single(type: FieldType, value: WireValue, scope: Scope): unknown {
    if (value.kind === "varint") return type.kind === "boolean" ? value.value !== 0n : signed(value.value);
    if (value.kind === "fixed")
      return value.value.length === 8 ? value.value.readDoubleLE() : value.value.readFloatLE();
    const bytes = value.value;
    switch (type.kind) {
      case "string":
        return bytes.toString("utf8");
      case "bytes":
        return bytes.toString("base64");
      case "object":
        return this.#message(type.model, type.model, bytes, within(scope));
      case "quantity":
        return firstText(bytes, scope.budget);
      case "date-time":
        return readTime(bytes, 0, scope.budget);
      case "micro-time":
        return readTime(bytes, 6, scope.budget);
      case "int-or-string":
        return readIntOrString(bytes, scope.budget);
      case "any":
        return readRaw(bytes, scope.budget);
      default:
        throw malformed(`${type.kind} in a field of bytes`);
    }
  }

  #tableOf(message: string): ReadonlyMap<number, MessageField> {
    const known = this.#messages.get(message);
    if (known !== undefined) return known;
    const line = PROTOBUF_FIELDS[message];
    if (line === undefined) throw new PicoletError("not_found", `cannot decode ${message} from protobuf`);
    const table = new Map<number, MessageField>();
    let number = 0;
    for (const token of line.split(" ").filter((each) => each !== "")) {
      const [, explicit, mark, name = "", zero] = /^(?:(\d+):)?(\^)?(\w+)(!)?$/.exec(token) ?? [];
      number = explicit === undefined ? number + 1 : Number(explicit);
      table.set(number, { name, keepsZero: zero !== undefined, inlined: mark === undefined ? undefined : name });
    }
    this.#messages.set(message, table);
    return table;
  }
}

function* packed(bytes: Buffer, budget: FieldBudget): Iterable<bigint> {
  let value = 0n;
  let shift = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 0x7f) << shift;
    shift += 7n;
    if (shift > 70n) throw malformed("a number of more than ten bytes");
    if (byte >= 0x80) continue;
    budget.take();
    yield BigInt.asUintN(64, value);
    value = 0n;
    shift = 0n;
  }
}

function firstText(bytes: Buffer, budget: FieldBudget): string {
  for (const [number, value] of new WireReader(bytes, budget).fields()) {
    if (number === 1 && value.kind === "bytes") return value.value.toString("utf8");
  }
  return "0";
}

/** Undefined: the zero time, which is none. @param digits of the fraction of a second */
function readTime(bytes: Buffer, digits: 0 | 6, budget: FieldBudget): string | undefined {
  if (bytes.length === 0) return undefined;
  let seconds = 0;
  let nanos = 0;
  for (const [number, value] of new WireReader(bytes, budget).fields()) {
    if (value.kind !== "varint") continue;
    if (number === 1) seconds = signed(value.value);
    if (number === 2) nanos = signed(value.value);
  }
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) throw malformed("a time out of range");
  const text = date.toISOString().slice(0, 19);
  return digits === 0 ? `${text}Z` : `${text}.${String(Math.floor(nanos / 1000)).padStart(6, "0")}Z`;
}

function readIntOrString(bytes: Buffer, budget: FieldBudget): string | number {
  let isText = false;
  let number = 0;
  let text = "";
  for (const [field, value] of new WireReader(bytes, budget).fields()) {
    if (field === 1 && value.kind === "varint") isText = value.value === 1n;
    if (field === 2 && value.kind === "varint") number = signed(value.value);
    if (field === 3 && value.kind === "bytes") text = value.value.toString("utf8");
  }
  return isText ? text : number;
}

/** JSON within a message: fieldsV1, raw extensions. */
function readRaw(bytes: Buffer, budget: FieldBudget): unknown {
  const text = firstText(bytes, budget);
  const { isTooDeep, isPoisoned, excess } = scanJson(text);
  if (excess !== undefined) throw tooLarge(excess);
  if (isTooDeep || isPoisoned) throw malformed("JSON that nests too deeply or has a key __proto__");
  try {
    return text === "0" ? undefined : (JSON.parse(text) as unknown);
  } catch (error) {
    throw new PicoletError("invalid", "cannot decode JSON within protobuf", { cause: error });
  }
}
