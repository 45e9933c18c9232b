import { PicoletError } from "@picolet/protocol/errors.ts";

/** The queue's view of SQLite. `main` passes the store's connection class. */

export type Value = string | number | Buffer | null;

export interface QueueDatabase extends Disposable {
  pragma(text: string): unknown;
  execute(sql: string): void;
  run(sql: string, ...values: Value[]): number;
  row(sql: string, ...values: Value[]): Record<string, unknown> | undefined;
  rows(sql: string, ...values: Value[]): Record<string, unknown>[];
  /** Runs a transaction that is on disk (fsync) when this returns. */
  durably(work: () => void): void;
  transaction(work: () => void): void;
}

export interface QueueDatabases {
  /** @param maxBytes above it writes fail as on a full disk. @throws errors of the file or the disk */
  open(path: string, maxBytes: number): QueueDatabase;
  /** @returns whether `error` means that the file is damaged */
  isDamage(error: unknown): boolean;
}

const FORMAT = 1;
/** "pict": marks a file as a queue. */
const APPLICATION_ID = 0x70696374;

/**
 * `lives`: runs of the agent, each of which numbers its batches; `offsetUs` is wall time minus monotonic time if it was
 * known, `lastUs` the monotonic time when the row was written. `runs`: the last handover taken from each sender, and
 * the last batch with a part of it.
 */
const TABLES = [
  "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
  "CREATE TABLE lives (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, boot TEXT NOT NULL, offsetUs INTEGER, " +
    "lastUs INTEGER NOT NULL) STRICT",
  "CREATE TABLE batches (id INTEGER PRIMARY KEY, life INTEGER NOT NULL, sequence INTEGER NOT NULL, pod TEXT NOT NULL, " +
    "baseUs INTEGER NOT NULL, wallUs INTEGER NOT NULL, records INTEGER NOT NULL, body BLOB NOT NULL) STRICT",
  "CREATE TABLE runs (run TEXT PRIMARY KEY, number INTEGER NOT NULL, batch INTEGER NOT NULL) STRICT, WITHOUT ROWID",
];

/** Creates the tables in an empty file. @throws `corrupt` when the file is damaged, or neither empty nor a queue */
export function prepareQueue(database: QueueDatabase): void {
  const verdict = database.pragma("quick_check(1)");
  if (verdict !== "ok") throw new PicoletError("corrupt", `the check found: ${String(verdict).slice(0, 200)}`);
  const format = database.pragma("user_version");
  if (format === FORMAT && database.pragma("application_id") === APPLICATION_ID) return;
  if (format !== 0 || database.row("SELECT 1 FROM sqlite_schema LIMIT 1") !== undefined) {
    throw new PicoletError("corrupt", `it is no queue of format ${FORMAT}`);
  }
  database.durably(() => {
    for (const table of TABLES) database.execute(table);
    database.pragma(`application_id = ${APPLICATION_ID}`);
    database.pragma(`user_version = ${FORMAT}`);
  });
}
