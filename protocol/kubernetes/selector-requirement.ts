/** One requirement of a label selector, or of a node selector: `matchExpressions`, `matchFields`. */
export interface SelectorRequirement {
  readonly key: string;
  /** In, NotIn, Exists, DoesNotExist; of node selectors also Gt and Lt. */
  readonly operator: string;
  readonly values?: readonly string[] | undefined;
}

/** Bounds the number to 64 bits, so that no text of a million digits is converted. */
const INTEGER = /^[+-]?\d{1,19}$/;

/** @param labels where `key` is looked up. @returns false for an operator that there is not */
export function matchesRequirement(
  labels: Readonly<Record<string, string>>,
  { key, operator, values = [] }: SelectorRequirement,
): boolean {
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
    case "Lt": {
      const [limit = ""] = values;
      if (value === undefined || values.length !== 1 || !INTEGER.test(value) || !INTEGER.test(limit)) return false;
      return operator === "Gt" ? BigInt(value) > BigInt(limit) : BigInt(value) < BigInt(limit);
    }
    default:
      return false;
  }
}
