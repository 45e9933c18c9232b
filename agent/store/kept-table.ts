import type { Log } from "@picolet/protocol/ports.ts";
import { type KeptRecords, MAX_KEPT_RECORDS, MAX_KEPT_VALUE_BYTES } from "../core/store/kept-records.ts";
import type { Connection } from "./connection.ts";
import { decode, digestOf, encode } from "./encoding.ts";
import type { Batched } from "./store-file.ts";

export interface KeptTableComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Called when a record waits for the next batch. */
  readonly keepBack: (urgency: "soon" | "later") => void;
  readonly log: Log;
}

interface Row {
  readonly area: string;
  readonly key: string;
  /** Undefined: the record must be deleted. */
  readonly value: Buffer | undefined;
}

/**
 * The table `kept`. Memory holds only what the next batch writes; the rest is read where it is asked for, which is
 * seldom.
 */
export class KeptTable implements KeptRecords, Batched {
  readonly #file: KeptTableComponents["file"];
  readonly #keepBack: KeptTableComponents["keepBack"];
  readonly #log: Log;
  readonly #pending = new Map<string, Row>();
  /** The number of keys in all areas, those not on disk yet included. */
  #keys: number;
  #hasSaidFull = false;

  /** @param keys how many rows the table has */
  constructor({ file, keepBack, log }: KeptTableComponents, keys: number) {
    this.#file = file;
    this.#keepBack = keepBack;
    this.#log = log;
    this.#keys = keys;
  }

  all(area: string): ReadonlyMap<string, unknown> {
    const found = new Map<string, unknown>();
    const damaged: string[] = [];
    this.#read((connection) => {
      found.clear();
      for (const row of connection.rows("SELECT key, value, digest FROM kept WHERE area = ? ORDER BY key", area)) {
        const value = intact(area, row);
        if (value === undefined) damaged.push(String(row.key));
        else found.set(String(row.key), value);
      }
    });
    for (const { area: own, key, value } of this.#pending.values()) {
      if (own !== area) continue;
      if (value === undefined) found.delete(key);
      else found.set(key, decode(value));
    }
    for (const key of damaged) if (!this.#pending.has(idOf(area, key))) this.delete(area, key);
    return found;
  }

  put(area: string, key: string, value: unknown, urgency: "soon" | "later" = "later"): void {
    const bytes = encode(value);
    if (bytes.length > MAX_KEPT_VALUE_BYTES) {
      this.#log.warn("a record is too large to be kept", { area, key, bytes: bytes.length });
      return;
    }
    const known = this.#digest(area, key);
    if (known?.equals(digestOf([area, key], bytes)) === true) return;
    if (known === undefined && !this.#takesOneMore()) return;
    this.#set({ area, key, value: bytes }, urgency);
  }

  delete(area: string, key: string): void {
    if (this.#digest(area, key) === undefined) return;
    this.#keys -= 1;
    this.#set({ area, key, value: undefined }, "later");
  }

  write(connection: Connection): void {
    for (const { area, key, value } of this.#pending.values()) {
      if (value === undefined) connection.run("DELETE FROM kept WHERE area = ? AND key = ?", area, key);
      else
        connection.run(
          "INSERT INTO kept (area, key, value, digest) VALUES (?, ?, ?, ?) " +
            "ON CONFLICT DO UPDATE SET value = excluded.value, digest = excluded.digest",
          ...[area, key, value, digestOf([area, key], value)],
        );
    }
  }

  written(): void {
    this.#pending.clear();
  }

  /** The records on disk are lost; each owner puts its record again when it changes. */
  rewrite(): void {
    for (const [id, { value }] of this.#pending) if (value === undefined) this.#pending.delete(id);
    this.#keys = this.#pending.size;
    if (this.#pending.size > 0) this.#keepBack("later");
  }

  #set(row: Row, urgency: "soon" | "later"): void {
    this.#pending.set(idOf(row.area, row.key), row);
    this.#keepBack(urgency);
  }

  #takesOneMore(): boolean {
    if (this.#keys < MAX_KEPT_RECORDS) {
      this.#keys += 1;
      return true;
    }
    if (!this.#hasSaidFull)
      this.#log.warn("too many records are kept, further ones are dropped", { limit: this.#keys });
    this.#hasSaidFull = true;
    return false;
  }

  /** @returns the digest of the record, on disk or not yet */
  #digest(area: string, key: string): Buffer | undefined {
    const pending = this.#pending.get(idOf(area, key));
    if (pending !== undefined) return pending.value && digestOf([area, key], pending.value);
    let found: unknown;
    this.#read((connection) => {
      found = connection.row("SELECT digest FROM kept WHERE area = ? AND key = ?", area, key)?.digest;
    });
    return found instanceof Buffer ? found : undefined;
  }

  /** A disk that cannot be read has no records; that is no reason for a caller to fail. */
  #read(work: (connection: Connection) => void): void {
    try {
      this.#file.use("cannot read what is kept", work);
    } catch (error) {
      this.#log.debug("cannot read what is kept", { error: String(error) });
    }
  }
}

export const countKept = (connection: Connection): number =>
  Number(connection.row("SELECT count(*) AS keys FROM kept")?.keys);

/** No area has a NUL in its name. */
const idOf = (area: string, key: string): string => `${area}\0${key}`;

/** @returns undefined when the row is not as it was written. */
function intact(area: string, { key, value, digest }: Record<string, unknown>): unknown {
  if (typeof key !== "string" || !(value instanceof Buffer) || !(digest instanceof Buffer)) return undefined;
  if (!digestOf([area, key], value).equals(digest)) return undefined;
  try {
    return decode(value);
  } catch {
    return undefined;
  }
}
