import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { type Connection, MEMORY, type Value } from "./connection.ts";
import { faultOf, writeError } from "./faults.ts";
import {
  type OpenDatabaseInit,
  type OpenedDatabase,
  type Opening,
  openDatabase,
  openInMemory,
  removeDamagedFiles,
  replaceDatabase,
} from "./open-database.ts";
import { TABLES } from "./schema.ts";

type FileOpening = Exclude<Opening, { kind: "inMemory" }>;

/**
 * The durability of writes. Every state but `durable` after `opened` is an event; the last two are a condition too.
 */
export type StoreState =
  | { readonly kind: "durable"; readonly opening: FileOpening }
  /** Writes fail. Batched ones are kept and tried again; `replace` refuses. */
  | { readonly kind: "unwritable"; readonly reason: string }
  /** Writes go to memory and are lost with the process; the file is tried again from time to time. */
  | Extract<Opening, { kind: "inMemory" }>;

/** A part of the store that keeps things back until the next batch. */
export interface Batched {
  /** Writes what is kept back, within a transaction that may still fail. */
  write(connection: Connection): void;
  /** That transaction stands. */
  written(): void;
  /** The database is a new, empty one: writes all that memory knows, within a transaction. */
  rewrite(connection: Connection): void;
}

/** A disk that damages a third file in one life of the agent is not written to any more. */
const MAX_REPLACEMENTS = 2;

/** The one connection, through everything that may happen to its file while it is open. */
export class StoreFile<T> {
  /** The contents of the file when it was opened. */
  readonly contents: T;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #init: Omit<OpenDatabaseInit<T>, "now">;
  readonly #state: WatchSource<StoreState>;
  readonly #parts: Batched[] = [];
  #connection: Connection;
  /** The state that follows when a failing write succeeds again. */
  #opening: Opening;
  #replacements = 0;

  /** @throws `conflict` when another process has the file open, or a newer picolet wrote it. */
  constructor(components: { readonly clock: Clock; readonly log: Log }, init: Omit<OpenDatabaseInit<T>, "now">) {
    this.#clock = components.clock;
    this.#log = components.log;
    this.#init = init;
    const { connection, contents, opening } = openDatabase(this.#openInit());
    this.#connection = connection;
    this.#opening = opening;
    this.contents = contents;
    this.#state = new WatchSource(stateAfter(opening));
    this.#report(this.#state.current);
  }

  get state(): Watch<StoreState> {
    return this.#state;
  }

  join(part: Batched): void {
    this.#parts.push(part);
  }

  /**
   * Does `work`, which must not have changed anything when it throws. After damage it is done again, on a new file.
   * @throws a PicoletError with `message`
   */
  use<R>(message: string, work: (connection: Connection) => R): R {
    try {
      return work(this.#connection);
    } catch (error) {
      if (faultOf(error) !== "damaged") throw writeError(error, message);
      this.#replace(describeError(error));
    }
    try {
      return work(this.#connection);
    } catch (error) {
      throw writeError(error, message);
    }
  }

  /** Writes what all parts have kept back. @returns false when it has to be tried again later. */
  flush(): boolean {
    try {
      this.use("cannot write the store", (connection) =>
        connection.transaction(() => {
          for (const part of this.#parts) part.write(connection);
        }),
      );
    } catch (error) {
      if (this.#state.current.kind !== "unwritable") this.#enter({ kind: "unwritable", reason: describeError(error) });
      return false;
    }
    for (const part of this.#parts) part.written();
    if (this.#state.current.kind === "unwritable") this.#enter(stateAfter(this.#opening));
    return true;
  }

  /** From memory to the file, if it can be written now. */
  returnToFile(): void {
    if (this.#opening.kind !== "inMemory" || this.#init.path === MEMORY) return;
    let opened: OpenedDatabase<T> | undefined;
    try {
      opened = openDatabase(this.#openInit());
      if (opened.opening.kind === "inMemory") throw new Error(opened.opening.reason);
      copyTables(this.#connection, opened.connection);
    } catch (error) {
      opened?.connection[Symbol.dispose]();
      this.#log.debug("the store stays in memory", { error: describeError(error) });
      return;
    }
    this.close();
    this.#take(opened);
  }

  /** Drops the pages that are kept in memory for reading. */
  shrink(): void {
    try {
      this.#connection.execute("PRAGMA shrink_memory");
    } catch (error) {
      this.#log.debug("cannot shrink the store's memory", { error: describeError(error) });
    }
  }

  /**
   * All writes so far are on the disk, and in the database's file, when it returns. @throws errors of the disk
   */
  settle(): void {
    const { path } = this.#init;
    if (this.#opening.kind === "inMemory" && path !== MEMORY) throw new Error(`${path} is not in use`);
    this.#connection.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  }

  /**
   * Rewrites the database without the free space in which deleted and overwritten rows can still be read, and removes
   * damaged files that were set aside, which hold such rows too. Takes as long as writing the file twice.
   * @throws what the disk throws; the database is as it was then
   */
  scrub(): void {
    this.#connection.vacuum();
    this.settle();
    if (this.#init.path !== MEMORY) removeDamagedFiles(this.#init.path);
  }

  close(): void {
    try {
      this.#connection[Symbol.dispose]();
    } catch (error) {
      // Committed writes are in the log beside the file; the next start reads it.
      this.#log.warn("cannot close the store's file", { error: describeError(error) });
    }
  }

  /** The file is damaged: memory knows what is wanted, the rest of what it held is lost. */
  #replace(reason: string): void {
    this.close();
    this.#replacements += 1;
    const init = this.#openInit();
    let opened = this.#replacements > MAX_REPLACEMENTS ? openInMemory(init, reason) : replaceDatabase(init, reason);
    try {
      this.#rewrite(opened.connection);
    } catch (error) {
      opened.connection[Symbol.dispose]();
      opened = openInMemory(init, `${reason}; and the new file cannot be written: ${describeError(error)}`);
      this.#rewrite(opened.connection);
    }
    this.#take(opened);
  }

  #rewrite(connection: Connection): void {
    connection.durably(() => {
      for (const part of this.#parts) part.rewrite(connection);
    });
  }

  #take({ connection, opening }: OpenedDatabase<T>): void {
    this.#connection = connection;
    this.#opening = opening;
    this.#enter(stateAfter(opening));
  }

  #enter(state: StoreState): void {
    this.#report(state);
    this.#state.set(state);
  }

  #report(state: StoreState): void {
    const { kind: _, ...fields } = state;
    if (state.kind === "unwritable") this.#log.warn("the store cannot be written", fields);
    else if (state.kind === "inMemory") this.#log.error("the store is in memory only", fields);
    else if (state.opening.kind === "rebuilt") {
      this.#log.error("the store was damaged and has been rebuilt", state.opening);
    } else this.#log.info("the store is on disk", { opening: state.opening.kind });
  }

  #openInit(): OpenDatabaseInit<T> {
    return { ...this.#init, now: this.#clock.wall() };
  }
}

const stateAfter = (opening: Opening): StoreState =>
  opening.kind === "inMemory" ? opening : { kind: "durable", opening };

function copyTables(from: Connection, to: Connection): void {
  to.durably(() => {
    for (const table of Object.keys(TABLES)) {
      to.run(`DELETE FROM ${table}`);
      for (const row of from.each(`SELECT * FROM ${table}`)) {
        const names = Object.keys(row);
        const sql = `INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`;
        to.run(sql, ...(Object.values(row) as Value[]));
      }
    }
  });
}
