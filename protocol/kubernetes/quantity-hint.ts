/** Units as other programs write them: `64MB`, `64 MiB`, `64mb`, `64K`. */
const FOREIGN_UNIT = /^(\d{1,15}(?:\.\d{1,9})?)\s*([kmgtpe])(i?)b?$/i;
const BYTES = /^(\d{1,15})\s*b(?:ytes?)?$/i;

/** @returns the end of an error about a quantity: `; did you mean "64M" (10^6) or "64Mi" (2^20)?`, or "" */
export function unitHint(text: unknown): string {
  if (typeof text !== "string") return "";
  const plainBytes = BYTES.exec(text)?.[1];
  if (plainBytes !== undefined) return `; did you mean "${plainBytes}"?`;
  const [, number = "", letter = "", binaryMark] = FOREIGN_UNIT.exec(text) ?? [];
  if (number === "") return "";
  const upper = letter.toUpperCase();
  const power = "KMGTPE".indexOf(upper) + 1;
  const binary = `"${number}${upper}i"`;
  if (binaryMark !== "") return `; did you mean ${binary}?`;
  return `; did you mean "${number}${upper === "K" ? "k" : upper}" (10^${3 * power}) or ${binary} (2^${10 * power})?`;
}
