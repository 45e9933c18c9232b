/** The documents of a YAML or JSON text, one after the other, with the place of every field in it. */
import { ignore } from "@picolet/protocol/errors.ts";
import {
  Composer,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  Parser,
  type ScalarTag,
  visit,
  YAMLMap,
} from "yaml";

/** Counted from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export interface ManifestDocument {
  /** Plain data; `undefined` when the document is empty. */
  readonly value: unknown;
  /** @returns the position of the field with this Kubernetes path, or of the innermost existing one around it */
  locate(path: string): Position | undefined;
}

/** An error of the YAML or JSON syntax. */
export class SyntaxProblem extends Error {
  readonly position: Position | undefined;

  constructor(message: string, position: Position | undefined) {
    super(message);
    this.position = position;
  }
}

/**
 * Bounds one document: 40 pods of 400 tokens. A token costs up to 1 KB while the document is read, so that this many
 * fit into the agent's heap. JSON has no such limit here: its parser needs a tenth.
 */
const MAX_TOKENS = 16_384;
/** Bounds the aliases of one document. Resolving an alias may search the whole document. */
const MAX_ALIASES = 100;
const TOO_DEEP = "Too deep: there are more lists or mappings in one another than can be read";
const TOO_MUCH = "Too long: its aliases stand for more than can be read";
/** Bounds the documents of one file; more come from a broken generator. */
const MAX_DOCUMENTS = 500;

/**
 * YAML 1.2 with what Kubernetes' parser has of 1.1: `0644` is octal, yes and no, on and off are booleans, `<<` merges.
 * @throws SyntaxProblem at the first document that is wrong
 */
export function* manifestDocuments(text: string): Generator<ManifestDocument> {
  const parsed = parseJson(text);
  if (parsed === undefined) yield* yamlDocuments(text);
  else yield { value: parsed.value, locate: (path) => locateInJson(text, path) };
}

