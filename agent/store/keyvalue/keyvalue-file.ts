/** The file of the key-value store. A damaged one is set aside, and an empty one made. */
import { closeSync, existsSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { describeError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { Connection } from "../connection.ts";
import { faultOf } from "../faults.ts";
import { setAside } from "../open-database.ts";
import { checkPages, corrupt } from "../schema.ts";
import { APPLICATION_ID, BucketTables, FORMAT, TABLES } from "./bucket-tables.ts";

/** All buckets of a board: two of the largest. Checked in a second or two on an SD card. */
const MAX_BYTES = 64 * MEBIBYTE;

export interface KeyvalueFileInit {
  /** Absolute. */
  readonly path: string;
  readonly maxBytes?: number | undefined;
  /** Wall time, for the name of a file that is set aside. */
  readonly now: () => Date;
  /** The file was damaged: what was in it is lost to components. */
  readonly onDamage: (reason: string, setAside: string) => void;
}

interface Opened {
  readonly connection: Connection;
  readonly tables: BucketTables;
}

export class KeyvalueFile implements Disposable {
  readonly #init: KeyvalueFileInit;
  #opened: Opened | undefined;

  constructor(init: KeyvalueFileInit) {
    this.#init = init;
  }

  /** Reading would make one. */
  get isThere(): boolean {
    return this.#opened !== undefined || existsSync(this.#init.path);
  }

  /** @throws ServiceRefusal `storage` */
  read<R>(work: (tables: BucketTables) => R): R {
    return this.#guarded(({ tables }) => work(tables));
  }

  /** Does all of `work` or nothing; it is on the disk on return. @throws ServiceRefusal `storage` */
  durably(work: (tables: BucketTables) => void): void {
    this.#guarded(({ connection, tables }) => {
      try {
        connection.durably(() => work(tables));
      } catch (error) {
        tables.forgetCounts();
        throw error;
      }
    });
  }

  /** Drops the pages that are kept in memory for reading. */
  shrink(): void {
    this.#opened?.connection.execute("PRAGMA shrink_memory");
  }

  [Symbol.dispose](): void {
    this.#opened?.connection[Symbol.dispose]();
    this.#opened = undefined;
  }

  #guarded<R>(work: (opened: Opened) => R): R {
    try {
      this.#opened ??= this.#open();
      return work(this.#opened);
    } catch (error) {
      if (error instanceof ServiceRefusal) throw error;
      if (faultOf(error) === "damaged") this.#replace(describeError(error));
      throw new ServiceRefusal("storage", describeError(error));
    }
  }

  #open(): Opened {
    const { path, maxBytes = MAX_BYTES } = this.#init;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // Made before SQLite does, so that no other user can read it.
    closeSync(openSync(path, "a", 0o600));
    const connection = new Connection(path, maxBytes);
    try {
      checkPages(connection);
      prepare(connection);
      return { connection, tables: new BucketTables(connection) };
    } catch (error) {
      connection[Symbol.dispose]();
      throw error;
    }
  }

  /** The next call begins a new one. */
  #replace(reason: string): void {
    this[Symbol.dispose]();
    this.#init.onDamage(reason, setAside(this.#init.path, this.#init.now()));
  }
}

/** @throws `corrupt` for what is no such file */
function prepare(connection: Connection): void {
  const isEmpty = connection.row("SELECT 1 FROM sqlite_schema LIMIT 1") === undefined;
  if (isEmpty && connection.pragma("user_version") === 0) {
    connection.durably(() => {
      for (const statement of TABLES) connection.execute(statement);
      connection.pragma(`application_id = ${APPLICATION_ID}`);
      connection.pragma(`user_version = ${FORMAT}`);
    });
  }
  const found = connection.rows("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").map(({ sql }) => String(sql));
  const isOurs = connection.pragma("application_id") === APPLICATION_ID && connection.pragma("user_version") === FORMAT;
  if (!isOurs || found.toSorted().join() !== TABLES.toSorted().join()) throw corrupt("it is no key-value store");
}
