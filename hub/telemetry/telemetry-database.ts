import { PicoletError } from "@picolet/protocol/errors.ts";
import Database from "better-sqlite3";

const FORMAT = 1;
/** `fromUs`, `toUs`: of the records, by what counts as their time. `cursors`: the last of each queue of a board. */
const TABLES = [
  "CREATE TABLE batches (id INTEGER PRIMARY KEY, node TEXT NOT NULL, namespace TEXT NOT NULL, pod TEXT NOT NULL, " +
    "receivedMs INTEGER NOT NULL, baseUs INTEGER NOT NULL, isEstimated INTEGER NOT NULL, fromUs INTEGER NOT NULL, " +
    "toUs INTEGER NOT NULL, body BLOB NOT NULL) STRICT",
  "CREATE INDEX batches_of_node ON batches (node, id)",
  "CREATE TABLE cursors (node TEXT NOT NULL, queue TEXT NOT NULL, sequence INTEGER NOT NULL, receivedMs INTEGER NOT NULL, " +
    "PRIMARY KEY (node, queue)) STRICT, WITHOUT ROWID",
  "CREATE TABLE exporters (name TEXT PRIMARY KEY, id INTEGER NOT NULL) STRICT, WITHOUT ROWID",
];

/** The file of the hub's telemetry, with its statements prepared once each. */
export class TelemetryDatabase implements Disposable {
  readonly #database: Database.Database;
  readonly #prepared = new Map<string, Database.Statement<unknown[], Record<string, unknown>>>();

  /** @throws `unavailable` when it cannot be opened, or is another's */
  constructor(path: string) {
    try {
      this.#database = new Database(path);
      this.#database.pragma("journal_mode = WAL");
      this.#database.pragma("synchronous = FULL");
      this.#prepare();
    } catch (error) {
      throw new PicoletError("unavailable", `cannot open the store of telemetry ${path}`, { cause: error });
    }
  }

  #prepare(): void {
    const format = this.#database.pragma("user_version", { simple: true });
    if (format === FORMAT) return;
    if (format !== 0) throw new PicoletError("corrupt", `it is of format ${String(format)}, this hub knows ${FORMAT}`);
    this.durably(() => {
      for (const table of TABLES) this.#database.exec(table);
      this.#database.pragma(`user_version = ${FORMAT}`);
    });
  }

  /** All of it or nothing; on the disk when it returns, if there is a file. */
  durably(work: () => void): void {
    this.#database.transaction(work)();
  }

  get(sql: string, ...values: unknown[]): Record<string, unknown> | undefined {
    return this.#of(sql).get(...values);
  }

  all(sql: string, ...values: unknown[]): Record<string, unknown>[] {
    return this.#of(sql).all(...values);
  }

  run(sql: string, ...values: unknown[]): void {
    this.#of(sql).run(...values);
  }

  [Symbol.dispose](): void {
    this.#prepared.clear();
    this.#database.close();
  }

  #of(sql: string): Database.Statement<unknown[], Record<string, unknown>> {
    let statement = this.#prepared.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#prepared.set(sql, statement);
    }
    return statement;
  }
}
