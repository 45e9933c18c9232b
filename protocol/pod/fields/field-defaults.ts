/** Defaults of single fields that containers and volumes share. */
import { parseImageReference } from "../../kubernetes/image-reference.ts";
import { formatQuantity, parseQuantity } from "../../kubernetes/quantity.ts";

/** A tag `latest`, given or implied, can be moved; any other tag and every digest counts as fixed. */
export function pullPolicyOf(image: string): "Always" | "IfNotPresent" {
  const result = parseImageReference(image);
  return result.ok && result.reference.kind === "registry" && result.reference.tag === "latest"
    ? "Always"
    : "IfNotPresent";
}

/** @returns the canonical form; text that is no quantity stays, for validation to name */
export function canonicalQuantity(value: string | number): string {
  const parsed = parseQuantity(String(value));
  return parsed.ok ? formatQuantity(parsed.quantity) : String(value);
}

export function applyDivisorDefaults(selector: { divisor?: string | undefined }): void {
  if (selector.divisor !== undefined) selector.divisor = canonicalQuantity(selector.divisor);
}
