import type { LabelSelector } from "../api/typed-objects.ts";
import { NONE } from "../printing/columns.ts";

/** As `metav1.FormatLabelSelector` shows it: `a=b,c in (d,e),!f`. A missing or empty one: `<none>`. */
export function selectorColumnText(selector: LabelSelector | undefined): string {
  const equal = Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => ({ key, text: `${key}=${value}` }));
  const others = (selector?.matchExpressions ?? []).map(({ key, operator, values = [] }) => {
    if (operator === "Exists") return { key, text: key };
    if (operator === "DoesNotExist") return { key, text: `!${key}` };
    return { key, text: `${key} ${operator === "In" ? "in" : "notin"} (${[...values].sort().join(",")})` };
  });
  const all = [...equal, ...others].sort((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0));
  return all.length === 0 ? NONE : all.map(({ text }) => text).join(",");
}
