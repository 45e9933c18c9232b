/**
 * Compares a message of ours with a published one by what goes over the wire: values by published names, in both
 * directions.
 */
import { crc32 } from "node:zlib";
import { describeError } from "@picolet/protocol/errors.ts";
import {
  bigInt64,
  bool,
  bytes,
  double,
  type Field,
  int32,
  int32s,
  int64s,
  type MessageType,
  message,
  nested,
  repeated,
  string,
  stringMap,
  strings,
  uint32,
  uint64,
} from "@picolet/runtime-cri/wire/protobuf.ts";
import type { PublishedApi, PublishedField } from "../unit/cri/published-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: any message, by what it is called
type AnyMessage = MessageType<any, any>;
// biome-ignore lint/suspicious/noExplicitAny: any field
type AnyField = Field<any, any>;
type Value = Readonly<Record<string, unknown>>;

export interface ComparisonInit {
  /** Keys of maps of which a message decodes some alone. */
  readonly mapKeys?: readonly string[];
}

/** A bool takes a bit of its field's hash in each: two fields have the same in all of them once in 65,536 times. */
const ROUNDS = 16;
const NANOSECONDS_PER_MS = 1_000_000;
const SINGLE: Readonly<Record<string, (number: number) => AnyField>> = {
  ...{ string, bytes, bool, enum: int32, int32, uint32, int64: bigInt64, uint64, double },
};
const LISTS: Readonly<Record<string, (number: number) => AnyField>> = {
  ...{ string: strings, int32: int32s, enum: int32s, int64: int64s },
};

interface Naming {
  readonly keyOf: (name: string) => string;
  /** Another number than the published one, for tests of the comparison. */
  readonly numberOf: (owner: string, field: PublishedField) => number;
}
const AS_PUBLISHED: Naming = { keyOf: (name) => name, numberOf: (_, { number }) => number };

export function publishedMessage(api: PublishedApi, name: string, naming = AS_PUBLISHED): AnyMessage {
  const { keyOf, numberOf } = naming;
  const made = new Map<string, AnyMessage>();
  const messageOf = (owner: string): AnyMessage => {
    const known = made.get(owner);
    if (known !== undefined) return known;
    const built = message(
      owner,
      Object.fromEntries(api.fieldsOf(owner).map((field) => [keyOf(field.name), fieldOf(owner, field)])),
    );
    made.set(owner, built);
    return built;
  };
  const fieldOf = (owner: string, field: PublishedField): AnyField => {
    const { label, type } = field;
    const number = numberOf(owner, field);
    if (label === "map") return stringMap(number);
    if (api.messages.has(type)) return (label === "repeated" ? repeated : nested)(number, messageOf(type));
    const make = (label === "repeated" ? LISTS : SINGLE)[type];
    if (make === undefined) throw new Error(`${owner}.${field.name}: no ${label} field of ${type} is known here`);
    return make(number);
  };
  return messageOf(name);
}

/** @returns a line for each difference; empty: every field of ours has the published number, name and type */
export function differences(api: PublishedApi, name: string, ours: AnyMessage, init: ComparisonInit = {}): string[] {
  const published = publishedMessage(api, name);
  const found = new Set<string>();
  try {
    for (let round = 0; round < ROUNDS && found.size === 0; round += 1) {
      const sample = sampleOf(api, name, name, { round, mapKeys: init.mapKeys ?? [] });
      const decoded = ours.decode(published.encode(sample)) as Value;
      for (const each of unlike(api, name, decoded, sample, name)) found.add(`decoding ${each}`);
      if (found.size > 0) break;
      const encoded = published.decode(ours.encode(decoded)) as Value;
      for (const each of unlike(api, name, decoded, encoded, name)) found.add(`encoding ${each}`);
    }
  } catch (error) {
    found.add(`${name}: ${describeError(error)}`);
  }
  return [...found];
}

interface Sampling {
  readonly round: number;
  readonly mapKeys: readonly string[];
}

/** Every field has a value that no other one has, made of its path. */
function sampleOf(api: PublishedApi, name: string, path: string, sampling: Sampling): Value {
  const entries = api.fieldsOf(name).map((field) => {
    const at = `${path}.${field.name}`;
    const { label, type } = field;
    if (label === "map") return [field.name, new Map(["key", ...sampling.mapKeys].map((key) => [key, `${at}.${key}`]))];
    const one = api.messages.has(type) ? sampleOf(api, type, at, sampling) : scalarOf(type, at, sampling.round, label);
    return [field.name, label === "repeated" ? [one] : one];
  });
  return Object.fromEntries(entries) as Value;
}

function scalarOf(type: string, path: string, round: number, label: PublishedField["label"]): unknown {
  const hash = crc32(path);
  if (type === "string") return path;
  if (type === "bytes") return new Uint8Array(Buffer.from(path));
  if (type === "bool") return ((hash >>> round) & 1) === 1;
  if (type === "double") return hash / 4;
  if (type === "uint32") return 2 ** 31 + (hash >>> 1);
  if (type === "uint64") return 2 ** 50 + hash;
  if (type === "int64") return label === "repeated" ? -(2 ** 40) - hash : -(2n ** 50n) - BigInt(hash);
  return -1 - (hash >>> 1);
}

/** As names are in TypeScript: `CDI_devices` is `cdiDevices`. */
export function camelCase(name: string): string {
  const [first = "", ...rest] = name.split("_");
  const begin = first === first.toUpperCase() ? first.toLowerCase() : first.slice(0, 1).toLowerCase() + first.slice(1);
  return begin + rest.map((each) => each.slice(0, 1).toUpperCase() + each.slice(1)).join("");
}

/** @param given by the published names */
function unlike(api: PublishedApi, type: string, ours: Value, given: Value, path: string): string[] {
  const fields = new Map(api.fieldsOf(type).map((field) => [camelCase(field.name), field]));
  return Object.entries(ours).flatMap(([key, value]) => {
    const at = `${path}.${key}`;
    const inMs = key.endsWith("Ms") ? fields.get(key.slice(0, -"Ms".length)) : undefined;
    const field = fields.get(key) ?? inMs;
    if (field === undefined) return [`${at}: ${type} has no such field`];
    const wanted = given[field.name];
    const what = `${at}: ${type} has ${field.name} = ${field.number}, ${field.label} ${field.type}`;
    if (field === inMs) return value === Math.floor(Number(wanted) / NANOSECONDS_PER_MS) ? [] : [what];
    if (field.label === "map") {
      const map = value instanceof Map ? value : new Map();
      const isLike =
        map.size > 0 && [...map].every(([key, each]) => (wanted as ReadonlyMap<string, string>).get(key) === each);
      return isLike ? [] : [what];
    }
    const [one, other] = [value, wanted].map((each) =>
      field.label === "repeated" ? (each as readonly unknown[])[0] : each,
    );
    if (api.messages.has(field.type)) {
      if (typeof one !== "object" || one === null) return [what];
      return unlike(api, field.type, one as Value, other as Value, at);
    }
    return isSame(one, other) ? [] : [what];
  });
}

function isSame(ours: unknown, given: unknown): boolean {
  if (ours instanceof Uint8Array && given instanceof Uint8Array) return Buffer.compare(ours, given) === 0;
  const [one, other] = [ours, given].map((each) => (typeof each === "bigint" ? Number(each) : each));
  return one === other;
}
