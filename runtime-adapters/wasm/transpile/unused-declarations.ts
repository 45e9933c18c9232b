/**
 * Takes declarations that nothing mentions out of a list of JavaScript statements. Cautious: a name that occurs
 * anywhere in what stays, be it in a string or as a property, keeps what it names.
 */

/** One statement with the white space and comments before it. */
export interface Statement {
  readonly text: string;
  /** The name of a declaration without side effects; undefined: the statement stays in any case. */
  readonly declares: string | undefined;
}

const DECLARATION = /^\s*(?:(?:async )?function\*?|class|const|let)\s+([\w$]+)/;
const BLOCK_DECLARATION = /^\s*(?:(?:async )?function|class)\b/;
const WORD = /[\w$]+/g;
/** A slash after one of these begins a regular expression; after anything else it divides. */
const BEFORE_EXPRESSION = new Set("(,=:[!&|?{};+-*%<>~^");
const CLOSES: Readonly<Record<string, true>> = { ")": true, "]": true, "}": true };
const OPENS: Readonly<Record<string, true>> = { "(": true, "[": true, "{": true };

/** @throws RangeError for text that ends within a bracket, a string or a comment. */
export function statements(source: string): Statement[] {
  const found: Statement[] = [];
  let start = 0;
  let depth = 0;
  let before = ";";
  const end = (at: number): void => {
    const text = source.slice(start, at);
    found.push({ text, declares: DECLARATION.exec(text)?.[1] });
    start = at;
  };
  for (let at = 0; at < source.length; ) {
    const character = source[at] as string;
    const skipped = skip(source, at, before);
    if (skipped > at) {
      if (!isComment(source, at)) before = "x";
      at = skipped;
      continue;
    }
    at += 1;
    if (OPENS[character]) depth += 1;
    if (CLOSES[character]) depth -= 1;
    if (depth < 0) throw new RangeError("a bracket closes that was not opened");
    if (character.trim() !== "") before = character;
    const closesBlock = character === "}" && BLOCK_DECLARATION.test(source.slice(start, start + 200));
    if (depth === 0 && (character === ";" || closesBlock)) end(at);
  }
  if (depth !== 0) throw new RangeError("a bracket stays open");
  end(source.length);
  return found;
}

/**
 * @param dropped a call, by what its statement begins with at the start of a line; nothing else may depend on it
 * @returns the same without comments, and without those calls
 * @throws RangeError as `statements`
 */
export function removeComments(source: string, dropped: string): string {
  const kept: string[] = [];
  let from = 0;
  let before = ";";
  const leave = (start: number, end: number): number => {
    kept.push(source.slice(from, start));
    from = end;
    return end;
  };
  for (let at = 0; at < source.length; ) {
    const skipped = skip(source, at, before);
    if (skipped > at && isComment(source, at)) {
      at = leave(at, skipped);
    } else if (skipped > at) {
      before = "x";
      at = skipped;
    } else if (source.startsWith(dropped, at) && (at === 0 || source[at - 1] === "\n")) {
      // An empty statement remains, which is valid wherever a statement is.
      at = leave(at, callEnd(source, at + dropped.length - 1));
    } else {
      const character = source[at] as string;
      if (character.trim() !== "") before = character;
      at += 1;
    }
  }
  leave(source.length, source.length);
  return kept.join("");
}

/** @param start of the bracket that opens @returns where the one that closes it ends */
function callEnd(source: string, start: number): number {
  let depth = 0;
  let before = ";";
  for (let at = start; at < source.length; ) {
    const skipped = skip(source, at, before);
    if (skipped > at) {
      if (!isComment(source, at)) before = "x";
      at = skipped;
      continue;
    }
    const character = source[at] as string;
    if (OPENS[character]) depth += 1;
    if (CLOSES[character]) depth -= 1;
    if (character.trim() !== "") before = character;
    at += 1;
    if (depth === 0) return at;
  }
  throw new RangeError("a bracket stays open");
}

const isComment = (source: string, at: number): boolean => source[at] === "/" && /[/*]/.test(source[at + 1] ?? "");

/** @returns where a string, a template, a regular expression or a comment that begins at `at` ends; else `at` */
function skip(source: string, at: number, before: string): number {
  const character = source[at];
  if (character === '"' || character === "'") return closing(source, at, character);
  if (character === "`") return templateEnd(source, at);
  if (character !== "/") return at;
  if (source.startsWith("//", at)) return after(source, "\n", at) - 1;
  if (source.startsWith("/*", at)) return after(source, "*/", at + 2);
  const expects =
    BEFORE_EXPRESSION.has(before) || /\b(?:return|typeof|case)\s*$/.test(source.slice(Math.max(at - 20, 0), at));
  return expects ? closing(source, at, "/") : at;
}

function after(source: string, text: string, from: number): number {
  const at = source.indexOf(text, from);
  if (at < 0) throw new RangeError(`there is no ${JSON.stringify(text)} any more`);
  return at + text.length;
}

function closing(source: string, start: number, quote: string): number {
  for (let at = start + 1; at < source.length; at += 1) {
    if (source[at] === "\\") at += 1;
    else if (source[at] === quote) return at + 1;
    else if (source[at] === "\n") break;
  }
  throw new RangeError(`there is no ${quote} any more`);
}

function templateEnd(source: string, start: number): number {
  let depth = 0;
  for (let at = start + 1; at < source.length; at += 1) {
    const character = source[at];
    if (character === "\\") at += 1;
    else if (depth === 0 && character === "`") return at + 1;
    else if (depth === 0 && source.startsWith("${", at)) {
      depth = 1;
      at += 1;
    } else if (depth > 0) {
      if (character === "{") depth += 1;
      else if (character === "}") depth -= 1;
      else if (character === '"' || character === "'") at = closing(source, at, character) - 1;
      else if (character === "`") at = templateEnd(source, at) - 1;
    }
  }
  throw new RangeError("there is no ` any more");
}

/** @param rest what follows the statements, and may mention what they declare. */
export function removeUnused(all: readonly Statement[], rest: string): Statement[] {
  const byName = new Map<string, Statement[]>();
  const kept = new Set<Statement>();
  const open: string[] = [rest];
  for (const each of all) {
    if (each.declares === undefined) {
      kept.add(each);
      open.push(each.text);
    } else byName.set(each.declares, [...(byName.get(each.declares) ?? []), each]);
  }
  for (let text = open.pop(); text !== undefined; text = open.pop()) {
    for (const name of new Set(text.match(WORD))) {
      for (const each of byName.get(name) ?? []) {
        if (kept.has(each)) continue;
        kept.add(each);
        open.push(each.text);
      }
    }
  }
  return all.filter((each) => kept.has(each));
}

const OPENING = /^function instantiate\([^\n]*\{\n/m;
const GENERATOR = /^let gen= ?\(function\* _initGenerator \(\) \{\n/m;

/**
 * Removes declarations of the function in jco's glue that its generator does not mention.
 * @param prepare changes the generator's text, and names what else its function begins with
 * @returns undefined for glue of another form
 */
export function withoutIdleDeclarations(
  glue: string,
  prepare: (generator: string) => { readonly generator: string; readonly helpers: string },
): string | undefined {
  const opening = OPENING.exec(glue);
  const start = GENERATOR.exec(glue);
  if (opening === null || start === null) return undefined;
  const bodyStart = opening.index + opening[0].length;
  const { generator, helpers } = prepare(glue.slice(start.index));
  const kept = removeUnused(statements(glue.slice(bodyStart, start.index)), generator);
  return glue.slice(0, bodyStart) + helpers + kept.map(({ text }) => text).join("") + generator;
}
