/** jco's generated ES module, made into what a runner loads with the least memory: the body of one function, in ASCII. */
import { Script } from "node:vm";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { asyncGlue } from "./async-glue.ts";
import { keepHandles } from "./kept-handles.ts";
import { leanGlue } from "./lean-glue.ts";
import { quickGlue } from "./quick-glue.ts";

const ENTRY = /^export function instantiate\(/m;
const UTILITIES = /^([ \t]*)export const _util = \{[\s\S]*?^\1\};?/m;

export interface GeneratedScript {
  /** The body of a strict function that returns `instantiate`. */
  readonly script: string;
  /** False: it has jco's own text, which keeps something of each call of the host. */
  readonly isLean: boolean;
}

/**
 * @throws `failed` when jco's output has another form than the one known here.
 */
export function asScript(source: string): GeneratedScript {
  const body = source.replace(ENTRY, "function instantiate(").replace(UTILITIES, "");
  if (!ENTRY.test(source) || /^\s*(?:export|import)\b/m.test(body)) {
    throw new PicoletError("failed", "cannot read what jco generated: it has changed its form");
  }
  const plain = keepHandles(withoutIndentation(body));
  if (plain === undefined) {
    throw new PicoletError("failed", "cannot read what jco generated: a call that takes a handle has changed its form");
  }
  const synchronous = leanGlue(plain);
  const lean = synchronous === undefined ? asyncGlue(plain) : quickGlue(synchronous);
  const script = `"use strict";\n${escaped(lean ?? plain)}\nreturn instantiate;\n`;
  requireParsable(script);
  return { script, isLean: lean !== undefined };
}

/** A component that the runner cannot load would fail on each of its starts; here it says why once. */
function requireParsable(script: string): void {
  try {
    new Script(`(function () {${script}})`);
  } catch (cause) {
    throw new PicoletError("failed", "cannot read what jco generated: what was made of it is no program", { cause });
  }
}

/** A fifth of the file, and every runner keeps its text in memory. */
const withoutIndentation = (text: string): string => text.replace(/^[ \t]+/gm, "");

/** Strings of single bytes take half the memory. Escapes mean the same in names, strings and templates. */
const escaped = (text: string): string =>
  text.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
