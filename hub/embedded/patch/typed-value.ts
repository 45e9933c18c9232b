/** One step into a value by Kubernetes' types: how server-side apply and managedFields take objects and lists apart. */
import { isRecord } from "@picolet/protocol/guards.ts";
import { isAtomicObject, type ListRule, listRuleOf } from "../schema/merge-keys.ts";
import type { FieldType, ModelSource } from "../schema/models.ts";

/** The type of a place in an object. */
export interface Place {
  readonly type: FieldType | undefined;
  /** Set where the place is a list that is merged. */
  readonly rule: ListRule | undefined;
}

/** A member of an object or list, under its segment of a fieldsV1 path: `f:spec`, `k:{"name":"a"}`, `v:"x"`. */
export interface Member {
  readonly segment: string;
  readonly value: unknown;
  readonly place: Place;
}

/** Kubernetes' defaults for keys that may be left out. */
const KEY_DEFAULTS: Readonly<Record<string, unknown>> = { protocol: "TCP" };

export function keySegment(item: unknown, { keys }: ListRule): string {
  const fields = isRecord(item) ? item : {};
  const pairs = [...keys].sort().map((key): [string, unknown] => [key, fields[key] ?? KEY_DEFAULTS[key] ?? null]);
  return `k:${JSON.stringify(Object.fromEntries(pairs))}`;
}

/** The members that are owned one by one; undefined: the value is one whole (a scalar, an atomic list or object). */
export function membersOf(models: ModelSource, value: unknown, { type, rule }: Place): readonly Member[] | undefined {
  if (Array.isArray(value)) {
    if (rule === undefined || rule.only === "strategic") return undefined;
    if (rule.type === "set") {
      return value.map((item: unknown) => ({ segment: `v:${JSON.stringify(item)}`, value: item, place: LEAF }));
    }
    const place: Place = { type: type?.kind === "array" ? type.items : undefined, rule: undefined };
    return value.map((item: unknown) => ({ segment: keySegment(item, rule), value: item, place }));
  }
  if (!isRecord(value)) return undefined;
  if (type?.kind === "object") {
    const { model } = type;
    if (isAtomicObject(model)) return undefined;
    const { fields } = models.get(model);
    return Object.entries(value).map(([key, item]) => ({
      segment: `f:${key}`,
      value: item,
      place: { type: fields.get(key)?.type, rule: listRuleOf(model, key) },
    }));
  }
  if (type?.kind === "map") {
    const place: Place = { type: type.values, rule: undefined };
    return Object.entries(value).map(([key, item]) => ({ segment: `f:${key}`, value: item, place }));
  }
  return undefined;
}

const LEAF: Place = { type: undefined, rule: undefined };

export const rootPlace = (model: string): Place => ({ type: { kind: "object", model }, rule: undefined });
