import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { parseQuantity, type Quantity } from "../../kubernetes/quantity.ts";
import { unitHint } from "../../kubernetes/quantity-hint.ts";

const IS_NEGATIVE = "must be greater than or equal to 0";

/** @returns the quantity; `undefined` for text that is none, which is reported */
export function validateQuantity(
  text: string,
  path: string,
  problems: FieldProblems,
  integer = false,
): Quantity | undefined {
  const result = parseQuantity(text);
  if (!result.ok) {
    problems.invalid(path, text, `${result.problem}${unitHint(text)}`);
    return undefined;
  }
  if (result.quantity.nano < 0n) problems.invalid(path, text, IS_NEGATIVE);
  else if (integer && result.quantity.nano % 1_000_000_000n !== 0n) problems.invalid(path, text, "must be an integer");
  return result.quantity;
}
