/** YAML bodies as JSON text, as Kubernetes reads them: YAML 1.1's directives, core scalars, one document. */
import { isMap, isPair, isScalar, isSeq, Lexer, type ParsedNode, parseDocument } from "yaml";

export type YamlReading = { readonly json: string } | { readonly error: string };

/**
 * Tokens of one text, counted before any is composed. The composer takes up to 10 µs for one, so this is 2 s; a
 * document of 65,536 values (`MAX_BODY_VALUES`) in block style has 200,000.
 */
const MAX_TOKENS = 200_000;

/**
 * Without the package's own check for keys that are there twice, which compares each key with all before it, and
 * without its pretty errors, which copy the line for each error.
 */
const OPTIONS = { version: "1.1", schema: "core", logLevel: "silent", uniqueKeys: false, prettyErrors: false } as const;

/**
 * Linear in the text. Aliases are refused: each may stand for the whole document, and clients expand them before they
 * send. Takes 1 to 10 ms for each KiB.
 */
export function readYaml(text: string): YamlReading {
  try {
    if (hasTooManyTokens(text)) return { error: `it has more than ${MAX_TOKENS} tokens; send JSON` };
    const document = parseDocument(text, OPTIONS);
    const [error] = document.errors;
    if (error !== undefined) return { error: error.message };
    const key = duplicateKey(document.contents);
    if (key !== undefined) return { error: `Map keys must be unique: ${JSON.stringify(key)}` };
    const json: string | undefined = JSON.stringify(document.toJS({ maxAliasCount: 0 }));
    return json === undefined ? { error: "there is no document" } : { json };
  } catch (error) {
    // Among others of a text that nests deeper than the stack is.
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

function hasTooManyTokens(text: string): boolean {
  let count = 0;
  for (const _token of new Lexer().lex(text)) {
    count += 1;
    if (count > MAX_TOKENS) return true;
  }
  return false;
}

/** Longer keys are cut in messages. */
const MAX_SHOWN = 256;

function duplicateKey(node: ParsedNode | null): string | undefined {
  const open: unknown[] = [node];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (!isMap(next) && !isSeq(next)) continue;
    const keys = new Set<unknown>();
    for (const item of next.items) {
      open.push(isPair(item) ? (item.value ?? null) : item);
      const key = isPair(item) && isScalar(item.key) ? item.key.value : undefined;
      if (key === undefined) continue;
      if (keys.has(key)) return String(key).slice(0, MAX_SHOWN);
      keys.add(key);
    }
  }
  return undefined;
}
