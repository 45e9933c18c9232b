/** Opens the store's file in any state: a damaged one is set aside; in an unusable place the store is in memory. */

import {
  closeSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { describeError, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { Connection, MAX_DATABASE_BYTES, MEMORY } from "./connection.ts";
import { type PodRow, salvagePods, writePod } from "./desired-rows.ts";
import { faultOf } from "./faults.ts";
import { checkPages, checkTables, corrupt, migrate } from "./schema.ts";

/** The origin of the store's contents. */
export type Opening =
  | { readonly kind: "opened" }
  | { readonly kind: "created" }
  /** The file was damaged. `setAside` is where it is now; `salvagedPods` of its pods could still be read. */
  | { readonly kind: "rebuilt"; readonly reason: string; readonly setAside: string; readonly salvagedPods: number }
  /** There is no writing at this place: what changes is lost with the process. */
  | { readonly kind: "inMemory"; readonly reason: string; readonly salvagedPods: number };

export interface OpenedDatabase<T> {
  readonly connection: Connection;
  /** The result of `load`. */
  readonly contents: T;
  readonly opening: Opening;
}

export interface OpenDatabaseInit<T> {
  /** Absolute, or MEMORY. */
  readonly path: string;
  /** Writes fail as on a full disk when it is reached. Default MAX_DATABASE_BYTES. */
  readonly maxBytes?: number;
  /** Wall time, for the name of a file that is set aside. */
  readonly now: Date;
  /** Reads what memory must hold; it throws `corrupt` when that is not as it was written. */
  readonly load: (connection: Connection) => T;
}

/**
 * Bounds the damaged files that are kept: the newest to examine, and the one before it. More would fill a small disk.
 */
const KEPT_DAMAGED_FILES = 2;
/** SQLite's own companions of a database file. */
const COMPANIONS = ["", "-wal", "-shm", "-journal"];

/**
 * Never throws for the state of file or disk.
 * @throws `conflict` when another process has the file open, or a newer picolet wrote it.
 */
export function openDatabase<T>(init: OpenDatabaseInit<T>): OpenedDatabase<T> {
  const { path } = init;
  if (path === MEMORY) return openInMemory(init, "no file was asked for");
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const existed = sizeOf(path) > 0;
    const opened = openFile(init);
    return { ...opened, opening: { kind: existed ? "opened" : "created" } };
  } catch (error) {
    if (error instanceof PicoletError && error.code === "conflict") throw error;
    const fault = faultOf(error);
    if (fault === "busy") throw heldByAnother(path, error);
    const reason = describeError(error);
    if (fault === "unwritable" || fault === "full") return openInMemory(init, reason, salvage(path));
    return rebuild(init, reason);
  }
}

/** A new, empty file in the place of one that turned out damaged while it was in use, and has been closed. */
export function replaceDatabase<T>(init: OpenDatabaseInit<T>, reason: string): OpenedDatabase<T> {
  return rebuild(init, reason, { salvages: false });
}

/** An empty store that lives as long as the process. */
export function openInMemory<T>(
  { load }: OpenDatabaseInit<T>,
  reason: string,
  pods: readonly PodRow[] = [],
): OpenedDatabase<T> {
  const connection = new Connection(MEMORY);
  migrate(connection);
  const contents = fill(connection, pods, load);
  return { connection, contents, opening: { kind: "inMemory", reason, salvagedPods: pods.length } };
}

function openFile<T>({ path, load, maxBytes }: OpenDatabaseInit<T>): Omit<OpenedDatabase<T>, "opening"> {
  // Other kinds of files are not opened: a pipe would wait for its other end for ever.
  if (isThere(path) && !isFile(path)) throw corrupt("it is not a file");
  // Made before SQLite does, so that no other user can read the objects of pods in it.
  closeSync(openSync(path, "a", 0o600));
  const { size } = statSync(path);
  if (size > MAX_DATABASE_BYTES) throw corrupt(`it is larger than a store can be: ${size} bytes`);
  const connection = new Connection(path, maxBytes);
  try {
    checkPages(connection);
    migrate(connection);
    checkTables(connection);
    checkWritable(connection);
    return { connection, contents: load(connection) };
  } catch (error) {
    connection[Symbol.dispose]();
    throw error;
  }
}

/** The file could be opened for writing; if the database cannot, one byte of its header says so wrongly. */
function checkWritable(connection: Connection): void {
  try {
    connection.rehearse("UPDATE meta SET value = value");
  } catch (error) {
    throw errnoOf(error).startsWith("SQLITE_READONLY") ? corrupt("its header says that it is read-only") : error;
  }
}

function rebuild<T>(init: OpenDatabaseInit<T>, reason: string, { salvages } = { salvages: true }): OpenedDatabase<T> {
  let pods: readonly PodRow[] = [];
  try {
    const aside = setAside(init.path, init.now);
    if (salvages) pods = salvage(aside);
    const { connection } = openFile(init);
    const contents = fill(connection, pods, init.load);
    return { connection, contents, opening: { kind: "rebuilt", reason, setAside: aside, salvagedPods: pods.length } };
  } catch (error) {
    return openInMemory(init, `${reason}; and no new file can be made: ${describeError(error)}`, pods);
  }
}

/** Fills an empty store. Revisions are not copied, because each source must report again what was lost. */
function fill<T>(connection: Connection, pods: readonly PodRow[], load: (connection: Connection) => T): T {
  if (pods.length > 0) {
    connection.durably(() => {
      for (const pod of pods) writePod(connection, pod);
    });
  }
  return load(connection);
}

/**
 * Out of a copy in the temporary folder: the file itself is evidence, or lies where nothing can be written. Never
 * throws.
 */
function salvage(path: string): readonly PodRow[] {
  let folder: string | undefined;
  try {
    if (!isFile(path) || sizeOf(path) > MAX_DATABASE_BYTES || sizeOf(`${path}-wal`) > MAX_DATABASE_BYTES) return [];
    folder = mkdtempSync(join(tmpdir(), "picolet-store-"));
    const copy = join(folder, "copy.db");
    copyFileSync(path, copy);
    if (isThere(`${path}-wal`)) copyFileSync(`${path}-wal`, `${copy}-wal`);
    using connection = new Connection(copy);
    return salvagePods(connection);
  } catch {
    return [];
  } finally {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Moves a database away with its log. @returns where it is now: `<path>.damaged-<time>`, its log beside it as `…-wal`.
 */
export function setAside(path: string, now: Date): string {
  const stem = `${path}.damaged-${now.toISOString().replace(/[-:]|\.\d+/g, "")}`;
  let aside = stem;
  // The clock may stand still or go back; two files are never one.
  for (let n = 1; isThere(aside); n += 1) aside = `${stem}-${n}`;
  for (const suffix of COMPANIONS) {
    if (isThere(path + suffix)) renameSync(path + suffix, aside + suffix);
  }
  dropOldestDamaged(path, aside);
  return aside;
}

function dropOldestDamaged(path: string, newest: string): void {
  const others = damagedFiles(path).filter((name) => name !== basename(newest));
  for (const name of others.slice(KEPT_DAMAGED_FILES - 1)) removeDamaged(path, name);
}

/** All files that were set aside of the database at `path`. */
export function removeDamagedFiles(path: string): void {
  for (const name of damagedFiles(path)) removeDamaged(path, name);
}

/** The newest first. */
function damagedFiles(path: string): string[] {
  const prefix = `${basename(path)}.damaged-`;
  const isOne = (name: string): boolean =>
    name.startsWith(prefix) && !COMPANIONS.some((s) => s !== "" && name.endsWith(s));
  return readdirSync(dirname(path)).filter(isOne).toSorted().toReversed();
}

function removeDamaged(path: string, name: string): void {
  for (const suffix of COMPANIONS) rmSync(join(dirname(path), name + suffix), { recursive: true, force: true });
}

/** @returns whether the path exists, a dangling link included */
const isThere = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined;

const sizeOf = (path: string): number => lstatSync(path, { throwIfNoEntry: false })?.size ?? 0;

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

const heldByAnother = (path: string, cause: unknown): PicoletError =>
  toPicoletError(cause, "conflict", `cannot open ${path}: another picolet is using it`);
