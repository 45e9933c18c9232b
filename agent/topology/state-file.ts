/** The kubelet's checkpoint files: JSON with a checksum of what is in it as Go prints it. */
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

/** 64 pods of a hundred containers each take 1 MB; what is longer was not written by an agent of a board. */
const MAX_STATE_BYTES = 16 * MEBIBYTE;

export const CORRUPT = "checkpoint is corrupted";

/** A field may be of another type than one expects. */
export type Fields = Readonly<Record<string, unknown>>;

/**
 * @param manager the name that the kubelet's message has for it
 * @returns undefined when there is no file. @throws `conflict` with what the kubelet says of a file that `parse` does
 * not take
 */
export function restoredState<T>(path: string, manager: string, parse: (fields: Fields) => T): T | undefined {
  try {
    const fields = readStateFile(path);
    return fields === undefined ? undefined : parse(fields);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new PicoletError(
      "conflict",
      `could not restore state from checkpoint: ${why}, please drain this node and delete the ${manager} manager checkpoint file ${JSON.stringify(path)} before restarting Kubelet`,
    );
  }
}

/** @returns undefined when there is no file. @throws `corrupt` for what is no JSON object */
function readStateFile(path: string): Fields | undefined {
  const text = readText(path);
  if (text === undefined) return undefined;
  if (text.length > MAX_STATE_BYTES) throw corrupt();
  try {
    const parsed: unknown = JSON.parse(text);
    if (isFields(parsed)) return parsed;
  } catch {
    ignore("the error below says it");
  }
  throw corrupt();
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** On the disk when it returns; a power cut leaves the old file or the new one. @throws what the file system says */
export function writeStateFile(path: string, text: string): void {
  const folder = dirname(path);
  mkdirSync(folder, { recursive: true });
  const next = `${path}.new`;
  const file = openSync(next, "w", 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(next, path);
  const parent = openSync(folder, "r");
  try {
    fsyncSync(parent);
  } finally {
    closeSync(parent);
  }
}

export const corrupt = (): PicoletError => new PicoletError("corrupt", CORRUPT);

export const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** FNV-1a, 32 bits. */
export function checksumOf(printed: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(printed)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

/** In the order of their bytes, as Go sorts texts. */
export const sortedKeys = (record: Readonly<Record<string, unknown>>): readonly string[] =>
  Object.keys(record).sort((left, right) => Buffer.compare(Buffer.from(left), Buffer.from(right)));

const HTML_ESCAPES = /[<>&\u2028\u2029]/g;

/**
 * JSON as Go writes it: keys of records in the order of their bytes, no spaces, nothing that HTML would take for its
 * own.
 */
export function goJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(goJson).join(",")}]`;
  if (value instanceof SortedRecord) {
    const { record } = value;
    return `{${sortedKeys(record)
      .map((key) => `${goText(key)}:${goJson(record[key])}`)
      .join(",")}}`;
  }
  if (isFields(value)) {
    const present = Object.entries(value).filter(([, each]) => each !== undefined);
    return `{${present.map(([key, each]) => `${goText(key)}:${goJson(each)}`).join(",")}}`;
  }
  return typeof value === "string" ? goText(value) : JSON.stringify(value);
}

/**
 * A Go map, which is sorted when it is written; other records are structures, whose fields have an order of their own.
 */
export class SortedRecord {
  readonly record: Readonly<Record<string, unknown>>;

  constructor(record: Readonly<Record<string, unknown>>) {
    this.record = record;
  }
}

const goText = (text: string): string =>
  JSON.stringify(text).replace(
    HTML_ESCAPES,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
