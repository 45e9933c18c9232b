import { PicoletError } from "@picolet/protocol/errors.ts";

/** What the queue needs of SQLite; `main` brings the store's own connection. */

export type Value = string | number | Buffer | null;

export interface QueueDatabase extends Disposable {
  pragma(text: string): unknown;
  execute(sql: string): void;
  run(sql: string, ...values: Value[]): number;
  row(sql: string, ...values: Value[]): Record<string, unknown> | undefined;
  rows(sql: string, ...values: Value[]): Record<string, unknown>[];
  /** On the disk (fsync) when it returns. */
  durably(work: () => void): void;
  transaction(work: () => void): void;
}

export interface QueueDatabases {
  /** @param maxBytes writes fail as on a full disk when it is reached. @throws whatever is wrong with file or disk */
  open(path: string, maxBytes: number): QueueDatabase;
  /** Whether `error` says that the file contradicts itself. */
  isDamage(error: unknown): boolean;
}

const FORMAT = 1;
/** "pict": nothing else is taken for a queue. */
const APPLICATION_ID = 0x70696374;

/**
 * `lives`: of agents, whose batches are numbered each by itself; `offsetUs` is what the machine's monotonic clock was
 * behind the time, of those that knew it; `lastUs` the latest of that clock when the row was written. `runs`: what was
 * taken of each sender, and the last batch with some of it.
 */
const TABLES = [
  "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
  "CREATE TABLE lives (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, boot TEXT NOT NULL, offsetUs INTEGER, " +
    "lastUs INTEGER NOT NULL) STRICT",
  "CREATE TABLE batches (id INTEGER PRIMARY KEY, life INTEGER NOT NULL, sequence INTEGER NOT NULL, pod TEXT NOT NULL, " +
    "baseUs INTEGER NOT NULL, wallUs INTEGER NOT NULL, records INTEGER NOT NULL, body BLOB NOT NULL) STRICT",
  "CREATE TABLE runs (run TEXT PRIMARY KEY, number INTEGER NOT NULL, batch INTEGER NOT NULL) STRICT, WITHOUT ROWID",
];

/** Makes an empty file a queue. @throws `corrupt` when it is neither empty nor a queue, or damaged */
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