function parseJson(text: string): { readonly value: unknown } | undefined {
  if (!/^\s*\{/.test(text)) return undefined;
  try {
    return { value: JSON.parse(text) };
  } catch {
    // A flow mapping of YAML, or a mistake, which the YAML parser can place.
    return undefined;
  }
}

function locateInJson(text: string, path: string): Position | undefined {
  try {
    for (const document of yamlDocuments(text)) return document.locate(path);
  } catch {
    ignore("too much of it for the YAML parser: the message has to do without the line");
  }
  return undefined;
}

function* yamlDocuments(text: string): Generator<ManifestDocument> {
  const lines = new LineCounter();
  let documents = 0;
  try {
    const composer = new Composer({
      version: "1.2",
      merge: true,
      stringKeys: true,
      // The parser's own check of keys takes quadratic time.
      uniqueKeys: false,
      customTags: (tags) => [...KUBERNETES_TAGS, ...tags],
    });
    for (const document of composer.compose(boundedTokens(text, lines), false, text.length)) {
      documents += 1;
      if (documents > MAX_DOCUMENTS) throw new SyntaxProblem(`Too many: at most ${MAX_DOCUMENTS} documents`, undefined);
      yield readDocument(document, lines);
    }
  } catch (error) {
    if (error instanceof RangeError) throw new SyntaxProblem(TOO_DEEP, undefined);
    throw error;
  }
}

/** The parser's tokens, until a document has too many. */
function* boundedTokens(text: string, lines: LineCounter): ReturnType<Parser["parse"]> {
  lines.addNewLine(0);
  const parser = new Parser(lines.addNewLine);
  let offset = 0;
  let count = 0;
  for (const lexeme of new Lexer().lex(text)) {
    count += 1;
    offset += lexeme.length;
    if (count > MAX_TOKENS) {
      const message = `Too long: a document may have at most ${MAX_TOKENS} words and signs; give its pods files of their own`;
      throw new SyntaxProblem(message, positionAt(lines, offset));
    }
    for (const token of parser.next(lexeme)) {
      if (token.type === "document") count = 0;
      yield token;
    }
  }
  yield* parser.end();
}

function readDocument(document: Document.Parsed, lines: LineCounter): ManifestDocument {
  const [problem] = document.errors;
  if (problem !== undefined) {
    const message = problem.code === "RESOURCE_EXHAUSTION" ? TOO_DEEP : problem.message;
    throw new SyntaxProblem(message, positionAt(lines, problem.pos[0]));
  }
  checkNodes(document, lines);
  return { value: plainValue(document) ?? undefined, locate: (path) => locate(document, path, lines) };
}

function plainValue(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (error) {
    if (error instanceof RangeError) throw error;
    if (error instanceof ReferenceError) throw new SyntaxProblem(TOO_MUCH, undefined);
    throw new SyntaxProblem(error instanceof Error ? error.message : String(error), undefined);
  }
}

function checkNodes(document: Document.Parsed, lines: LineCounter): void {
  let aliases = 0;
  visit(document, {
    Alias: (_, node) => {
      aliases += 1;
      const position = positionAt(lines, node.range?.[0]);
      if (aliases > MAX_ALIASES) {
        throw new SyntaxProblem(`Too many: a document may have at most ${MAX_ALIASES} aliases`, position);
      }
      if (node.resolve(document) === undefined) {
        throw new SyntaxProblem(`Not found: no anchor &${node.source} comes before the alias`, position);
      }
    },
    Map: (_, map) => {
      const keys = new Set<unknown>();
      for (const { key } of map.items) {
        const name = isScalar(key) ? key.value : undefined;
        // `<<` is a symbol of its own each time, and may be there several times.
        if (typeof name !== "string") continue;
        if (keys.has(name)) {
          const position = isScalar(key) ? positionAt(lines, key.range?.[0]) : undefined;
          throw new SyntaxProblem(`Duplicate key: ${JSON.stringify(name)}`, position);
        }
        keys.add(name);
      }
    },
  });
}

function locate(document: Document.Parsed, path: string, lines: LineCounter): Position | undefined {
  let node: unknown = document.contents;
  let offset = document.contents?.range[0];
  for (const [, name, bracket] of path.matchAll(/([^.[\]]+)|\[([^\]]*)\]/g)) {
    if (isAlias(node)) node = node.resolve(document);
    const step = name ?? bracket ?? "";
    const found = isSeq(node) ? { value: node.items[Number(step)], at: node.items[Number(step)] } : entryOf(node, step);
    if (found?.value === undefined) break;
    node = found.value;
    offset = rangeStart(found.at) ?? offset;
  }
  return positionAt(lines, offset);
}

function entryOf(node: unknown, name: string): { readonly value: unknown; readonly at: unknown } | undefined {
  if (!isMap(node)) return undefined;
  const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === name);
  return pair === undefined ? undefined : { value: pair.value ?? pair.key, at: pair.key };
}

function rangeStart(node: unknown): number | undefined {
  if (isScalar(node) || isAlias(node) || isSeq(node) || node instanceof YAMLMap) return node.range?.[0];
  return undefined;
}

function positionAt(lines: LineCounter, offset: number | undefined): Position | undefined {
  if (offset === undefined || offset < 0) return undefined;
  const { line, col } = lines.linePos(offset);
  return line < 1 ? { line: 1, column: 1 } : { line, column: col };
}

const KUBERNETES_TAGS: readonly ScalarTag[] = [
  {
    tag: "tag:yaml.org,2002:int",
    default: true,
    test: /^[-+]?0[0-7]+$/,
    resolve: (text) => Number.parseInt(text, 8),
  },
  {
    tag: "tag:yaml.org,2002:bool",
    default: true,
    test: /^(?:yes|Yes|YES|on|On|ON)$/,
    resolve: () => true,
  },
  {
    tag: "tag:yaml.org,2002:bool",
    default: true,
    test: /^(?:no|No|NO|off|Off|OFF)$/,
    resolve: () => false,
  },
];
