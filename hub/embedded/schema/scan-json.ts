/**
 * Finds what JSON.parse does not report: how deep a text nests, how many values it holds, and keys that occur twice.
 */
import { MAX_BODY_ITEMS, MAX_BODY_VALUES, MAX_DEPTH, MAX_KEYS } from "../api/limits.ts";

export interface JsonScan {
  /** True for a key `__proto__`: no field of Kubernetes has that name, and copying it would change a prototype. */
  readonly isPoisoned: boolean;
  readonly isTooDeep: boolean;
  /** `a list has more than 10000 items`; the scan ends there. */
  readonly excess: string | undefined;
  /** `duplicate field "spec.a"`; at most a hundred. */
  readonly duplicates: readonly string[];
}

const MAX_REPORTED = 100;
/** Longer paths are cut: a hundred of them may name the same key of a megabyte. */
const MAX_PATH_LENGTH = 512;

interface Frame {
  /** Undefined: an array. */
  readonly keys: Set<string> | undefined;
  path: string;
  index: number;
}

/** @param text of valid or broken JSON; of broken JSON the result means nothing, but it ends. */
export function scanJson(text: string): JsonScan {
  const stack: Frame[] = [];
  const duplicates: string[] = [];
  let expectsKey = false;
  let isPoisoned = false;
  let values = 1;
  const found = (): JsonScan => ({ isTooDeep: false, isPoisoned, duplicates, excess: undefined });
  const pathOf = (): string =>
    stack
      .map(({ keys, path, index }, at) => {
        return keys === undefined ? `[${index}]` : `${at === 0 ? "" : "."}${path.slice(0, MAX_PATH_LENGTH)}`;
      })
      .join("")
      .slice(0, MAX_PATH_LENGTH);
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    const frame = stack.at(-1);
    if (character === '"') {
      const end = endOfString(text, at);
      if (expectsKey && frame?.keys !== undefined) {
        const key = keyText(text, at, end);
        frame.path = key;
        if (key === "__proto__") isPoisoned = true;
        if (frame.keys.has(key) && duplicates.length < MAX_REPORTED) duplicates.push(`duplicate field "${pathOf()}"`);
        frame.keys.add(key);
        if (frame.keys.size > MAX_KEYS) return { ...found(), excess: `an object has more than ${MAX_KEYS} keys` };
        expectsKey = false;
      }
      at = end;
    } else if (character === "{" || character === "[") {
      if (stack.length >= MAX_DEPTH) return { ...found(), isTooDeep: true };
      values += 1;
      stack.push({ keys: character === "{" ? new Set() : undefined, path: "", index: 0 });
      expectsKey = character === "{";
    } else if (character === "}" || character === "]") {
      stack.pop();
      expectsKey = false;
    } else if (character === "," && frame !== undefined) {
      frame.index += 1;
      values += 1;
      expectsKey = frame.keys !== undefined;
      if (!expectsKey && frame.index >= MAX_BODY_ITEMS) {
        return { ...found(), excess: `a list has more than ${MAX_BODY_ITEMS} items` };
      }
    }
    if (values > MAX_BODY_VALUES) return { ...found(), excess: `it holds more than ${MAX_BODY_VALUES} values` };
  }
  return found();
}

/** The index of the closing quote. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (;;) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return text.length;
    let slashes = 0;
    while (text[quote - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return quote;
    at = quote + 1;
  }
}

function keyText(text: string, start: number, end: number): string {
  const raw = text.slice(start + 1, end);
  if (!raw.includes("\\")) return raw;
  try {
    return String(JSON.parse(`"${raw}"`));
  } catch {
    return raw;
  }
}
