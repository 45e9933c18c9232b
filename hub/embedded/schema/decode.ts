/**
 * Decodes a body into its types as Kubernetes does: wrong types are refused, unknown and doubled fields are
 * reported, quantities given as numbers become text. Every object passes here before it is stored, after patches too,
 * so the limits on the size of objects are checked here.
 */
import { MAX_KEYS, MAX_LIST_ITEMS, MAX_VALUES, tooLarge } from "../api/limits.ts";
import type { FieldType, ModelSource } from "./models.ts";

export interface Decoded {
  /** `unknown field "spec.foo"`, in the order met; at most MAX_REPORTED. */
  readonly unknown: readonly string[];
  /** Go's text for the first value of a wrong type. */
  readonly mismatch: string | undefined;
}

/** Kubernetes reports as many strict errors of one body. */
const MAX_REPORTED = 100;
/** Longer paths are cut: a hundred of them may begin with the same key of a megabyte. */
const MAX_PATH_LENGTH = 512;

const typeName = (value: unknown): string => {
  if (Array.isArray(value)) return "array";
  return value === null ? "null" : typeof value === "boolean" ? "bool" : typeof value;
};

const goName = (type: FieldType): string => {
  switch (type.kind) {
    case "integer":
      return type.format;
    case "number":
      return "float64";
    case "boolean":
      return "bool";
    case "array":
      return `[]${goName(type.items)}`;
    case "map":
      return `map[string]${goName(type.values)}`;
    case "object":
      return `v1.${type.model.replace(/^V\d+((alpha|beta)\d+)?/, "")}`;
    case "date-time":
      return "v1.Time";
    case "micro-time":
      return "v1.MicroTime";
    default:
      return "string";
  }
};

/** Gives null in a list or a map the zero value of its type, as Go does: no reader of an object expects null there. */
function zeroOf({ kind }: FieldType): unknown {
  switch (kind) {
    case "object":
    case "map":
      return {};
    case "array":
      return [];
    case "integer":
    case "number":
    case "int-or-string":
      return 0;
    case "boolean":
      return false;
    case "quantity":
      return "0";
    case "string":
    case "bytes":
      return "";
    default:
      return null;
  }
}

class Decoder {
  readonly #source: ModelSource;
  /** True when the object must not be changed. */
  readonly #isReadOnly: boolean;
  readonly unknown: string[] = [];
  mismatch: string | undefined;
  #values = 0;

  constructor(source: ModelSource, isReadOnly: boolean) {
    this.#source = source;
    this.#isReadOnly = isReadOnly;
  }

  /** @returns the decoded form of `value` */
  visit(value: unknown, type: FieldType, path: string): unknown {
    if (value === null || value === undefined) return value;
    this.#count(value, path);
    switch (type.kind) {
      case "any":
        this.#countWithin(value, path);
        return value;
      case "object":
        return this.#object(value, type.model, path);
      case "map":
        return this.#map(value, type, path);
      case "array":
        return this.#array(value, type, path);
      default:
        return this.#scalar(value, type, path);
    }
  }

  /** @throws StatusError 413 */
  #count(value: unknown, path: string): void {
    this.#values += 1;
    if (this.#values > MAX_VALUES) throw tooLarge(`the object holds more than ${MAX_VALUES} values`);
    if (typeof value !== "object" || value === null) return;
    const isList = Array.isArray(value);
    const size = isList ? value.length : Object.keys(value).length;
    const limit = isList ? MAX_LIST_ITEMS : MAX_KEYS;
    if (size <= limit) return;
    const shown = path.slice(0, MAX_PATH_LENGTH) || "the object";
    throw tooLarge(`${shown} has ${size} ${isList ? "items" : "keys"}, limit is ${limit}`);
  }

