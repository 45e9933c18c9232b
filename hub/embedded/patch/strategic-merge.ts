/**
 * Strategic merge patch (`application/strategic-merge-patch+json`), after Kubernetes' strategicpatch. Linear in the
 * sizes of object and patch: lists are indexed by their key, and what is live is changed in place instead of copied for
 * each item.
 */
import { isRecord } from "@picolet/protocol/guards.ts";
import { StepBudget } from "../api/limits.ts";
import { badRequest } from "../api/status-error.ts";
import { type ListRule, listRuleOf } from "../schema/merge-keys.ts";
import { type FieldType, fieldTypeOf, type ModelSource } from "../schema/models.ts";

type Fields = Record<string, unknown>;

const DIRECTIVE = "$patch";
const RETAIN_KEYS = "$retainKeys";
const DELETE_FROM = "$deleteFromPrimitiveList/";
const ORDER = "$setElementOrder/";

/**
 * @param live is changed and returned in parts
 * @param budget counts the fields and list items of the patch and of the lists that it merges
 * @throws StatusError 400 for a patch that contradicts itself or the types, 413
 */
export function strategicMerge(
  models: ModelSource,
  model: string,
  live: Fields,
  patch: Fields,
  budget = new StepBudget(),
): Fields {
  return new StrategicMerge(models, budget).object(live, patch, { kind: "object", model });
}

interface FieldContext {
  readonly type: FieldType | undefined;
  readonly rule: ListRule | undefined;
  readonly order: unknown;
}

class StrategicMerge {
  readonly #models: ModelSource;
  readonly #budget: StepBudget;

  constructor(models: ModelSource, budget: StepBudget) {
    this.#models = models;
    this.#budget = budget;
  }

  object(live: Fields, patch: Fields, type: FieldType | undefined): Fields {
    const directive = patch[DIRECTIVE];
    if (directive === "delete") return {};
    if (directive === "replace") return strip(patch) as Fields;
    if (directive !== undefined && directive !== "merge") throw unknownDirective(directive);
    retainKeys(live, patch);
    for (const [key, value] of Object.entries(patch)) {
      this.#budget.spend(1);
      if (key === DIRECTIVE || key === RETAIN_KEYS || key.startsWith(ORDER)) continue;
      if (key.startsWith(DELETE_FROM)) deleteFromPrimitives(live, key.slice(DELETE_FROM.length), value);
      else if (value === null) delete live[key];
      else {
        const inner = fieldTypeOf(this.#models, type, key);
        const order = patch[`${ORDER}${key}`];
        live[key] = this.#field(live[key], value, { type: inner, rule: ruleOf(type, key), order });
      }
    }
    // An order may come without changes to the list.
    for (const [key, order] of Object.entries(patch)) {
      if (!key.startsWith(ORDER)) continue;
      const field = key.slice(ORDER.length);
      const rule = ruleOf(type, field);
      const list = live[field];
      if (patch[field] !== undefined || !Array.isArray(list) || rule === undefined) continue;
      live[field] = this.#sorted(list, order, list, rule);
    }
    return live;
  }

  #field(live: unknown, value: unknown, { type, rule, order }: FieldContext): unknown {
    if (isRecord(value)) return this.object(isRecord(live) ? live : {}, value, type);
    if (!Array.isArray(value)) return value;
    const before: readonly unknown[] = Array.isArray(live) ? live : [];
    if (rule === undefined) return stripList(value);
    if (rule.type === "set") {
      this.#budget.spend(before.length + value.length);
      const known = new Set(before);
      const items = [...before, ...value.filter((item) => !known.has(item))];
      return order === undefined ? items : this.#sorted([...new Set(items)], order, before, rule);
    }
    return this.#keyed(before, value, { type, rule, order });
  }

  /** Merges a list of objects that one key identifies. */
  #keyed(
    live: readonly unknown[],
    patch: readonly unknown[],
    { type, rule, order }: FieldContext & { rule: ListRule },
  ): unknown[] {
    this.#budget.spend(live.length + patch.length);
    const key = rule.keys[0] ?? "name";
    const itemType = type?.kind === "array" ? type.items : undefined;
    if (patch.some((item) => isRecord(item) && item[DIRECTIVE] === "replace")) {
      const replaces = (item: unknown): boolean =>
        isRecord(item) && item[DIRECTIVE] === "replace" && Object.keys(item).length === 1;
      return stripList(patch.filter((item) => !replaces(item)));
    }
    const items = new KeyedItems(live, key);
    for (const item of patch) {
      if (!isRecord(item)) throw badRequest(`expected an object in a list that is merged by ${JSON.stringify(key)}`);
      const { [key]: id } = item;
      if (id === undefined || id === null)
        throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
      if (item[DIRECTIVE] === "delete") items.delete(id);
      else items.set(id, this.object(items.get(id) ?? {}, item, itemType));
    }
    const result = items.toList();
    return order === undefined ? result : this.#sorted(result, order, live, rule);
  }

  #sorted(items: readonly unknown[], order: unknown, live: readonly unknown[], rule: ListRule): unknown[] {
    if (!Array.isArray(order)) throw badRequest("$setElementOrder must be a list");
    this.#budget.spend(items.length + order.length);
    return sortByOrder(items, order, live, rule);
  }
}

