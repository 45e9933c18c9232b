/** Strategic merge patch (`application/strategic-merge-patch+json`), after Kubernetes' strategicpatch. Pure. */
import { isDeepStrictEqual } from "node:util";
import { type ListRule, listRuleOf } from "../merge-keys.ts";
import { type FieldType, fieldTypeOf, type ModelSource } from "../schema/models.ts";
import { badRequest } from "../status-error.ts";

type Fields = Record<string, unknown>;

const DIRECTIVE = "$patch";
const RETAIN_KEYS = "$retainKeys";
const DELETE_FROM = "$deleteFromPrimitiveList/";
const ORDER = "$setElementOrder/";

const isRecord = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** @throws StatusError 400 for a patch that contradicts itself or the types */
export function strategicMerge(models: ModelSource, model: string, live: Fields, patch: Fields): Fields {
  return mergeObject(models, live, patch, { kind: "object", model });
}

function mergeObject(models: ModelSource, live: Fields, patch: Fields, type: FieldType | undefined): Fields {
  const directive = patch[DIRECTIVE];
  if (directive === "delete") return {};
  if (directive === "replace") return strip(patch) as Fields;
  if (directive !== undefined && directive !== "merge") throw unknownDirective(directive);
  const result: Fields = { ...live };
  retainKeys(result, patch);
  for (const [key, value] of Object.entries(patch)) {
    if (key === DIRECTIVE || key === RETAIN_KEYS || key.startsWith(ORDER)) continue;
    if (key.startsWith(DELETE_FROM)) {
      deleteFromPrimitives(result, key.slice(DELETE_FROM.length), value);
      continue;
    }
    if (value === null) {
      delete result[key];
      continue;
    }
    const inner = fieldTypeOf(models, type, key);
    const order = patch[`${ORDER}${key}`];
    result[key] = mergeField(models, result[key], value, { type: inner, rule: ruleOf(type, key), order });
  }
  // An order may come without changes to the list.
  for (const [key, order] of Object.entries(patch)) {
    if (!key.startsWith(ORDER)) continue;
    const field = key.slice(ORDER.length);
    const rule = ruleOf(type, field);
    const list = result[field];
    if (patch[field] === undefined && Array.isArray(list) && rule !== undefined)
      result[field] = sortByOrder(list, order, list, rule);
  }
  return result;
}

interface FieldContext {
  readonly type: FieldType | undefined;
  readonly rule: ListRule | undefined;
  readonly order: unknown;
}

function ruleOf(type: FieldType | undefined, field: string): ListRule | undefined {
  if (type?.kind !== "object") return undefined;
  const rule = listRuleOf(type.model, field);
  return rule?.only === "apply" ? undefined : rule;
}

function mergeField(models: ModelSource, live: unknown, value: unknown, { type, rule, order }: FieldContext): unknown {
  if (isRecord(value)) return mergeObject(models, isRecord(live) ? live : {}, value, type);
  if (!Array.isArray(value)) return value;
  const before = Array.isArray(live) ? live : [];
  if (rule === undefined) return stripList(value);
  if (rule.type === "set") {
    const items = [...before, ...value.filter((item) => !before.includes(item))];
    return order === undefined ? items : sortByOrder([...new Set(items)], order, before, rule);
  }
  return mergeKeyed(models, before, value, { type, rule, order });
}

/** A list of objects that are told apart by one key. */
function mergeKeyed(
  models: ModelSource,
  live: readonly unknown[],
  patch: readonly unknown[],
  { type, rule, order }: FieldContext & { rule: ListRule },
): unknown[] {
  const key = rule.keys[0] ?? "name";
  const itemType = type?.kind === "array" ? type.items : undefined;
  if (patch.some((item) => isRecord(item) && item[DIRECTIVE] === "replace")) {
    return stripList(
      patch.filter((item) => !(isRecord(item) && item[DIRECTIVE] === "replace" && Object.keys(item).length === 1)),
    );
  }
  let result = [...live];
  for (const item of patch) {
    if (!isRecord(item)) throw badRequest(`expected an object in a list that is merged by ${JSON.stringify(key)}`);
    const { [key]: id } = item;
    if (id === undefined || id === null)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const matches = (each: unknown): boolean => isRecord(each) && isDeepStrictEqual(each[key], id);
    if (item[DIRECTIVE] === "delete") {
      result = result.filter((each) => !matches(each));
      continue;
    }
    const index = result.findIndex(matches);
    const found = result[index];
    if (isRecord(found)) result[index] = mergeObject(models, found, item, itemType);
    else result.push(mergeObject(models, {}, item, itemType));
  }
  return order === undefined ? result : sortByOrder(result, order, live, rule);
}

/** `$retainKeys`: only these of the object stay. */
function retainKeys(result: Fields, patch: Fields): void {
  const kept = patch[RETAIN_KEYS];
  if (kept === undefined) return;
  if (!Array.isArray(kept)) throw badRequest("$retainKeys must be a list of strings");
  for (const key of Object.keys(result)) if (!kept.includes(key)) delete result[key];
}

function deleteFromPrimitives(result: Fields, field: string, value: unknown): void {
  const list = result[field];
  if (!Array.isArray(value)) throw badRequest(`${DELETE_FROM}${field} must be a list`);
  if (!Array.isArray(list)) return;
  const left = list.filter((item) => !value.includes(item));
  if (left.length > 0) result[field] = left;
  else delete result[field];
}

/** The items that `order` names in its order; the others stay behind the item that they stood behind before. */
function sortByOrder(items: readonly unknown[], order: unknown, live: readonly unknown[], rule: ListRule): unknown[] {
  if (!Array.isArray(order)) throw badRequest("$setElementOrder must be a list");
  const key = rule.keys[0] ?? "name";
  const idOf = (item: unknown): string =>
    JSON.stringify(rule.type === "map" && isRecord(item) ? item[key] : item) ?? "";
  const rank = new Map(order.map((item: unknown, index): [string, number] => [idOf(item), index]));
  const listed = items
    .filter((item) => rank.has(idOf(item)))
    .toSorted((a, b) => (rank.get(idOf(a)) ?? 0) - (rank.get(idOf(b)) ?? 0));
  const unlisted = items.filter((item) => !rank.has(idOf(item)));
  const liveIndex = new Map(live.map((item, index): [string, number] => [idOf(item), index]));
  const result: unknown[] = [];
  let next = 0;
  for (const item of listed) {
    const at = liveIndex.get(idOf(item)) ?? Number.POSITIVE_INFINITY;
    while (next < unlisted.length && (liveIndex.get(idOf(unlisted[next])) ?? Number.POSITIVE_INFINITY) < at) {
      result.push(unlisted[next]);
      next += 1;
    }
    result.push(item);
  }
  return [...result, ...unlisted.slice(next)];
}

/** A value that comes whole: without nulls and directives. */
function strip(value: unknown): unknown {
  if (Array.isArray(value)) return stripList(value);
  if (!isRecord(value)) return value;
  const kept = Object.entries(value).filter(([key, inner]) => inner !== null && !key.startsWith("$"));
  return Object.fromEntries(kept.map(([key, inner]) => [key, strip(inner)]));
}

const stripList = (list: readonly unknown[]): unknown[] => list.map(strip);

const unknownDirective = (directive: unknown): Error => badRequest(`Unknown patch type: ${JSON.stringify(directive)}`);