  #countWithin(value: unknown, path: string): void {
    if (typeof value !== "object" || value === null) return;
    for (const inner of Object.values(value)) {
      this.#count(inner, path);
      this.#countWithin(inner, path);
    }
  }

  #object(value: unknown, name: string, path: string): unknown {
    if (typeof value !== "object" || Array.isArray(value))
      return this.#refuse(value, { kind: "object", model: name }, path);
    const { fields } = this.#source.get(name);
    const object = value as Record<string, unknown>;
    for (const [key, item] of Object.entries(object)) {
      const field = fields.get(key);
      const inner = path === "" ? key : `${path}.${key}`;
      // Go decodes null to what a missing field has.
      if (field !== undefined && item === null && field.type.kind !== "any") this.#remove(object, key);
      else if (field !== undefined) this.#set(object, key, this.visit(item, field.type, inner));
      else {
        if (this.unknown.length < MAX_REPORTED) this.unknown.push(`unknown field "${inner.slice(0, MAX_PATH_LENGTH)}"`);
        // As in Kubernetes, whose types have no place for it.
        this.#remove(object, key);
      }
    }
    return object;
  }

  #map(value: unknown, type: FieldType & { kind: "map" }, path: string): unknown {
    if (typeof value !== "object" || Array.isArray(value)) return this.#refuse(value, type, path);
    const object = value as Record<string, unknown>;
    for (const [key, item] of Object.entries(object)) {
      const visited = item === null ? zeroOf(type.values) : this.visit(item, type.values, `${path}.${key}`);
      this.#set(object, key, visited);
    }
    return object;
  }

  #array(value: unknown, type: FieldType & { kind: "array" }, path: string): unknown {
    if (!Array.isArray(value)) return this.#refuse(value, type, path);
    for (const [index, item] of value.entries()) {
      const visited = item === null ? zeroOf(type.items) : this.visit(item, type.items, `${path}[${index}]`);
      if (!this.#isReadOnly) value[index] = visited;
    }
    return value;
  }

  #set(object: Record<string, unknown>, key: string, value: unknown): void {
    if (!this.#isReadOnly && object[key] !== value) object[key] = value;
  }

  #remove(object: Record<string, unknown>, key: string): void {
    if (!this.#isReadOnly) delete object[key];
  }

  #scalar(value: unknown, type: FieldType, path: string): unknown {
    if (type.kind === "quantity" && typeof value === "number") return String(value);
    if (type.kind === "int-or-string" && (typeof value === "string" || Number.isInteger(value))) return value;
    const fits =
      type.kind === "boolean"
        ? typeof value === "boolean"
        : type.kind === "integer"
          ? Number.isInteger(value)
          : type.kind === "number"
            ? typeof value === "number"
            : typeof value === "string";
    if (!fits) return this.#refuse(value, type, path);
    if ((type.kind === "date-time" || type.kind === "micro-time") && !isTime(String(value))) {
      this.mismatch ??= `parsing time ${JSON.stringify(JSON.stringify(value))} as "2006-01-02T15:04:05Z07:00": cannot parse`;
    }
    if (type.kind === "bytes" && !isBase64(String(value))) {
      this.mismatch ??= `illegal base64 data at input byte 0 in ${path.slice(0, MAX_PATH_LENGTH)}`;
    }
    return value;
  }

  #refuse(value: unknown, type: FieldType, path: string): unknown {
    this.mismatch ??= `json: cannot unmarshal ${typeName(value)} into Go struct field ${path.slice(0, MAX_PATH_LENGTH)} of type ${goName(type)}`;
    return value;
  }
}

const isTime = (text: string): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/**
 * Line breaks may stand anywhere. They are taken out first: a pattern that allows them twice tries every way to divide
 * them.
 */
const isBase64 = (text: string): boolean => /^[A-Za-z0-9+/]*={0,2}$/.test(text.replace(/[\r\n]/g, ""));

/**
 * Checks `object` against a model, in place: unknown fields are removed, quantities made text. @throws StatusError 413
 */
export function decodeInto(source: ModelSource, model: string, object: Record<string, unknown>): Decoded {
  return decode(new Decoder(source, false), model, object);
}

/** As `decodeInto`, and leaves the object as it is. */
export function checkModel(source: ModelSource, model: string, object: Record<string, unknown>): Decoded {
  return decode(new Decoder(source, true), model, object);
}

function decode(decoder: Decoder, model: string, object: Record<string, unknown>): Decoded {
  decoder.visit(object, { kind: "object", model }, "");
  return { unknown: decoder.unknown, mismatch: decoder.mismatch };
}
