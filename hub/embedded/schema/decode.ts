/**
 * What Kubernetes does when it decodes a body into its types: wrong types are refused, unknown and doubled fields are
 * reported, quantities given as numbers become text.
 */
import type { FieldType, ModelSource } from "./models.ts";

export interface Decoded {
  /** `unknown field "spec.foo"`, in the order met; at most MAX_REPORTED. */
  readonly unknown: readonly string[];
  /** What cannot be of its type: Go's text for it. The first alone counts. */
  readonly mismatch: string | undefined;
}

/** Kubernetes reports as many strict errors of one body. */
const MAX_REPORTED = 100;

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

class Decoder {
  readonly #source: ModelSource;
  readonly unknown: string[] = [];
  mismatch: string | undefined;

  constructor(source: ModelSource) {
    this.#source = source;
  }

  /** @returns what stands for `value` */
  visit(value: unknown, type: FieldType, path: string): unknown {
    if (value === null || value === undefined) return value;
    switch (type.kind) {
      case "any":
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

  #object(value: unknown, name: string, path: string): unknown {
    if (typeof value !== "object" || Array.isArray(value))
      return this.#refuse(value, { kind: "object", model: name }, path);
    const { fields } = this.#source.get(name);
    const object = value as Record<string, unknown>;
    for (const [key, item] of Object.entries(object)) {
      const field = fields.get(key);
      const inner = path === "" ? key : `${path}.${key}`;
      // Go decodes null to what a missing field has.
      if (field !== undefined && item === null && field.type.kind !== "any") delete object[key];
      else if (field !== undefined) object[key] = this.visit(item, field.type, inner);
      else {
        if (this.unknown.length < MAX_REPORTED) this.unknown.push(`unknown field "${inner}"`);
        // As in Kubernetes, whose types have no place for it.
        delete object[key];
      }
    }
    return object;
  }

  #map(value: unknown, type: FieldType & { kind: "map" }, path: string): unknown {
    if (typeof value !== "object" || Array.isArray(value)) return this.#refuse(value, type, path);
    const object = value as Record<string, unknown>;
    for (const [key, item] of Object.entries(object)) {
      // Go decodes null to the zero value.
      if (item === null && type.values.kind === "string") object[key] = "";
      else object[key] = this.visit(item, type.values, `${path}.${key}`);
    }
    return object;
  }

  #array(value: unknown, type: FieldType & { kind: "array" }, path: string): unknown {
    if (!Array.isArray(value)) return this.#refuse(value, type, path);
    for (const [index, item] of value.entries()) value[index] = this.visit(item, type.items, `${path}[${index}]`);
    return value;
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
    if (type.kind === "bytes" && !/^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$/.test(String(value))) {
      this.mismatch ??= `illegal base64 data at input byte 0 in ${path}`;
    }
    return value;
  }

  #refuse(value: unknown, type: FieldType, path: string): unknown {
    this.mismatch ??= `json: cannot unmarshal ${typeName(value)} into Go struct field ${path} of type ${goName(type)}`;
    return value;
  }
}

const isTime = (text: string): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/** Checks `object` against a model, in place: unknown fields are removed, quantities made text. */
export function decodeInto(source: ModelSource, model: string, object: Record<string, unknown>): Decoded {
  const decoder = new Decoder(source);
  decoder.visit(object, { kind: "object", model }, "");
  return { unknown: decoder.unknown, mismatch: decoder.mismatch };
}
