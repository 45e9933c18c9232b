/**
 * jco's generated ES module, made into what a runner loads with the least memory: the body of one function, in ASCII.
 */
import { Script } from "node:vm";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { ASYNCHRONOUS } from "./asynchronous-patches.ts";
import { CHEAP } from "./cheap-patches.ts";
import { type GluePatch, patched } from "./glue-patch.ts";
import { keepHandles } from "./kept-handles.ts";
import { SYNCHRONOUS } from "./synchronous-patches.ts";

const ENTRY: readonly GluePatch[] = [
  {
    name: "the entry",
    why: "the runner calls a function, and loads no module",
    onMiss: "refuse",
    form: /^export function instantiate\(/m,
    by: "function instantiate(",
  },
  {
    name: "the utilities",
    why: "nothing uses them",
    onMiss: "refuse",
    form: /^([ \t]*)export const _util = \{[\s\S]*?^\1\};?/m,
    by: "",
    gone: /^\s*(?:export|import)\b/m,
  },
  {
    name: "indentation",
    why: "a fifth of the file, and every runner keeps its text in memory",
    onMiss: "refuse",
    apply: (text) => text.replace(/^[ \t]+/gm, ""),
  },
  {
    name: "a call that takes a handle",
    why: "one that waits is made again after the wait, and must find the handle then",
    onMiss: "refuse",
    apply: keepHandles,
  },
];

/**
 * Every patch of jco's glue. A component has the entry's, and those of one kind: synchronous ones, then the cheap ones
 * too.
 */
export const GLUE_PATCHES = { entry: ENTRY, synchronous: SYNCHRONOUS, cheap: CHEAP, asynchronous: ASYNCHRONOUS };
export type GluePatches = typeof GLUE_PATCHES;

const IS_ASYNCHRONOUS = /^(?:isAsync|isManualAsync|funcTypeIsAsync): true\b/m;

export interface GeneratedScript {
  /** The body of a strict function that returns `instantiate`. */
  readonly script: string;
  /** False: it has jco's own text, which keeps something of each call of the host. */
  readonly isLean: boolean;
  /** Names of patches that jco's text has no place for any more: it takes more memory and time than it should. */
  readonly missed: readonly string[];
}

/** @throws `failed` when jco's output has another form than the one known here. */
export function asScript(source: string, patches: GluePatches = GLUE_PATCHES): GeneratedScript {
  const entry = patched(source, patches.entry);
  if (entry.outcome === "refuse") {
    throw new PicoletError("failed", `cannot read what jco generated: ${entry.missed.join(", ")} has changed its form`);
  }
  const { text, isLean, missed } = withGlue(entry.text, patches);
  const script = `"use strict";\n${escaped(text)}\nreturn instantiate;\n`;
  requireParsable(script);
  return { script, isLean, missed };
}

function withGlue(text: string, { synchronous, cheap, asynchronous }: GluePatches) {
  const kinds = IS_ASYNCHRONOUS.test(text) ? [asynchronous] : [synchronous, asynchronous];
  const tries = kinds.map((kind) => ({ kind, ...patched(text, kind) }));
  const lean = tries.find(({ outcome }) => outcome === "whole" || outcome === "leave patch");
  if (lean === undefined) return { text, isLean: false, missed: tries[0]?.missed ?? [] };
  const quick = lean.kind === synchronous ? patched(lean.text, cheap) : { text: lean.text, missed: [] };
  return { text: quick.text, isLean: true, missed: [...lean.missed, ...quick.missed] };
}

/** A component that the runner cannot load would fail on each of its starts; here it says why once. */
function requireParsable(script: string): void {
  try {
    new Script(`(function () {${script}})`);
  } catch (cause) {
    throw new PicoletError("failed", "cannot read what jco generated: what was made of it is no program", { cause });
  }
}

/** Strings of single bytes take half the memory. Escapes mean the same in names, strings and templates. */
const escaped = (text: string): string =>
  text.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
