/** The formats of the store on disk. A format that was ever released is never changed: a new one is added. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Connection } from "./connection.ts";

/** In the file's header, so that nothing else is taken for a store: "pico". */
const APPLICATION_ID = 0x7069636f;

/** Brings a file from the format before to this one, within one transaction. */
export interface Migration {
  readonly format: number;
  readonly statements: readonly string[];
}

/** Word for word as SQLite keeps them, so that a file can be compared with them. */
const FORMAT_1: Readonly<Record<string, string>> = {
  // Numbers by name. `format` says again what the header says: one of both alone is damage.
  meta: "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
  sources:
    "CREATE TABLE sources (source TEXT PRIMARY KEY, revision INTEGER NOT NULL, digest BLOB NOT NULL) STRICT, WITHOUT ROWID",
  // `removed`: no longer wanted, not yet known to be gone. `digest` is that of the whole row.
  pods:
    "CREATE TABLE pods (uid TEXT NOT NULL, source TEXT NOT NULL, origin TEXT NOT NULL, removed INTEGER NOT NULL, " +
    "body BLOB NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (uid, source)) STRICT",
  statuses:
    "CREATE TABLE statuses (uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, " +
    "sequence INTEGER NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
  events:
    "CREATE TABLE events (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, " +
    "name TEXT NOT NULL, uid TEXT NOT NULL, fieldPath TEXT NOT NULL, type TEXT NOT NULL, reason TEXT NOT NULL, " +
    "message TEXT NOT NULL, count INTEGER NOT NULL, firstAtMs INTEGER NOT NULL, lastAtMs INTEGER NOT NULL, " +
    "bytes INTEGER NOT NULL) STRICT",
};

/** In rows of format 1 `apiUid` is empty and means their `uid`; their digest includes neither column. */
const STATUS_COLUMNS = ["apiUid TEXT NOT NULL DEFAULT ''", "gone INTEGER NOT NULL DEFAULT 0"];

/**
 * Objects and cursor of the tunnel. `digest` is that of the whole row, the cursor's `state` that of the set of objects.
 */
const REMOTE: Readonly<Record<string, string>> = {
  objects:
    "CREATE TABLE objects (key TEXT PRIMARY KEY, hash BLOB NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
  cursor:
    "CREATE TABLE cursor (id INTEGER PRIMARY KEY, epoch BLOB NOT NULL, revision INTEGER NOT NULL, " +
    "state BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
};

const FORMAT_2: Readonly<Record<string, string>> = {
  ...FORMAT_1,
  // As SQLite writes down a table that got columns.
  statuses: (FORMAT_1.statuses ?? "").replace(") STRICT", `, ${STATUS_COLUMNS.join(", ")}) STRICT`),
  ...REMOTE,
};

/**
 * The resources that the node has granted to containers, where they differ from the request. Empty: not in the digest.
 */
const GRANTED_COLUMN = "granted BLOB";

const FORMAT_3: Readonly<Record<string, string>> = {
  ...FORMAT_2,
  // SQLite puts a new column before the constraints of the table.
  pods: (FORMAT_2.pods ?? "").replace(", PRIMARY KEY", `, ${GRANTED_COLUMN}, PRIMARY KEY`),
};

/** Small facts that can be lost (`agent/core/store/kept-records.ts`). `digest` is that of the whole row. */
const KEPT: Readonly<Record<string, string>> = {
  kept:
    "CREATE TABLE kept (area TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, digest BLOB NOT NULL, " +
    "PRIMARY KEY (area, key)) STRICT, WITHOUT ROWID",
};

const FORMAT_4: Readonly<Record<string, string>> = { ...FORMAT_3, ...KEPT };

/** The runtime that was chosen for a pod (`ChosenRuntime`). Empty: not in the digest. */
const RUNTIME_COLUMN = "runtime BLOB";

const FORMAT_5: Readonly<Record<string, string>> = {
  ...FORMAT_4,
  pods: (FORMAT_4.pods ?? "").replace(", PRIMARY KEY", `, ${RUNTIME_COLUMN}, PRIMARY KEY`),
};

