/** The syntax of entries of `wasm.picolet.io/devices`: paths below /dev, and lists of numbers. Pure. */
import type { DeviceGrant } from "@picolet/runtime-contract/board-services.ts";

/** Bounds the numbers of one entry. Chips and buses of boards have some dozens of lines or addresses. */
const MAX_NUMBERS = 128;
const MAX_PATH_LENGTH = 255;
/** A name as udev gives it below /dev. No part is empty, `.` or `..`, so that no path leads out of /dev. */
const PATH = /^\/dev(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._:+@=,#-]+)+$/;

export type ParsedEntry<T> = { readonly value: T } | { readonly problem: string };

/** The syntax of one kind of device. */
export interface DeviceSyntax {
  /** A whole entry, for error messages. */
  readonly example: string;
  /** @param text the entry behind its kind and colon */
  readonly parse: (text: string) => ParsedEntry<DeviceGrant>;
}

export function parsePath(text: string): ParsedEntry<string> {
  if (text.length <= MAX_PATH_LENGTH && PATH.test(text)) return { value: text };
  return { problem: `"${text}" is no path of a device: write it as it is below /dev` };
}

export interface NumberedSyntax {
  /** The plural noun for the numbers. */
  readonly noun: string;
  /** The valid range, for error messages. */
  readonly range: string;
  readonly example: string;
  /** @returns undefined for text that is no valid number */
  readonly read: (text: string) => number | undefined;
}

/** Parses `PATH:NUMBER,NUMBER`. Each number is returned once. */
export function parseNumbered(
  text: string,
  syntax: NumberedSyntax,
): ParsedEntry<{ readonly path: string; readonly numbers: readonly number[] }> {
  // Paths may hold colons, numbers do not.
  const last = text.lastIndexOf(":");
  const path = parsePath(last < 0 ? text : text.slice(0, last));
  if ("problem" in path) return path;
  const numbers = parseNumbers(last < 0 ? "" : text.slice(last + 1), syntax);
  return "problem" in numbers ? numbers : { value: { path: path.value, numbers: numbers.value } };
}

function parseNumbers(text: string, { noun, range, example, read }: NumberedSyntax): ParsedEntry<readonly number[]> {
  const parts = text.split(",").map((each) => each.trim());
  if (text.trim() === "") return { problem: `there are no ${noun}: write ${example}` };
  if (parts.length > MAX_NUMBERS) return { problem: `more than ${MAX_NUMBERS} ${noun}` };
  const wrong = parts.find((each) => read(each) === undefined);
  if (wrong !== undefined) return { problem: `"${wrong}" is not ${range}` };
  return { value: [...new Set(parts.map((each) => read(each) ?? 0))] };
}
