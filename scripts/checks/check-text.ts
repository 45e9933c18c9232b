/**
 * Checks the text of the tree: no line above 120 columns, and none of the words that a reader would have to decode (the table
 * `WORDS` says what to write instead). Comments, documents and messages count; code, goldens and generated files do not.
 * `--write [PATH …]` wraps comments that are too long.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { parseSync, Visitor } from "oxc-parser";

const COLUMNS = 120;
const IGNORED =
  /^(test\/golden|test\/fuzz|wit\/generated|wit\/board\/deps)\/|^(LICENSE|CHANGELOG\.md)$|check-text(\.test)?\.ts$/;

interface Word {
  readonly pattern: RegExp;
  readonly instead: string;
}

/** What is refused, in lower case, and what to write instead. */
export const WORDS: readonly Word[] = [
  { pattern: /\banew\b/i, instead: "again" },
  { pattern: /\b(?:some(?:body|one)|(?:any|every)body)\b/i, instead: "a client, a peer, a user: name which" },
  { pattern: /\bnobody\b/i, instead: "no one, or name who: no client, no caller" },
  { pattern: /\bwho(?:m?ever|soever)\b/i, instead: "any caller, any client, the one that" },
  { pattern: /\bwhatever\b/i, instead: "any, all that, or name it" },
  { pattern: /\b(?:is|are) to be\b/i, instead: "must be" },
  { pattern: /\bbelongs? into\b/i, instead: "goes into" },
  { pattern: /\bstrangers?\b/i, instead: "orphan, unknown peer" },
  { pattern: /\bstand-?ins?\b/i, instead: "placeholder, fallback" },
  { pattern: /\blet(?:s|ting)? go of\b/i, instead: "release" },
  { pattern: /\b(?:look|looks|looked|looking) (?:at|around|after)\b/i, instead: "read, sample, inspect, check" },
  { pattern: /\b(?:tells?|told) (?:of|about)\b/i, instead: "report" },
  { pattern: /\b(?:is|are|was|were|be|been) told\b/i, instead: "is notified, receives, is reported to" },
  { pattern: /\brouses?\b/i, instead: "wake up" },
  { pattern: /\bby its own word\b|\bfor want of\b|\bin vain\b/i, instead: "plain words" },
];

/** A comment that begins so has mostly no main verb. */
const CLAUSE = /^(?:Of|Whether|Who|Whom|Which|What) (?!is\b|are\b|does\b)/;

export interface Fault {
  readonly line: number;
  readonly message: string;
}

interface Piece {
  readonly line: number;
  readonly text: string;
}

interface Comment {
  readonly type: "Line" | "Block";
  readonly value: string;
  readonly start: number;
  readonly end: number;
}

const lineOf = (source: string, offset: number): number => source.slice(0, offset).split("\n").length;

/** The text of comments, without their marks. */
function commentsOf(path: string, source: string): Piece[] {
  if (!/\.m?ts$/.test(path)) return source.split("\n").map((text, index) => ({ line: index + 1, text }));
  const { comments } = parseSync(path, source) as unknown as { readonly comments: readonly Comment[] };
  return comments.flatMap(({ value, start }) => {
    const first = lineOf(source, start);
    return value
      .split("\n")
      .map((text, index) => ({ line: first + index, text: text.replace(/^\s*\*+ ?/, "").trim() }));
  });
}

