/**
 * The schema of the configuration, made of its table of fields. Unknown fields are refused with the nearest known name.
 * What is missing stays missing here; `configuration-defaults.ts` fills it in.
 */

import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import * as z from "zod/mini";
import type { Field, FieldTable, Kind } from "./configuration-fields.ts";

function refuse(context: z.core.ParsePayload, input: unknown, message: string): never {
  context.issues.push({ code: "custom", message, input });
  return z.NEVER;
}

type Kinds = Readonly<Record<Exclude<Kind, "choice">, z.core.$ZodType>>;

function makeKinds(): Kinds {
  const text = z.string();
  const texts = z.array(text);
  return {
    duration: z.pipe(
      z.union([z.string(), z.number()]),
      z.transform((value: string | number, context): Millis => {
        const parsed = typeof value === "string" ? parseDuration(value) : undefined;
        return parsed ?? refuse(context, value, 'must be a duration such as "20s" or "1m30s"');
      }),
    ),
    bytes: z.pipe(
      z.union([z.string(), z.number()]),
      z.transform((value: string | number, context): number => {
        const parsed = parseQuantity(String(value));
        if (!parsed.ok) return refuse(context, value, `${parsed.problem}${unitHint(value)}`);
        const count = quantityValue(parsed.quantity);
        if (count > BigInt(Number.MAX_SAFE_INTEGER)) return refuse(context, value, "is too large");
        return Number(count);
      }),
    ),
    text,
    texts,
    textMap: z.record(text, text),
    textsMap: z.record(text, texts),
    textOrTexts: z.pipe(
      z.unknown(),
      z.transform((value: unknown, context): string[] => {
        const list = typeof value === "string" ? [value] : value;
        const isTexts = Array.isArray(list) && list.every((each) => typeof each === "string");
        return isTexts ? list : refuse(context, value, "must be a string or a list of strings");
      }),
    ),
    int32: z.int32(),
    int32s: z.array(z.int32()),
    int64: z.int(),
    real: z.number(),
    flag: z.boolean(),
    flagMap: z.record(text, z.boolean()),
    quantityMap: z.record(text, z.union([z.string(), z.number()])),
    opaque: z.record(text, z.unknown()),
    opaques: z.array(z.record(text, z.unknown())),
  };
}

/** Makes the schema. It is not kept, because a configuration is read once and the schema would stay in memory. */
export const makeConfigurationSchema = (table: FieldTable): z.core.$ZodType => mappingOf(table, makeKinds());

function mappingOf(table: FieldTable, kinds: Kinds): z.core.$ZodType {
  const shape = Object.entries(table).map(([name, field]) => {
    const schema = schemaOf(field, kinds);
    return [name, "isRequired" in field ? schema : z.optional(schema)] as const;
  });
  return z.object(Object.fromEntries(shape));
}

function schemaOf(field: Field, kinds: Kinds): z.core.$ZodType {
  if ("fields" in field) return mappingOf(field.fields, kinds);
  if ("items" in field) return z.array(mappingOf(field.items, kinds));
  return field.kind === "choice" ? z.enum([...(field.choices ?? [])]) : kinds[field.kind];
}

export interface UnknownField {
  /** As in a problem: `crashLoopBackOff.maxContainerRestartPeriod`. */
  readonly path: string;
  /** The field of that place whose name is most like it, if any is. */
  readonly nearest: string | undefined;
}

/** Fields of `value` that `schema` does not have, at any depth. */
export function unknownFields(schema: z.core.$ZodType, value: unknown, path = ""): UnknownField[] {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (def.type === "optional") return unknownFields(def.innerType, value, path);
  if (def.type === "array" && Array.isArray(value)) {
    return value.flatMap((item, index) => unknownFields(def.element, item, `${path}[${index}]`));
  }
  if (def.type !== "object" || typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, field]) => {
    const known = Object.hasOwn(def.shape, key) ? def.shape[key] : undefined;
    if (known !== undefined) return unknownFields(known, field, childPath(path, key));
    return [{ path: childPath(path, key), nearest: nearestName(key, Object.keys(def.shape)) }];
  });
}
