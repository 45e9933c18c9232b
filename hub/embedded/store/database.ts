import { chmodSync, closeSync, openSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import Database from "better-sqlite3";
import { factsOf, type StoreFacts } from "./fleet-guard.ts";

/** "plhb": the file is the embedded API server's store. */
const APPLICATION_ID = 0x706c6862;
export const FORMAT = 2;

const CREATE = [
  "CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID",
  // One row an object. `body` is the whole object as JSON text, its resourceVersion included.
  `CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    expires INTEGER,
    body TEXT NOT NULL,
    UNIQUE (resource, namespace, name)
  ) STRICT`,
  "CREATE INDEX objects_expires ON objects (expires) WHERE expires IS NOT NULL",
  // One row a change. `previous` only where labels or selectable fields changed, see StoredEvent.
  `CREATE TABLE history (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    type TEXT NOT NULL,
    namespace TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    previous TEXT
  ) STRICT`,
  "CREATE INDEX history_resource ON history (resource, revision)",
  // Up to where the history of a resource is gone.
  "CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID",
];

/** Migrations from format n to n + 1, at index n; 0 is the empty file. */
const MIGRATIONS: readonly (readonly string[])[] = [
  [...CREATE, "INSERT INTO meta VALUES ('revision', 1)"],
  // The tables are the same; what is kept of Secrets may be sealed (`vault.ts`), which format 1 knows nothing of.
  [],
];

/** Reads of all pods of a big fleet stay in memory: 5,000 pods of 4 KiB. */
const CACHE_KIB = 20 * 1024;
/** The log goes into the database when it has grown to 4 MiB. */
const CHECKPOINT_PAGES = 1024;
/** For its owner alone. */
const PRIVATE_MODE = 0o600;
/** A hub that was killed may need this long to be gone; a second hub on the same file is refused. */
const BUSY_TIMEOUT_MS = 2000;

/**
 * Opens the store's file, creates or migrates it.
 *
 * `synchronous = FULL`: every commit is an fsync of the log, so what was acknowledged survives a power cut; the cost is
 * shared, since all writes of one turn of the event loop are one commit. NORMAL would lose the last commits on a power
 * cut, and with them statuses that were acknowledged to agents.
 *
 * A damaged file is never replaced by an empty one: to a fleet that would mean "delete every pod".
 * @param judge throws for a store that is not to be used; nothing of it is changed then
 * @throws `corrupt` when SQLite finds damage; `invalid` when it is not ours or newer than we are; `unavailable` when
 *   another hub has it open
 */
export function openDatabase(path: string, judge: (facts: StoreFacts) => void = () => undefined): Database.Database {
  const database = open(path);
  try {
    migrate(database, path, judge);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function explain(path: string, error: unknown): PicoletError {
  if (error instanceof PicoletError) return error;
  // SQLite's extended code: SQLITE_BUSY_SNAPSHOT.
  const code = errnoOf(error);
  if (code.startsWith("SQLITE_BUSY")) {
    return new PicoletError("unavailable", `cannot open ${path}: another picolet-hub has it open`, { cause: error });
  }
  if (code.startsWith("SQLITE_CORRUPT") || code === "SQLITE_NOTADB") return damaged(path, error);
  return new PicoletError("failed", `cannot open ${path}`, { cause: error });
}

const damaged = (path: string, cause: unknown): PicoletError =>
  new PicoletError(
    "corrupt",
    `cannot use ${path}: it is damaged; restore a backup with \`picolet-hub restore\`, which sets it aside`,
    { cause },
  );

function open(path: string): Database.Database {
  let database: Database.Database | undefined;
  try {
    // It holds Secrets and keys. SQLite gives its log the mode of the file.
    closeSync(openSync(path, "a", PRIVATE_MODE));
    chmodSync(path, PRIVATE_MODE);
    database = new Database(path, { timeout: BUSY_TIMEOUT_MS });
    // Exclusive, before the log is first read: one hub a file, and no -shm file.
    database.pragma("locking_mode = EXCLUSIVE");
    database.pragma("journal_mode = WAL");
    database.pragma("synchronous = FULL");
    database.pragma(`cache_size = -${CACHE_KIB}`);
    database.pragma("temp_store = MEMORY");
    // Deleted content is overwritten: nothing of a Secret stays behind, sealed or not.
    database.pragma("secure_delete = ON");
    database.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    return database;
  } catch (error) {
    database?.close();
    throw explain(path, error);
  }
}

function migrate(database: Database.Database, path: string, judge: (facts: StoreFacts) => void): void {
  try {
    const format = Number(database.pragma("user_version", { simple: true }));
    const application = Number(database.pragma("application_id", { simple: true }));
    const tables = Number(database.prepare("SELECT count(*) FROM sqlite_master").pluck().get());
    const isEmpty = format === 0 && application === 0 && tables === 0;
    if (!isEmpty && application !== APPLICATION_ID) {
      throw new PicoletError("invalid", `cannot use ${path}: it is not the store of a picolet-hub`);
    }
    if (format > FORMAT) {
      const message = `cannot use ${path}: a newer picolet-hub wrote it (format ${format}, this one knows ${FORMAT})`;
      throw new PicoletError("invalid", message);
    }
    if (!isEmpty) check(database, path);
    judge(isEmpty ? { kind: "empty" } : factsOf(database));
    database.transaction(() => {
      for (const statements of MIGRATIONS.slice(format)) for (const sql of statements) database.exec(sql);
      database.pragma(`application_id = ${APPLICATION_ID}`);
      database.pragma(`user_version = ${FORMAT}`);
    })();
  } catch (error) {
    throw explain(path, error);
  }
}

/** A whole, consistent copy. @throws `failed` when `file` is there already or cannot be written */
export function copyDatabase(database: Database.Database, file: string): void {
  try {
    // SQLite fills a file that is there and empty, and would make one that every user may read.
    closeSync(openSync(file, "wx", PRIVATE_MODE));
    database.prepare("VACUUM INTO ?").run(file);
  } catch (error) {
    throw new PicoletError("failed", `cannot back up to ${file}`, { cause: error });
  }
}

/** @throws `corrupt` */
export function checkIntegrity(database: Database.Database, path: string): void {
  const result = database.pragma("integrity_check(1)", { simple: true });
  if (result !== "ok") throw damaged(path, new Error(String(result)));
}

function check(database: Database.Database, path: string): void {
  const result = database.pragma("quick_check(1)", { simple: true });
  if (result !== "ok") throw damaged(path, new Error(String(result)));
}