/**
 * 1: `body` (of the cursor `state`) is a box of a `Sealer`, which is bound to the row; a box authenticates itself, so
 * `digest` is empty, and so is `hash`, which would let who reads the disk try out what a Secret may be.
 */
const SEALED_COLUMN = "sealed INTEGER NOT NULL DEFAULT 0";

const withSealed = (sql = ""): string => sql.replace(") STRICT", `, ${SEALED_COLUMN}) STRICT`);

const FORMAT_6: Readonly<Record<string, string>> = {
  ...FORMAT_5,
  objects: withSealed(FORMAT_5.objects),
  cursor: withSealed(FORMAT_5.cursor),
};

const MIGRATIONS: readonly Migration[] = [
  { format: 1, statements: Object.values(FORMAT_1) },
  {
    format: 2,
    statements: [
      ...STATUS_COLUMNS.map((column) => `ALTER TABLE statuses ADD COLUMN ${column}`),
      ...Object.values(REMOTE),
    ],
  },
  { format: 3, statements: [`ALTER TABLE pods ADD COLUMN ${GRANTED_COLUMN}`] },
  { format: 4, statements: Object.values(KEPT) },
  { format: 5, statements: [`ALTER TABLE pods ADD COLUMN ${RUNTIME_COLUMN}`] },
  {
    format: 6,
    statements: ["objects", "cursor"].map((table) => `ALTER TABLE ${table} ADD COLUMN ${SEALED_COLUMN}`),
  },
];

/** The tables of the newest format. */
export const TABLES = FORMAT_6;

const newestOf = (migrations: readonly Migration[]): number => migrations.at(-1)?.format ?? 0;

/** The format that this version writes. */
export const FORMAT = newestOf(MIGRATIONS);

/**
 * Makes an empty file a store, an older one one of the newest format.
 * @throws `conflict` when a newer picolet wrote the file, `corrupt` when it is no store.
 */
export function migrate(connection: Connection, migrations: readonly Migration[] = MIGRATIONS): void {
  const format = formatOf(connection);
  const newest = newestOf(migrations);
  if (format > newest) {
    throw new PicoletError(
      "conflict",
      `cannot use a store of format ${format}, this picolet knows formats up to ${newest}: install the newer version ` +
        "again, or move the file away to start with an empty one (pods come back from their sources, running ones go on)",
    );
  }
  for (const migration of migrations) {
    if (migration.format <= format) continue;
    connection.durably(() => {
      for (const statement of migration.statements) connection.execute(statement);
      connection.run(
        "INSERT INTO meta (name, value) VALUES ('format', ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        migration.format,
      );
      connection.pragma(`application_id = ${APPLICATION_ID}`);
      connection.pragma(`user_version = ${migration.format}`);
    });
  }
}

/** 0 for an empty file. @throws `corrupt` when header and table disagree. */
function formatOf(connection: Connection): number {
  const header = connection.pragma("user_version");
  const isEmpty = connection.row("SELECT 1 FROM sqlite_schema LIMIT 1") === undefined;
  if (isEmpty && header === 0) return 0;
  if (connection.pragma("application_id") !== APPLICATION_ID) throw corrupt("the file is no store of picolet");
  const { value } = connection.row("SELECT value FROM meta WHERE name = 'format'") ?? {};
  if (typeof value !== "number" || value !== header) throw corrupt("the file's format is not what its header says");
  return value;
}

/** Checks the structure of all pages and the types of all columns. @throws `corrupt` or an SqliteError */
export function checkPages(connection: Connection): void {
  const verdict = connection.pragma("quick_check(1)");
  if (verdict !== "ok") throw corrupt(`the check found: ${String(verdict).slice(0, 200)}`);
}

/** Checks a file of the newest format. @throws `corrupt` when its tables are defined differently */
export function checkTables(connection: Connection): void {
  const found = connection.rows("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL");
  const isAsDefined = found.every(({ name, sql }) => TABLES[String(name)] === sql);
  if (found.length !== Object.keys(TABLES).length || !isAsDefined) throw corrupt("its tables are not those of a store");
}

export const corrupt = (message: string): PicoletError => new PicoletError("corrupt", message);
