/**
 * Small files of the kernel (/proc, cgroups) and the few numbers wanted out of them. Files are read synchronously: the
 * kernel makes them in memory, and 600 of them take 6 ms so, 160 ms with promises (Node 24.21 with the agent's flags).
 */
import { readFileSync } from "node:fs";
import type { Stall, StallRecord } from "../core/node/usage.ts";

/** Bounds a number: 2^64 has 20 digits. A longer text is no number. */
const MAX_DIGITS = 24;

/** Undefined: it is not there, not any more (ENODEV), or the kernel has it switched off (EOPNOTSUPP). */
export function readKernelFile(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** At the beginning of the text; undefined for what is no number of at least 0, such as `max`. */
export const numberIn = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : numberAt(text, 0);

/** Behind `name` at the beginning of a line; it ends with what is between the two, such as `rss ` or `MemFree:`. */
export function fieldIn(text: string, name: string): number | undefined {
  const at = lineOf(text, name);
  return at < 0 ? undefined : numberAt(text, at + name.length);
}

/** The offset of the line that begins with `name`; -1: there is none. */
export function lineOf(text: string, name: string): number {
  if (text.startsWith(name)) return 0;
  const at = text.indexOf(`\n${name}`);
  return at < 0 ? -1 : at + 1;
}

/** `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same of `full`; undefined for something else. */
export function stallsIn(text: string | undefined): StallRecord | undefined {
  if (text === undefined) return undefined;
  const some = stallIn(text, "some ");
  return some === undefined ? undefined : { some, full: stallIn(text, "full ") };
}

function stallIn(text: string, name: string): Stall | undefined {
  const from = lineOf(text, name);
  if (from < 0) return undefined;
  const end = text.indexOf("\n", from);
  const value = (key: string): number => {
    const at = text.indexOf(key, from);
    if (at < 0 || (end >= 0 && at > end)) return Number.NaN;
    const number = Number.parseFloat(text.slice(at + key.length, at + key.length + MAX_DIGITS));
    return number >= 0 && Number.isFinite(number) ? number : Number.NaN;
  };
  const stall = {
    avg10: value(" avg10="),
    avg60: value(" avg60="),
    avg300: value(" avg300="),
    totalUs: value(" total="),
  };
  return Object.values(stall).some(Number.isNaN) ? undefined : stall;
}

function numberAt(text: string, at: number): number | undefined {
  const number = Number.parseInt(text.slice(at, at + MAX_DIGITS), 10);
  return number >= 0 ? number : undefined;
}
