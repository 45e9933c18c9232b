/**
 * The tables of the key-value store, and what is done with them. Does not know the caller; all keys and values were
 * validated.
 */
import { type BucketGrant, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import type { Connection } from "../connection.ts";
import { digestOf } from "../encoding.ts";

/** In the file's header: "pikv". */
export const APPLICATION_ID = 0x70696b76;
export const FORMAT = 1;

/** A format that was ever released is never changed: a new one is added. */
export const TABLES: readonly string[] = [
  // The day, since 1970, on which a pod that names it was last seen.
  "CREATE TABLE buckets (id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, usedOnDay INTEGER NOT NULL, " +
    "UNIQUE (namespace, name)) STRICT",
  "CREATE TABLE entries (id INTEGER PRIMARY KEY, bucket INTEGER NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, " +
    "digest BLOB NOT NULL, UNIQUE (bucket, key)) STRICT",
  // For lists, which go by the order in which keys were first set.
  "CREATE INDEX listed ON entries (bucket, id)",
];

/** Bounds one page of a list. */
const MAX_LISTED = 256;
const I64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };

export interface Bucket {
  readonly id: number;
  readonly namespace: string;
  readonly name: string;
  readonly usedOnDay: number;
}

interface Holding {
  bytes: number;
  keys: number;
}

export interface Entry {
  readonly key: string;
  readonly value: Uint8Array;
}

export interface KeyRange {
  readonly prefix: string;
  readonly after: string;
  readonly limit: number;
}

const sizeOf = (key: string, value: Uint8Array): number => Buffer.byteLength(key) + value.length;

export class BucketTables {
  readonly #connection: Connection;
  /** The contents' sizes of buckets that were used since the start. */
  readonly #holdings = new Map<number, Holding>();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** A transaction came to nothing: what was counted in it is not so. */
  forgetCounts(): void {
    this.#holdings.clear();
  }

  bucket(namespace: string, name: string): Bucket | undefined {
    return this.#connection.row("SELECT * FROM buckets WHERE namespace = ? AND name = ?", namespace, name) as
      | Bucket
      | undefined;
  }

  buckets(): Bucket[] {
    return this.#connection.rows("SELECT * FROM buckets ORDER BY namespace, name") as unknown as Bucket[];
  }