/** Strings of several words, which users read: messages, log lines, help. Those of tests are left out. */
function messagesOf(path: string, source: string): Piece[] {
  if (!/\.m?ts$/.test(path) || /\.test\.ts$|^test\//.test(path)) return [];
  const found: Piece[] = [];
  const add = (text: string, start: number): void => {
    if (text.includes(" ")) found.push({ line: lineOf(source, start), text });
  };
  new Visitor({
    Literal: ({ value, start }) => typeof value === "string" && add(value, start),
    TemplateElement: ({ value, start }) => add(value.cooked ?? "", start),
  }).visit(parseSync(path, source).program);
  return found;
}

/** A long string, address or table row cannot be divided, nor what a document shows of a terminal or a file. */
function cannotBreak(path: string, line: string, isFenced: boolean): boolean {
  if (/\S{80}/.test(line)) return true;
  const hasLongCode = (): boolean => line.matchAll(/`[^`]*`/g).some(([code]) => code.length > 80);
  if (path.endsWith(".md")) return isFenced || /^\s*(?:\||```|!\[|<)/.test(line) || hasLongCode();
  return /["'`/].{50,}["'`/]/.test(line);
}

/** @param path decides how the text is read: TypeScript or a document */
export function faultsOf(path: string, source: string): Fault[] {
  const faults: Fault[] = [];
  let isFenced = false;
  for (const [index, line] of source.split("\n").entries()) {
    if (/^\s*```/.test(line)) isFenced = !isFenced;
    if (line.length > COLUMNS && !cannotBreak(path, line, isFenced)) {
      faults.push({ line: index + 1, message: `${line.length} columns: wrap it at ${COLUMNS}` });
    }
  }
  const withoutCode = (text: string): string => text.replaceAll(/`[^`]*`/g, "`x`");
  const comments = commentsOf(path, source);
  for (const { line, text } of [...comments, ...messagesOf(path, source)]) {
    for (const { pattern, instead } of WORDS) {
      const found = pattern.exec(withoutCode(text))?.[0];
      if (found !== undefined) faults.push({ line, message: `"${found}": write ${instead}` });
    }
  }
  for (const { line, text } of comments) {
    const bare = withoutCode(text);
    if (/\.m?ts$/.test(path) && CLAUSE.test(bare.replace(/^\*\s*/, ""))) {
      faults.push({ line, message: `"${bare.slice(0, 30)}…": begin with a noun or a verb, and write a sentence` });
    }
  }
  return faults.sort((a, b) => a.line - b.line);
}

/** The words of a paragraph in lines of at most `width` characters. */
function fill(words: readonly string[], width: number): string[] {
  const lines: string[] = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/**
 * Fills the paragraphs of a comment. Fenced code and indented blocks stay as they are; an item of a list goes on with the
 * indentation of its text.
 */
function wrapParagraphs(texts: readonly string[], width: number): string[] {
  const wrapped: string[] = [];
  let paragraph: string[] = [];
  let isFenced = false;
  const close = (): void => {
    const words = paragraph.join(" ").split(/\s+/).filter(Boolean);
    const hanging = /^[-*]$/.test(words[0] ?? "") ? "  " : "";
    const [first, ...rest] = fill(words, width - hanging.length);
    if (first !== undefined) wrapped.push(first, ...rest.map((line) => hanging + line));
    paragraph = [];
  };
  for (const text of texts) {
    const isFence = text.trim().startsWith("```");
    if (isFence) isFenced = !isFenced;
    if (isFenced || isFence || /^ {3}/.test(text)) {
      close();
      wrapped.push(text);
    } else if (text.trim() === "") {
      close();
      if (wrapped.length > 0) wrapped.push("");
    } else {
      if (/^\s*(?:@|[-*|] |\d+\. )/.test(text)) close();
      paragraph.push(text.trim());
    }
  }
  close();
  return wrapped;
}

/** Block comments and runs of line comments whose lines are too long, wrapped; lists, tables and tags keep their first line. */
export function wrapComments(path: string, source: string): string {
  const lines = source.split("\n");
  const { comments } = parseSync(path, source) as unknown as { readonly comments: readonly Comment[] };
  const edits: { readonly from: number; readonly to: number; readonly lines: readonly string[] }[] = [];
  let run: { from: number; to: number } | undefined;
  const flush = (): void => {
    if (run === undefined) return;
    const { from, to } = run;
    run = undefined;
    const old = lines.slice(from, to + 1);
    if (old.every((line) => line.length <= COLUMNS)) return;
    const indent = /^\s*/.exec(old[0] ?? "")?.[0] ?? "";
    const words = old
      .map((line) => line.trim().replace(/^\/\/ ?/, ""))
      .join(" ")
      .split(/\s+/);
    edits.push({ from, to, lines: fill(words, COLUMNS - indent.length - 3).map((text) => `${indent}// ${text}`) });
  };
  for (const comment of comments) {
    const from = lineOf(source, comment.start) - 1;
    const to = lineOf(source, comment.end) - 1;
    const isAlone = lines[from]?.trim().startsWith(comment.type === "Line" ? "//" : "/*") === true;
    if (comment.type === "Line" && isAlone && !/^\s*(?:biome|@ts|eslint)/.test(comment.value)) {
      if (run !== undefined && run.to === from - 1) run.to = to;
      else {
        flush();
        run = { from, to };
      }
      continue;
    }
    flush();
    if (comment.type !== "Block" || !isAlone || !comment.value.startsWith("*")) continue;
    if (lines[to]?.trim().endsWith("*/") !== true) continue;
    const old = lines.slice(from, to + 1);
    if (old.every((line) => line.length <= COLUMNS)) continue;
    const indent = /^\s*/.exec(old[0] ?? "")?.[0] ?? "";
    const texts = comment.value
      .slice(1)
      .split("\n")
      .map((text) => text.replace(/^\s*\* ?/, "").trimEnd());
    const wrapped = wrapParagraphs(texts, COLUMNS - indent.length - 3);
    while (wrapped.at(-1) === "") wrapped.pop();
    edits.push({
      from,
      to,
      lines: [`${indent}/**`, ...wrapped.map((text) => `${indent} * ${text}`.trimEnd()), `${indent} */`],
    });
  }
  flush();
  for (const { from, to, lines: made } of edits.sort((a, b) => b.from - a.from))
    lines.splice(from, to - from + 1, ...made);
  return lines.join("\n");
}

function textFiles(): string[] {
  const args = ["ls-files", "-co", "--exclude-standard", "*.ts", "*.mjs", "*.md", "*.wit"];
  const files = execFileSync("git", args, { encoding: "utf8" }).split("\n");
  return files.filter((path) => path !== "" && !IGNORED.test(path) && existsSync(path));
}

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    const paths = process.argv.slice(2).filter((each) => !each.startsWith("--"));
    const isAsked = (path: string): boolean => paths.length === 0 || paths.some((each) => path.startsWith(each));
    for (const path of textFiles().filter((each) => each.endsWith(".ts") && isAsked(each))) {
      const source = readFileSync(path, "utf8");
      const wrapped = wrapComments(path, source);
      if (wrapped !== source) writeFileSync(path, wrapped);
    }
  }
  const found = new Map(textFiles().map((path) => [path, faultsOf(path, readFileSync(path, "utf8"))]));
  const total = [...found.values()].reduce((sum, faults) => sum + faults.length, 0);
  for (const [path, faults] of found)
    for (const { line, message } of faults) console.error(`${path}:${line}: ${message}`);
  console.log(`text: ${found.size} files, ${total} faults`);
  process.exitCode = total === 0 ? 0 : 1;
}
