/** jco's generated ES module, made into what a runner loads with the least memory: the body of one function, in ASCII. */
import { Script } from "node:vm";
import { PicoletError } from "../../../protocol/errors.ts";
import { leanGlue } from "./lean-glue.ts";

const ENTRY = /^export function instantiate\(/m;
const UTILITIES = /^[ \t]*export const _util = \{[^}]*\};?/m;

/**
 * @returns the body of a strict function that returns `instantiate`.
 * @throws `failed` when jco's output has another form than the one known here.
 */
export function asScript(source: string): string {
  const body = source.replace(ENTRY, "function instantiate(").replace(UTILITIES, "");
  if (!ENTRY.test(source) || /^\s*(?:export|import)\b/m.test(body)) {
    throw new PicoletError("failed", "cannot read what jco generated: it has changed its form");
  }
  const plain = withoutIndentation(body);
  const script = `"use strict";\n${escaped(leanGlue(plain) ?? plain)}\nreturn instantiate;\n`;
  requireParsable(script);
  return script;
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
