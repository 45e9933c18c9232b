/**
 * The fields of the configuration as people read of them: table and documentation together. Never loaded by the agent.
 */
import { formatDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import type { FieldDescription } from "@picolet/protocol/local-api/field-description.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type { Field, FieldTable, Kind, ValueField } from "./configuration-fields.ts";
import type { Documentation } from "./field-documentation.ts";

const TYPES: Readonly<Record<Kind, string>> = {
  duration: "duration",
  bytes: "size",
  text: "string",
  texts: "list of strings",
  textMap: "mapping of strings",
  textsMap: "mapping of lists of strings",
  textOrTexts: "string or list of strings",
  choice: "string",
  int32: "whole number",
  int32s: "list of whole numbers",
  int64: "whole number",
  real: "number",
  flag: "true or false",
  flagMap: "mapping of true or false",
  quantityMap: "mapping of quantities",
  opaque: "mapping",
  opaques: "list of mappings",
};

/**
 * Each field behind the mapping or list that it is in.
 * @throws for a field without documentation
 */
export function describeFields(
  table: FieldTable,
  documentation: Readonly<Record<string, Documentation>>,
): readonly FieldDescription[] {
  return [...described(table, "", { documentation, isActedUpon: undefined })];
}

interface Surroundings {
  readonly documentation: Readonly<Record<string, Documentation>>;
  /** Taken from the top-level field; undefined for that field itself. */
  readonly isActedUpon: boolean | undefined;
}

function* described(table: FieldTable, prefix: string, around: Surroundings): Iterable<FieldDescription> {
  for (const [name, field] of Object.entries(table)) {
    const path = prefix + name;
    const documentation = around.documentation[path];
    if (documentation === undefined) throw new Error(`the field ${path} has no documentation`);
    const meaning = typeof documentation === "string" ? documentation : documentation.meaning;
    const isActedUpon = around.isActedUpon ?? field.isActedUpon === true;
    const byDefault = typeof documentation === "string" ? defaultOf(field) : documentation.byDefault;
    yield { path, type: typeOf(field), default: byDefault, meaning, isActedUpon };
    const inner = { ...around, isActedUpon };
    if ("fields" in field) yield* described(field.fields, `${path}.`, inner);
    else if ("items" in field) yield* described(field.items, `${path}[].`, inner);
  }
}

function typeOf(field: Field): string {
  if ("fields" in field) return "mapping";
  if ("items" in field) return "list of mappings";
  const { kind, choices } = field;
  const range = field.isRequired ? "required" : rangeOf(field);
  if (choices !== undefined) return `one of ${choices.map((each) => (each === "" ? '""' : each)).join(", ")}`;
  return range === "" ? TYPES[kind] : `${TYPES[kind]}, ${range}`;
}

function rangeOf({ kind, min, max }: ValueField): string {
  if (min === undefined) return "";
  if (max !== undefined) return `${shown(kind, min)} to ${shown(kind, max)}`;
  // Everything that is written without a sign.
  return min === 0 || (min === 1 && kind !== "int32") ? "" : `at least ${shown(kind, min)}`;
}

/** `undefined`: no value. */
function defaultOf(field: Field): string | undefined {
  if ("fields" in field) return undefined;
  if ("items" in field) return "[]";
  const { kind, default: value } = field;
  return value === undefined ? undefined : shown(kind, value);
}

function shown(kind: Kind, value: unknown): string {
  // "4h" instead of Go's "4h0m0s": the file takes both.
  if (kind === "duration")
    return formatDuration(value as Millis)
      .replace(/(?<=m)0s$/, "")
      .replace(/(?<=h)0m$/, "");
  if (kind === "bytes") return formatQuantity({ nano: BigInt(value as number) * 1_000_000_000n, format: "BinarySI" });
  return typeof value === "string" && value !== "" ? value : JSON.stringify(value);
}
