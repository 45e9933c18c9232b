/** Reading and writing fields of objects whose types the server has checked against their schema. */
import type { FieldProblem } from "@picolet/protocol/kubernetes/field-problems.ts";
import { type FieldError, type FieldErrorType, invalidValue } from "./field-errors.ts";
import type { ApiObject } from "./resource-definition.ts";

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The mapping under `name`, made when it is missing. */
export function section(object: object, name: string): Fields {
  const fields = object as Fields;
  const existing = fields[name];
  if (isFields(existing)) return existing;
  const made: Fields = {};
  fields[name] = made;
  return made;
}

/** The value at `path`; undefined when any part of it is missing. */
export const fieldAt = (object: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((value, key) => (isFields(value) && Object.hasOwn(value, key) ? value[key] : undefined), object);

/** A scalar as text, "" when it is missing. */
export function textAt(object: unknown, ...path: readonly string[]): string {
  const value = fieldAt(object, ...path);
  return value === undefined || value === null || typeof value === "object" ? "" : String(value);
}

export function listAt(object: unknown, ...path: readonly string[]): readonly unknown[] {
  const value = fieldAt(object, ...path);
  return Array.isArray(value) ? value : [];
}

export function mappingAt(object: unknown, ...path: readonly string[]): Readonly<Fields> {
  const value = fieldAt(object, ...path);
  return isFields(value) ? value : {};
}

/** Sets what is missing. */
export function setDefault(fields: Fields, name: string, value: unknown): void {
  if (fields[name] === undefined || fields[name] === "") fields[name] = value;
}

/** Same JSON: the order of keys does not count, a field that is undefined is missing. */
export function sameValue(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => sameValue(item, right[index]));
  }
  if (!isFields(left) || !isFields(right)) return false;
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => sameValue(left[key], right[key]));
}

/** One error for each of `paths` that is not as it was. */
export const immutableFields = (
  object: ApiObject,
  old: ApiObject,
  ...paths: readonly string[]
): readonly FieldError[] =>
  paths
    .filter((path) => !sameValue(fieldAt(object, ...path.split(".")), fieldAt(old, ...path.split("."))))
    .map((path) => invalidValue(path, fieldAt(object, ...path.split(".")), "field is immutable"));

const ERROR_TYPES: readonly (readonly [string, FieldErrorType])[] = [
  ["Required value", "FieldValueRequired"],
  ["Unsupported value", "FieldValueNotSupported"],
  ["Duplicate value", "FieldValueDuplicate"],
  ["Forbidden", "FieldValueForbidden"],
  ["Not found", "FieldValueNotFound"],
  ["Too many", "FieldValueTooMany"],
  ["Too long", "FieldValueTooLong"],
];

/** Converts a problem of the pod model's validation into an error of the API. */
export const fieldErrorOf = ({ path, message }: FieldProblem): FieldError => ({
  type: ERROR_TYPES.find(([start]) => message.startsWith(start))?.[1] ?? "FieldValueInvalid",
  field: path,
  message,
});
