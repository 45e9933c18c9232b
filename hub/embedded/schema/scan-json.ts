/** What JSON.parse does not tell: how deep a text nests, and which keys stand in it twice. */

export interface JsonScan {
  /** A key is `__proto__`: no field of Kubernetes', and poison for whoever copies keys. */
  readonly isPoisoned: boolean;
  readonly isTooDeep: boolean;
  /** `duplicate field "spec.a"`; at most a hundred. */
  readonly duplicates: readonly string[];
}

/** Go's decoder stops at 10,000; nothing in Kubernetes' types nests deeper than 40 without `any`. Our walkers recurse. */
const MAX_DEPTH = 256;
const MAX_REPORTED = 100;

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
  const pathOf = (): string =>
    stack
      .map(({ keys, path, index }, at) => (keys === undefined ? `[${index}]` : `${at === 0 ? "" : "."}${path}`))
      .join("");
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
        expectsKey = false;
      }
      at = end;
    } else if (character === "{" || character === "[") {
      if (stack.length >= MAX_DEPTH) return { isTooDeep: true, isPoisoned, duplicates };
      stack.push({ keys: character === "{" ? new Set() : undefined, path: "", index: 0 });
      expectsKey = character === "{";
    } else if (character === "}" || character === "]") {
      stack.pop();
      expectsKey = false;
    } else if (character === "," && frame !== undefined) {
      frame.index += 1;
      expectsKey = frame.keys !== undefined;
    }
  }
  return { isTooDeep: false, isPoisoned, duplicates };
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
