/**
 * JSON values as YAML in block style, as kubectl prints objects; keys in the order they have, absent ones left out.
 * Written here because it is all that edgectl needs of YAML: a library would be most of what it loads. Pure.
 */
export function toYaml(value: unknown): string {
  return `${linesOf(value, 0).join("\n")}\n`;
}

function linesOf(value: unknown, indent: number): string[] {
  const margin = " ".repeat(indent);
  if (Array.isArray(value) && value.length > 0) {
    return value.flatMap((item: unknown) => {
      const [first = "", ...rest] = linesOf(item, indent + 2);
      return [`${margin}- ${first.slice(indent + 2)}`, ...rest];
    });
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    if (entries.length > 0) return entries.flatMap(([key, each]) => entryLines(key, each, indent));
  }
  return [margin + scalar(value)];
}

function entryLines(key: string, value: unknown, indent: number): string[] {
  const margin = " ".repeat(indent);
  // A list stands no deeper than its key.
  const inner = linesOf(value, Array.isArray(value) ? indent : indent + 2);
  const [first = ""] = inner;
  const isBlock = typeof value === "object" && value !== null && !/^(?:\[\]|\{\})$/.test(first.trim());
  return isBlock ? [`${margin}${scalar(key)}:`, ...inner] : [`${margin}${scalar(key)}: ${first.trim()}`];
}

/** Text that no reader of YAML 1.1 or 1.2 takes for anything but text. Of what begins with a digit only quantities. */
const PLAIN_TEXT = /^(?:[A-Za-z_/][\w./@+-]*(?:[ :=,][\w./@+=-]+)*|[1-9]\d*(?:m|k|M|G|T|Ki|Mi|Gi|Ti))$/;
const NOT_TEXT = /^(?:true|false|yes|no|on|off|y|n|null|e[-+]?\d+)$/i;
/** Characters that JSON does not escape, and that YAML forbids or takes as a line end. */
const UNPRINTABLE = /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g;

function scalar(value: unknown): string {
  if (Array.isArray(value)) return "[]";
  if (typeof value === "object" && value !== null) return "{}";
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  if (PLAIN_TEXT.test(value) && !NOT_TEXT.test(value)) return value;
  return JSON.stringify(value).replace(
    UNPRINTABLE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
