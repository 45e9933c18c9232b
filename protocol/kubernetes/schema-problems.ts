/** Translates the problems of a zod schema into Kubernetes' field errors. */
import type * as z from "zod/mini";
import { type FieldProblem, showValue } from "./field-problems.ts";
import { childPath } from "./plain-data.ts";

const EXPECTED: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "an integer",
  boolean: "true or false",
  array: "a list",
  object: "a mapping",
  record: "a mapping",
};

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a mapping";
  return typeof value === "boolean" ? "a boolean" : `a ${typeof value}`;
}

/** The value itself says more than its kind, unless it is long. */
const shown = (value: unknown): string => (typeof value === "object" ? kindOf(value) : showValue(value));

function expectation(issue: z.core.$ZodIssue): string {
  if (issue.code === "invalid_type") {
    const expected = EXPECTED[issue.expected] ?? issue.expected;
    const hint = issue.expected === "string" && typeof issue.input !== "object" ? " (put it in quotes)" : "";
    return `must be ${expected}${hint}`;
  }
  if (issue.code === "too_big") return `must be less than or equal to ${issue.maximum}`;
  if (issue.code === "too_small") return `must be greater than or equal to ${issue.minimum}`;
  if (issue.code === "invalid_union") return "must be a string or a number";
  return issue.message ?? "is not allowed here";
}

function pathOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (before, step) => (typeof step === "number" ? `${before}[${step}]` : childPath(before, String(step))),
    "",
  );
}

export const schemaProblem = (issue: z.core.$ZodIssue): FieldProblem => ({
  path: pathOf(issue.path ?? []),
  message: `Invalid value: ${shown(issue.input)}: ${expectation(issue)}`,
});

/** Placeholders for list items of the wrong type, so that the other items keep their indexes. */
const STAND_INS: Readonly<Record<string, () => unknown>> = {
  string: () => "",
  number: () => 0,
  int: () => 0,
  boolean: () => false,
  array: () => [],
  object: () => ({}),
  record: () => ({}),
};

/**
 * Takes what `issues` are about out of `value`, our own copy, so that the rest of it can be judged too: fields are
 * deleted, list items replaced by an empty value.
 */
export function removeInvalidValues(value: unknown, issues: readonly z.core.$ZodIssue[]): void {
  for (const issue of issues) {
    const last = issue.path.at(-1);
    const parent = issue.path.slice(0, -1).reduce<unknown>((node, step) => fieldOf(node, step), value);
    if (Array.isArray(parent) && typeof last === "number") {
      const expected = issue.code === "invalid_type" ? issue.expected : "string";
      parent[last] = STAND_INS[expected]?.() ?? "";
    } else if (typeof parent === "object" && parent !== null && last !== undefined) {
      Reflect.deleteProperty(parent, last);
    }
  }
}

const fieldOf = (node: unknown, step: PropertyKey): unknown =>
  typeof node === "object" && node !== null ? Reflect.get(node, step) : undefined;
