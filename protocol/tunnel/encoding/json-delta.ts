/**
 * The difference of two JSON values, as JSON again. A delta is
 *
 * - a text, a number, a boolean or null: that is the new value;
 * - `[value]`: the new value is this list or object;
 * - `{key: delta, …}`: the value was an object and still is; these fields are new or changed, `[]` for one that is
 *   gone;
 * - `[length, index, delta, index, delta, …]`: the value was a list and still is, of this many elements now; these are
 *   new or changed. With nothing changed but the length: `[length, 0]`.
 *
 * Kubernetes keeps its conditions and container statuses in the same order from one status to the next, so that a
 * list's elements are distinguished by their place.
 */
import { PicoletError } from "../../errors.ts";
import { isRecord } from "../../guards.ts";
import { setField } from "./wire-json.ts";

/** Bounds the depth of a delta and of the value it makes; the frames themselves (`cbor.ts`) allow a little more. */
const MAX_DEPTH = 32;

type Fields = Readonly<Record<string, unknown>>;

/**
 * `applyDelta(base, diffJson(base, next))` equals `next`. Fields that are undefined count as missing.
 * The delta shares what is new with `next`.
 */
export function diffJson(base: unknown, next: unknown): unknown {
  if (isRecord(base) && isRecord(next)) return diffObjects(base, next);
  if (Array.isArray(base) && Array.isArray(next)) return diffLists(base, next);
  return replacement(next);
}

const replacement = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? [value] : (value ?? null);

function diffObjects(base: Fields, next: Fields): Fields {
  const delta: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(next)) {
    if (value === undefined) continue;
    const old = ownField(base, key);
    if (old === undefined) setField(delta, key, replacement(value));
    else if (!equalJson(old, value)) setField(delta, key, diffJson(old, value));
  }
  for (const [key, old] of Object.entries(base)) {
    if (old !== undefined && ownField(next, key) === undefined) setField(delta, key, []);
  }
  return delta;
}

function diffLists(base: readonly unknown[], next: readonly unknown[]): unknown {
  const delta: unknown[] = [next.length];
  for (const [index, value] of next.entries()) {
    if (index >= base.length) delta.push(index, replacement(value));
    else if (!equalJson(base[index], value)) delta.push(index, diffJson(base[index], value));
  }
  if (delta.length === 1) delta.push(0);
  // Elements that moved have changed in all their fields; the list itself is shorter then.
  return delta.length > 2 && jsonSize(delta) >= jsonSize(next) ? [next] : delta;
}

/** About as many bytes as `value` has on the wire, rather more; only for deciding what goes together. */
export function jsonSize(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 2;
  let size = 2;
  if (Array.isArray(value)) for (const each of value) size += jsonSize(each);
  else for (const [key, each] of Object.entries(value)) size += key.length + jsonSize(each);
  return size;
}

const ownField = (object: Fields, key: string): unknown => (Object.hasOwn(object, key) ? object[key] : undefined);

/** Compares values as JSON: undefined fields count as missing. */
export function equalJson(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((each, index) => equalJson(each, other[index]));
  }
  if (!isRecord(one) || !isRecord(other)) return (one ?? null) === (other ?? null);
  return covers(one, other) && covers(other, one);
}

const covers = (one: Fields, other: Fields): boolean =>
  Object.entries(one).every(
    ([key, value]) =>
      value === undefined || (ownField(other, key) !== undefined && equalJson(value, ownField(other, key))),
  );

/**
 * Neither argument is changed; the result shares what did not change with `base`. It is at most as large as the two
 * together.
 * @throws `invalid` for what `diffJson` does not make, or does not make for this base
 */
export function applyDelta(base: unknown, delta: unknown): unknown {
  return apply(base, delta, 0);
}

function apply(base: unknown, delta: unknown, depth: number): unknown {
  if (depth > MAX_DEPTH) throw unfit(`it is more than ${MAX_DEPTH} levels deep`);
  if (isRecord(delta)) {
    if (!isRecord(base)) throw unfit("it changes fields of what is no object");
    return applyToObject(base, delta, depth);
  }
  if (!Array.isArray(delta)) return delta;
  const [first] = delta;
  if (delta.length === 0) throw unfit("it removes what is no field");
  if (delta.length === 1) {
    if (typeof first !== "object" || first === null) throw unfit("it wraps what is neither list nor object");
    return first;
  }
  if (!Array.isArray(base)) throw unfit("it changes elements of what is no list");
  return applyToList(base, delta, depth);
}

function applyToObject(base: Fields, delta: Fields, depth: number): Fields {
  const result: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(base)) if (!Object.hasOwn(delta, key)) setField(result, key, value);
  for (const [key, change] of Object.entries(delta)) {
    if (Array.isArray(change) && change.length === 0) continue;
    setField(result, key, apply(ownField(base, key), change, depth + 1));
  }
  return result;
}

function applyToList(base: readonly unknown[], delta: readonly unknown[], depth: number): unknown[] {
  const [length, ...changes] = delta;
  if (typeof length !== "number" || !Number.isInteger(length) || length < 0) {
    throw unfit("its length is not that of any list");
  }
  const result = base.slice(0, length);
  if (changes.length === 1) {
    if (changes[0] !== 0 || length > base.length) throw unfit("it is cut off");
    return result;
  }
  // Each element beyond the base's own must come by itself, in order: a short delta makes no long list.
  for (let at = 0; at < changes.length; at += 2) {
    const index = changes[at];
    if (at + 1 === changes.length) throw unfit("it is cut off");
    if (
      typeof index !== "number" ||
      !Number.isInteger(index) ||
      index < 0 ||
      index > result.length ||
      index >= length
    ) {
      throw unfit("it changes an element that is not there");
    }
    result[index] = apply(result[index], changes[at + 1], depth + 1);
  }
  if (result.length !== length) throw unfit("it leaves elements out");
  return result;
}

const unfit = (what: string): PicoletError => new PicoletError("invalid", `cannot apply delta: ${what}`);
