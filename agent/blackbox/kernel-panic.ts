/** The last words of a kernel that panicked, as systemd-pstore(8) keeps them at the start after it. */

import { hash } from "node:crypto";
import {
  closeSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { panicRecords } from "@picolet/protocol/decisions/panic-records.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import type { Log } from "@picolet/protocol/ports.ts";

export interface KernelPanic {
  /** One line of the kernel's log. Not yet without credentials. */
  readonly message: string;
  /** The file that has all of it. */
  readonly path: string;
}

export interface KernelPanicInit {
  /** `PANIC_RECORDS`, but in tests. */
  readonly folder: string;
  /** Has the hash of the panic that was reported last, and the boot after it. */
  readonly notePath: string;
  /** The kernel's `boot_id`. */
  readonly bootId: string;
  readonly log: Log;
}

/** The end of a record is read: pstore's are 8 to 64 KiB. */
const MAX_RECORD_BYTES = 65_536;
const MAX_LINE = 240;

interface Found {
  readonly path: string;
  readonly mtimeMs: number;
}

/**
 * The panic that ended the boot before this one; undefined: none did. No clock decides, as a board may have none: a
 * record that was never reported is of the boot before, if this is the first start of the agent since.
 * @param isNewBoot the agent has not run in this boot before
 */
export function kernelPanic(init: KernelPanicInit, isNewBoot: boolean): KernelPanic | undefined {
  const newest = newestRecord(init.folder);
  const text = newest === undefined ? "" : endOf(newest.path);
  if (newest === undefined || text === "") return undefined;
  const record = hash("sha256", text);
  let note = readNote(init.notePath);
  if (note.record !== record) {
    note = { record, bootId: isNewBoot ? init.bootId : "" };
    keepNote(init, note);
  }
  return note.bootId === init.bootId ? { message: lastWords(text), path: newest.path } : undefined;
}

function newestRecord(folder: string): Found | undefined {
  const found = panicRecords(folder, namesIn).flatMap(fileAt);
  return found.toSorted((one, other) => other.mtimeMs - one.mtimeMs || (other.path < one.path ? -1 : 1))[0];
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    ignore("what is no folder has no records");
    return [];
  }
}

function fileAt(path: string): readonly Found[] {
  return withFile(
    path,
    (file) => {
      const state = fstatSync(file);
      return state.isFile() && state.size > 0 ? [{ path, mtimeMs: state.mtimeMs }] : [];
    },
    [],
  );
}

function endOf(path: string): string {
  return withFile(
    path,
    (file) => {
      const buffer = Buffer.alloc(MAX_RECORD_BYTES);
      const from = Math.max(0, fstatSync(file).size - MAX_RECORD_BYTES);
      return buffer.toString("latin1", 0, readSync(file, buffer, 0, MAX_RECORD_BYTES, from));
    },
    "",
  );
}

function withFile<T>(path: string, use: (file: number) => T, otherwise: T): T {
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    return use(file);
  } catch {
    ignore("a record that cannot be read has no words");
    return otherwise;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/** Lines that say why, the gravest first. */
const REASONS = [
  /Kernel panic - not syncing: ?[^\n]*/g,
  /\b(?:BUG|Oops|Internal error|Unable to handle kernel)\b[^\n]*/g,
  /[^\n]*\S[^\n]*/g,
];

/** The line that says why; where none does, the last one. */
export function lastWords(text: string): string {
  const lines = REASONS.map((pattern) => text.match(pattern)?.at(-1)).find((line) => line !== undefined) ?? "";
  return lines
    .replace(/^<\d+>\[ *[\d.]+\] ?/, "")
    .replace(/[^ -~]+/g, " ")
    .trim()
    .slice(0, MAX_LINE);
}

interface Note {
  readonly record: string;
  readonly bootId: string;
}

function readNote(path: string): Note {
  try {
    const note: unknown = JSON.parse(readFileSync(path, "utf8"));
    if (isRecord(note) && typeof note.record === "string" && typeof note.bootId === "string")
      return { record: note.record, bootId: note.bootId };
  } catch {
    ignore("without a note no panic was reported");
  }
  return { record: "", bootId: "" };
}

/** A disk that refuses it costs a panic that is reported twice. */
function keepNote({ notePath, log }: KernelPanicInit, note: Note): void {
  try {
    writeFileSync(`${notePath}.new`, JSON.stringify(note), { mode: 0o600 });
    renameSync(`${notePath}.new`, notePath);
  } catch (error) {
    log.warn("cannot note that a kernel's panic was reported", { path: notePath, error: describeError(error) });
  }
}
