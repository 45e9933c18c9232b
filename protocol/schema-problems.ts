/** What a zod schema found, in the words of Kubernetes' field errors. */
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