/** A list with an index of its items' keys. */
class KeyedItems {
  readonly #items: unknown[];
  readonly #places = new Map<string, number[]>();

  constructor(items: readonly unknown[], key: string) {
    this.#items = [...items];
    for (const [place, item] of items.entries()) {
      if (isRecord(item) && item[key] !== undefined) this.#add(identityOf(item[key]), place);
    }
  }

  /** The first of them. */
  get(id: unknown): Fields | undefined {
    const item = this.#items[this.#places.get(identityOf(id))?.[0] ?? -1];
    return isRecord(item) ? item : undefined;
  }

  /** In the place of the first, or at the end. */
  set(id: unknown, item: Fields): void {
    const identity = identityOf(id);
    const place = this.#places.get(identity)?.[0];
    if (place === undefined) this.#add(identity, this.#items.push(item) - 1);
    else this.#items[place] = item;
  }

  /** All of them. */
  delete(id: unknown): void {
    const identity = identityOf(id);
    for (const place of this.#places.get(identity) ?? []) this.#items[place] = undefined;
    this.#places.delete(identity);
  }

  toList(): unknown[] {
    return this.#items.filter((item) => item !== undefined);
  }

  #add(identity: string, place: number): void {
    const places = this.#places.get(identity);
    if (places === undefined) this.#places.set(identity, [place]);
    else places.push(place);
  }
}

/** The same text for the same JSON value: keys are strings and numbers, but a patch may hold anything there. */
function identityOf(id: unknown): string {
  if (typeof id !== "object" || id === null) return JSON.stringify(id) ?? "";
  return JSON.stringify(id, (_key, value: unknown) =>
    isRecord(value) ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))) : value,
  );
}

function ruleOf(type: FieldType | undefined, field: string): ListRule | undefined {
  if (type?.kind !== "object") return undefined;
  const rule = listRuleOf(type.model, field);
  return rule?.only === "apply" ? undefined : rule;
}

/** `$retainKeys`: only these of the object stay. */
function retainKeys(live: Fields, patch: Fields): void {
  const kept = patch[RETAIN_KEYS];
  if (kept === undefined) return;
  if (!Array.isArray(kept)) throw badRequest("$retainKeys must be a list of strings");
  const names = new Set<unknown>(kept);
  for (const key of Object.keys(live)) if (!names.has(key)) delete live[key];
}

function deleteFromPrimitives(live: Fields, field: string, value: unknown): void {
  const list = live[field];
  if (!Array.isArray(value)) throw badRequest(`${DELETE_FROM}${field} must be a list`);
  if (!Array.isArray(list)) return;
  const gone = new Set<unknown>(value);
  const left = list.filter((item) => !gone.has(item));
  if (left.length > 0) live[field] = left;
  else delete live[field];
}

/** The items that `order` names in its order; the others stay behind the item that they stood behind before. */
function sortByOrder(
  items: readonly unknown[],
  order: readonly unknown[],
  live: readonly unknown[],
  rule: ListRule,
): unknown[] {
  const key = rule.keys[0] ?? "name";
  const idOf = (item: unknown): string =>
    JSON.stringify(rule.type === "map" && isRecord(item) ? item[key] : item) ?? "";
  const rank = new Map(order.map((item, index): [string, number] => [idOf(item), index]));
  const liveIndex = new Map(live.map((item, index): [string, number] => [idOf(item), index]));
  const placed = items.map((item) => {
    const id = idOf(item);
    return { item, rank: rank.get(id), at: liveIndex.get(id) ?? Number.POSITIVE_INFINITY };
  });
  const listed = placed.filter((each) => each.rank !== undefined).toSorted((a, b) => (a.rank ?? 0) - (b.rank ?? 0));
  const unlisted = placed.filter((each) => each.rank === undefined);
  const result: unknown[] = [];
  let next = 0;
  for (const { item, at } of listed) {
    for (let other = unlisted[next]; other !== undefined && other.at < at; other = unlisted[next]) {
      result.push(other.item);
      next += 1;
    }
    result.push(item);
  }
  return [...result, ...unlisted.slice(next).map(({ item }) => item)];
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
