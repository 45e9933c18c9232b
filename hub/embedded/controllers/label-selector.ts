/** Selectors in objects (`matchLabels`, `matchExpressions`); those in queries are the API server's. */
import type { LabelSelector, SelectorRequirement } from "./objects.ts";

type Labels = Readonly<Record<string, string>>;

/** Whether `labels` meet one requirement. `Gt` and `Lt` are node selectors' alone. An unknown operator is never met. */
export function meets(labels: Labels, { key, operator, values = [] }: SelectorRequirement): boolean {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
  switch (operator) {
    case "In":
      return value !== undefined && values.includes(value);
    case "NotIn":
      return value === undefined || !values.includes(value);
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    case "Gt":
    case "Lt":
      return compares(value, operator, values[0]);
    default:
      return false;
  }
}

function compares(value: string | undefined, operator: "Gt" | "Lt", bound: string | undefined): boolean {
  const integer = /^[+-]?\d{1,19}$/;
  if (value === undefined || bound === undefined || !integer.test(value) || !integer.test(bound)) return false;
  const [left, right] = [BigInt(value), BigInt(bound)];
  return operator === "Gt" ? left > right : left < right;
}

export const hasLabels = (labels: Labels, wanted: Labels): boolean =>
  Object.entries(wanted).every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);

/** A missing selector matches nothing, an empty one everything. */
export const selects = (selector: LabelSelector | undefined, labels: Labels | undefined): boolean =>
  selector !== undefined &&
  hasLabels(labels ?? {}, selector.matchLabels ?? {}) &&
  (selector.matchExpressions ?? []).every((requirement) => meets(labels ?? {}, requirement));