  /** Makes it, or notes that it was used. */
  use(namespace: string, name: string, day: number): void {
    this.#connection.run(
      "INSERT INTO buckets (namespace, name, usedOnDay) VALUES (?, ?, ?) " +
        "ON CONFLICT DO UPDATE SET usedOnDay = excluded.usedOnDay",
      namespace,
      name,
      day,
    );
  }

  /** A bucket that was dropped since its lookup is made again, because another one may have its id by now. */
  current({ id, namespace, name, usedOnDay }: Bucket): number {
    const sql = "SELECT 1 FROM buckets WHERE id = ? AND namespace = ? AND name = ?";
    if (this.#connection.row(sql, id, namespace, name) !== undefined) return id;
    return this.made(namespace, name, usedOnDay).id;
  }

  /** @throws ServiceRefusal `storage` */
  made(namespace: string, name: string, day: number): Bucket {
    this.use(namespace, name, day);
    const bucket = this.bucket(namespace, name);
    if (bucket === undefined) throw new ServiceRefusal("storage", "a bucket that was made is not there");
    return bucket;
  }

  drop({ id }: Bucket): void {
    this.#connection.run("DELETE FROM entries WHERE bucket = ?", id);
    this.#connection.run("DELETE FROM buckets WHERE id = ?", id);
    this.#holdings.delete(id);
  }

  holding(bucket: number): Readonly<Holding> {
    const known = this.#holdings.get(bucket);
    if (known !== undefined) return known;
    const sum = "SELECT count(*) AS keys, coalesce(sum(length(CAST(key AS BLOB)) + length(value)), 0) AS bytes";
    const { keys, bytes } = this.#connection.row(`${sum} FROM entries WHERE bucket = ?`, bucket) ?? {};
    const found = { keys: Number(keys), bytes: Number(bytes) };
    this.#holdings.set(bucket, found);
    return found;
  }

  /** @throws ServiceRefusal `storage` for a value that is not as it was written */
  get(bucket: number, key: string): Buffer | undefined {
    const row = this.#connection.row("SELECT value, digest FROM entries WHERE bucket = ? AND key = ?", bucket, key);
    if (row === undefined) return undefined;
    const value = row.value as Buffer;
    if (!digestOf([bucket, key], value).equals(row.digest as Buffer)) {
      throw new ServiceRefusal("storage", "the value is damaged; set it again or delete it");
    }
    return value;
  }

  exists(bucket: number, key: string): boolean {
    return this.#connection.row("SELECT 1 FROM entries WHERE bucket = ? AND key = ?", bucket, key) !== undefined;
  }

  /** @param after the `next` of the page before */
  list(bucket: number, after: number): { readonly keys: string[]; readonly next: number | undefined } {
    const sql = "SELECT id, key FROM entries WHERE bucket = ? AND id > ? ORDER BY id LIMIT ?";
    const rows = this.#connection.rows(sql, bucket, after, MAX_LISTED + 1);
    const page = rows.slice(0, MAX_LISTED);
    const next = rows.length > MAX_LISTED ? Number(page.at(-1)?.id) : undefined;
    return { keys: page.map(({ key }) => String(key)), next };
  }

  /** As `list`, by the order of keys. @param after the last key of the page before; "" for the first */
  keys(
    bucket: number,
    { prefix, after, limit }: KeyRange,
  ): { readonly keys: { readonly key: string; readonly bytes: number }[]; readonly hasMore: boolean } {
    const sql =
      "SELECT key, length(value) AS bytes FROM entries WHERE bucket = ? AND key >= ? AND key > ? ORDER BY key LIMIT ?";
    const rows = this.#connection.rows(sql, bucket, prefix, after, limit + 1);
    // Keys with one prefix stand together.
    const found = rows
      .map(({ key, bytes }) => ({ key: String(key), bytes: Number(bytes) }))
      .filter(({ key }) => key.startsWith(prefix));
    return { keys: found.slice(0, limit), hasMore: found.length > limit };
  }

  /** All or none. @throws ServiceRefusal `quota-exceeded` before anything has changed */
  set(bucket: number, entries: readonly Entry[], { maxBytes, maxKeys }: BucketGrant): void {
    // The last of equal keys holds.
    const wanted = new Map(entries.map((entry) => [entry.key, entry.value]));
    const { bytes, keys } = this.holding(bucket);
    let [moreBytes, moreKeys] = [0, 0];
    for (const [key, value] of wanted) {
      const old = this.#sizeOf(bucket, key);
      moreBytes += sizeOf(key, value) - (old ?? 0);
      if (old === undefined) moreKeys += 1;
    }
    // A change that shrinks the bucket is always accepted: a quota may have been lowered.
    const isOver = (moreBytes > 0 && bytes + moreBytes > maxBytes) || (moreKeys > 0 && keys + moreKeys > maxKeys);
    if (isOver) throw new ServiceRefusal("quota-exceeded");
    for (const [key, value] of wanted) this.#put(bucket, key, value);
    this.#holdings.set(bucket, { bytes: bytes + moreBytes, keys: keys + moreKeys });
  }

  delete(bucket: number, keys: readonly string[]): void {
    const holding = { ...this.holding(bucket) };
    for (const key of new Set(keys)) {
      const old = this.#sizeOf(bucket, key);
      if (old === undefined) continue;
      this.#connection.run("DELETE FROM entries WHERE bucket = ? AND key = ?", bucket, key);
      holding.bytes -= old;
      holding.keys -= 1;
    }
    this.#holdings.set(bucket, holding);
  }

  /** @throws ServiceRefusal `not-a-number` */
  increment(bucket: number, key: string, delta: bigint, grant: BucketGrant): bigint {
    const old = this.get(bucket, key);
    const text = old === undefined ? "0" : old.toString("latin1");
    if (!/^-?\d{1,19}$/.test(text)) throw new ServiceRefusal("not-a-number");
    const sum = BigInt(text) + delta;
    if (sum < I64.min || sum > I64.max) throw new ServiceRefusal("not-a-number");
    this.set(bucket, [{ key, value: Buffer.from(String(sum)) }], grant);
    return sum;
  }

  /** @returns what it holds instead of `expected`; `swapped` when it held that */
  swap(
    bucket: number,
    entry: Entry,
    expected: Uint8Array | undefined,
    grant: BucketGrant,
  ): Buffer | "swapped" | "nothing" {
    const current = this.get(bucket, entry.key);
    const isExpected =
      current === undefined ? expected === undefined : expected !== undefined && current.equals(expected);
    if (!isExpected) return current ?? "nothing";
    this.set(bucket, [entry], grant);
    return "swapped";
  }

  /** @returns a digest that identifies the value: equal for equal bytes, set by any pod */
  stateOf(bucket: number, key: string): Buffer | undefined {
    const row = this.#connection.row("SELECT digest FROM entries WHERE bucket = ? AND key = ?", bucket, key);
    return row?.digest as Buffer | undefined;
  }

  /**
   * @param state of the value that it is to hold; undefined: of none. @returns that of what it holds instead; `swapped`
   * when it held that
   */
  swapObserved(
    bucket: number,
    entry: Entry,
    state: Uint8Array | undefined,
    grant: BucketGrant,
  ): Buffer | "swapped" | "nothing" {
    const current = this.stateOf(bucket, entry.key);
    const isObserved = current === undefined ? state === undefined : state !== undefined && current.equals(state);
    if (!isObserved) return current ?? "nothing";
    this.set(bucket, [entry], grant);
    return "swapped";
  }

  #sizeOf(bucket: number, key: string): number | undefined {
    const row = this.#connection.row(
      "SELECT length(CAST(key AS BLOB)) + length(value) AS size FROM entries WHERE bucket = ? AND key = ?",
      bucket,
      key,
    );
    return row === undefined ? undefined : Number(row.size);
  }

  #put(bucket: number, key: string, value: Uint8Array): void {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    this.#connection.run(
      "INSERT INTO entries (bucket, key, value, digest) VALUES (?, ?, ?, ?) " +
        "ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value, digest = excluded.digest",
      bucket,
      key,
      bytes,
      digestOf([bucket, key], bytes),
    );
  }
}
