import { MEBIBYTE } from "@picolet/protocol/units.ts";
import Database from "better-sqlite3";

/** Instead of a file's path. */
export const MEMORY = ":memory:";

/** A value that a column holds. */
export type Value = string | number | Buffer | null;

/** Keeps the pages of a whole ordinary store (50 pods and the events) from being read twice; the default is 16 MB. */
const CACHE_KIB = 256;
/**
 * 32 MiB: far more than the pods of any board with their statuses (1,000 pods of 10 KB, 512 KiB of events), little
 * enough to be checked in a second on an SD card. When it is reached, writes fail as they do on a full disk.
 */
export const MAX_DATABASE_BYTES = 32 * MEBIBYTE;
const PAGE_BYTES = 4096;
/** The log goes into the database when it has grown to 1 MiB; pages written often are then written there once. */
const CHECKPOINT_PAGES = 256;
/** A larger database is rewritten through a file instead of memory, which is not the agent's alone. */
const MAX_VACUUM_IN_MEMORY_BYTES = 2 * MEBIBYTE;
/** A killed agent's process may need this long to end; no other process opens the file. */
const BUSY_TIMEOUT_MS = 500;

/** An open database file. Each statement is prepared once. */
export class Connection implements Disposable {
  readonly #database: Database.Database;
  readonly #statements = new Map<string, Database.Statement<Value[], Record<string, unknown>>>();

  /** @param path a file, or MEMORY. No other process can open the file while this is open. */
  constructor(path: string, maxBytes: number = MAX_DATABASE_BYTES) {
    this.#database = new Database(path, { timeout: BUSY_TIMEOUT_MS });
    try {
      // Exclusive, and before the log is first read: its index then is on the heap and there is no -shm file.
      this.pragma("locking_mode = EXCLUSIVE");
      this.pragma("journal_mode = WAL");
      this.pragma("synchronous = NORMAL");
      this.pragma(`cache_size = -${CACHE_KIB}`);
      this.pragma("mmap_size = 0");
      this.pragma("temp_store = MEMORY");
      this.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
      this.pragma(`journal_size_limit = ${CHECKPOINT_PAGES * PAGE_BYTES}`);
      this.pragma(`max_page_count = ${Math.floor(maxBytes / PAGE_BYTES)}`);
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /** The first column of the first row. */
  pragma(text: string): unknown {
    return this.#database.pragma(text, { simple: true });
  }

  /** Statements that are not kept: for migrations and settings. */
  execute(sql: string): void {
    this.#database.exec(sql);
  }

  run(sql: string, ...values: Value[]): number {
    return this.#statement(sql).run(...values).changes;
  }

  row(sql: string, ...values: Value[]): Record<string, unknown> | undefined {
    return this.#statement(sql).get(...values);
  }

  rows(sql: string, ...values: Value[]): Record<string, unknown>[] {
    return this.#statement(sql).all(...values);
  }

  /** @returns rows one at a time, up to the first that cannot be read */
  each(sql: string): Iterable<Record<string, unknown>> {
    return this.#statement(sql).iterate();
  }

  /** Does all of `work` or nothing; it is on the disk (fsync) on return. */
  durably(work: () => void): void {
    // `pragma` would leave a statement to the garbage collector each time, 2 MB of them before it takes notice.
    this.execute("PRAGMA synchronous = FULL");
    try {
      this.transaction(work);
    } finally {
      this.execute("PRAGMA synchronous = NORMAL");
    }
  }

  /** Does all of `work` or nothing; a power cut may undo the last transactions, in order. */
  transaction(work: () => void): void {
    this.run("BEGIN IMMEDIATE");
    try {
      work();
      this.run("COMMIT");
    } catch (error) {
      // A full disk has ended the transaction already.
      if (this.#database.inTransaction) this.run("ROLLBACK");
      throw error;
    }
  }

  /** Writes the database again without free pages. No transaction may be open. */
  vacuum(): void {
    const isLarge = Number(this.pragma("page_count")) * PAGE_BYTES > MAX_VACUUM_IN_MEMORY_BYTES;
    // Free pages are not copied, so the temporary file is no larger than the database may be.
    if (isLarge) this.execute("PRAGMA temp_store = FILE");
    try {
      this.execute("VACUUM");
    } finally {
      this.execute("PRAGMA temp_store = MEMORY");
    }
  }

  /** Does it and takes it back. */
  rehearse(sql: string): void {
    this.run("BEGIN IMMEDIATE");
    try {
      this.run(sql);
    } finally {
      if (this.#database.inTransaction) this.run("ROLLBACK");
    }
  }

  [Symbol.dispose](): void {
    this.#statements.clear();
    this.#database.close();
  }

  #statement(sql: string): Database.Statement<Value[], Record<string, unknown>> {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const made = this.#database.prepare<Value[], Record<string, unknown>>(sql);
    this.#statements.set(sql, made);
    return made;
  }
}
