import { describeError, ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type Database from "better-sqlite3";
import type { ApiObject } from "../api/resource-definition.ts";
import { copyDatabase, openDatabase } from "./database.ts";
import { type Derive, DerivedObjects } from "./derived-objects.ts";
import { type FleetGuard, fileFacts, markOf } from "./fleet-guard.ts";
import { type ChangeType, RecentEvents, type StoredEvent } from "./recent-events.ts";
import { SEALED_RESOURCE, type Vault } from "./vault.ts";

export interface ObjectKeys {
  /** `pods`, `daemonsets.apps`. */
  readonly resource: string;
  /** "" for what has none. */
  readonly namespace: string;
  readonly name: string;
}

export interface Change {
  readonly key: ObjectKeys;
  readonly type: ChangeType;
  /** Its resourceVersion is set here. */
  readonly object: ApiObject;
  readonly previous: string | undefined;
  /** Milliseconds of the wall clock; undefined: never. */
  readonly expiresAt?: number | undefined;
}

export interface StoredObject {
  readonly revision: number;
  readonly body: string;
}

/** The last object that was read. */
export interface ListPosition {
  readonly namespace: string;
  readonly name: string;
}

export interface ListPage {
  readonly objects: readonly StoredObject[];
  /** Where the next page begins; undefined: there is none. */
  readonly next: ListPosition | undefined;
}

/**
 * Changes kept of one resource, for watchers that come back: half an hour of a fleet of a thousand nodes at rest, about
 * 15 MB of pods. A later watcher gets 410 Expired and lists again.
 */
export const MAX_HISTORY_ROWS = 5000;
export const MAX_HISTORY_AGE_MS = 3_600_000;
/** Each is in the log once; a store with more has lost its keys, which says so by itself. */
const MAX_REPORTED = 1000;
/** Objects read at once by a list that is not limited: keeps what SQLite holds open small. */
const EVENT_PAGE = 500;
/** Characters of objects read at once, and one object more: what a reader that waits for its client keeps. */
export const PAGE_CHARACTERS = 256 * 1024;

export interface ObjectStoreComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Lets only the store of its fleet be opened, and has the keys to its Secrets. Undefined: any store, in clear. */
  readonly guard?: FleetGuard | undefined;
}

/** The writes since the last commit. Every caller that wrote or read in it waits for them. */
interface Batch {
  readonly events: { readonly resource: string; readonly event: StoredEvent }[];
  readonly done: Promise<void>;
  readonly settle: (error?: unknown) => void;
}

/**
 * All objects, their changes and the one counter of revisions, in SQLite. Calls are synchronous, so consecutive calls
 * are one transaction to all others. A write is on the disk when `settled()` resolves. An answer to a client must await
 * it, reads too: they may have read what is not safe yet. Watches see a change when it is safe.
 */
export class ObjectStore implements Disposable {
  readonly #database: Database.Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #statements = new Map<string, Database.Statement<unknown[], Record<string, unknown>>>();
  readonly #recent = new RecentEvents();
  /** By resource. */
  readonly #derived = new Map<string, DerivedObjects<unknown>[]>();
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #floors = new Map<string, number>();
  readonly #guard: FleetGuard | undefined;
  readonly #vault: Vault | undefined;
  /** Damaged Secrets that are in the log. */
  readonly #reported = new Set<string>();
  #revision: number;
  #committed: number;
  #batch: Batch | undefined;
  #isClosed = false;

  /** @throws as `openDatabase`, and what the guard refuses the store with: nothing of it is changed then */
  constructor({ clock, log, guard }: ObjectStoreComponents, path: string) {
    this.#clock = clock;
    this.#log = log;
    this.#guard = guard;
    const absent = fileFacts(path);
    if (absent !== undefined) guard?.judge(path, absent);
    this.#database = openDatabase(path, (facts) => guard?.judge(path, facts));
    try {
      this.#vault = guard?.admit(this.#database);
    } catch (error) {
      this.#database.close();
      throw error;
    }
    this.#revision = Number(this.#row("SELECT value FROM meta WHERE name = 'revision'")?.value ?? 1);
    this.#committed = this.#revision;
    for (const row of this.#rows("SELECT resource, revision FROM floors")) {
      this.#floors.set(String(row.resource), Number(row.revision));
    }
  }

  /** The newest revision that is safe: what lists and bookmarks carry. */
  get revision(): number {
    return this.#committed;
  }

  /** The newest revision that was given out. A list is made at this one, and sent when it is safe. */
  get headRevision(): number {
    return this.#revision;
  }

  /** @throws `corrupt` that names a Secret of which what is stored is damaged */
  get(key: ObjectKeys): StoredObject | undefined {
    const sql = "SELECT revision, body FROM objects WHERE resource = ? AND namespace = ? AND name = ?";
    const row = this.#row(sql, key.resource, key.namespace, key.name);
    return row === undefined ? undefined : this.#opened(key, row);
  }

  /**
   * In the order of namespace and name, from behind `after` on. A damaged Secret is left out, and named in the log: the
   * others must not be held up by it.
   * @param namespace "" for all
   * @param page objects that are read at once
   */
  *list(resource: string, namespace: string, after?: ListPosition, page = EVENT_PAGE): Iterable<StoredObject> {
    let from = after;
    for (;;) {
      const { objects, next } = this.page(resource, namespace, from, page);
      yield* objects;
      if (next === undefined) return;
      from = next;
    }
  }

  /** One part of `list`, of some `PAGE_CHARACTERS` at most. */
  page(resource: string, namespace: string, after: ListPosition | undefined, limit = EVENT_PAGE): ListPage {
    const rows = this.#page(resource, namespace, after, limit);
    const objects = rows.flatMap((row) => {
      const key = { resource, namespace: String(row.namespace), name: String(row.name) };
      return this.#whole(`${key.namespace}/${key.name}`, () => this.#opened(key, row)) ?? [];
    });
    const last = rows.at(-1);
    const next = last === undefined ? undefined : { namespace: String(last.namespace), name: String(last.name) };
    return { objects, next };
  }

  /** Keeps a value of each object of a resource; to be called once for each use. */
  derive<T>(resource: string, derive: Derive<T>): DerivedObjects<T> {
    const read = (): Iterable<ApiObject> =>
      Iterator.from(this.list(resource, "")).map(({ body }) => JSON.parse(body) as ApiObject);
    const made = new DerivedObjects(read, derive);
    this.#derived.set(resource, [...(this.#derived.get(resource) ?? []), made]);
    return made;
  }

  /** Space of the file: bytes in use, and bytes that writes use again before it grows. */
  get space(): { readonly usedBytes: number; readonly reusableBytes: number } {
    const pragma = (name: string): number => Number(this.#database.pragma(name, { simple: true }));
    const pageBytes = pragma("page_size");
    const freePages = pragma("freelist_count");
    return { usedBytes: (pragma("page_count") - freePages) * pageBytes, reusableBytes: freePages * pageBytes };
  }

  count(resource: string): number {
    return Number(this.#row("SELECT count(*) AS n FROM objects WHERE resource = ?", resource)?.n);
  }

  /** Writes one change. @returns the object's new revision */
  put({ key, type, object, previous, expiresAt }: Change): number {
    const batch = this.#begin();
    this.#revision += 1;
    const revision = this.#revision;
    object.metadata.resourceVersion = String(revision);
    const body = JSON.stringify(object);
    const { resource, namespace, name } = key;
    const vault = resource === SEALED_RESOURCE ? this.#vault : undefined;
    const before = previous ?? null;
    this.#attempt(() => {
      if (type === "DELETED") {
        this.#run("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", resource, namespace, name);
      } else {
        const sql = `INSERT INTO objects (resource, namespace, name, revision, expires, body) VALUES (?, ?, ?, ?, ?, ?)
          ON CONFLICT (resource, namespace, name) DO UPDATE SET
          revision = excluded.revision, expires = excluded.expires, body = excluded.body`;
        const kept = vault?.sealObject(namespace, name, revision, body) ?? body;
        this.#run(sql, resource, namespace, name, revision, expiresAt ?? null, kept);
      }
      const sealed = (column: "body" | "previous", text: string): string =>
        vault?.sealChange(revision, column, text) ?? text;
      this.#run(
        "INSERT INTO history (revision, resource, type, namespace, at, body, previous) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ...[revision, resource, type, namespace, this.#clock.wall().getTime()],
        ...[sealed("body", body), before === null ? null : sealed("previous", before)],
      );
    });
    batch.events.push({ resource, event: storedEvent(revision, type, namespace, body, previous) });
    for (const each of this.#derived.get(resource) ?? []) {
      each.update(namespace, name, type === "DELETED" ? undefined : object);
    }
    return revision;
  }

  /** Until everything that was written or read up to now is safe. @throws when it could not be written */
  settled(): Promise<void> {
    return this.#batch?.done ?? Promise.resolve();
  }

  /**
   * The changes of a resource behind `after`, oldest first, at most a page of them; only those that are safe.
   * @throws `conflict` with the reason Expired when the history does not reach back to `after`
   */
  eventsAfter(resource: string, after: number): readonly StoredEvent[] {
    if (after < this.floor(resource)) {
      const message = `too old resource version: ${after} (${this.floor(resource)})`;
      throw new PicoletError("conflict", message, { reason: "Expired" });
    }
    const recent = this.#recent.after(resource, after);
    if (recent !== undefined) return recent;
    const rows = this.#someRows(
      "SELECT * FROM history WHERE resource = ? AND revision > ? AND revision <= ? ORDER BY revision LIMIT ?",
      ...[resource, after, this.#committed, EVENT_PAGE],
    );
    const events = rows.map((row) => this.#whole(`change ${row.revision}`, () => this.#openedEvent(resource, row)));
    const whole = events.filter((each) => each !== undefined);
    if (whole.length === rows.length) return whole;
    // A watcher would believe that nothing happened: it lists again instead.
    const message = `the changes of ${resource} after ${after} are damaged; list again`;
    throw new PicoletError("conflict", message, { reason: "Expired" });
  }

  /** Begin of a resource's history; watches from before it are Expired. */
  floor(resource: string): number {
    return Math.max(this.#floors.get(resource) ?? 0, this.#floors.get("") ?? 0);
  }

  /** Calls `wake` once, at the next safe change of the resource. @returns takes it back */
  onChange(resource: string, wake: () => void): () => void {
    const waiting = this.#waiting.get(resource) ?? new Set();
    this.#waiting.set(resource, waiting);
    waiting.add(wake);
    return () => waiting.delete(wake);
  }

  /** Keys of objects whose time is over. */
  expiredKeys(limit: number): readonly ObjectKeys[] {
    const sql = "SELECT resource, namespace, name FROM objects WHERE expires <= ? ORDER BY expires LIMIT ?";
    return this.#rows(sql, this.#clock.wall().getTime(), limit).map((row) => ({
      resource: String(row.resource),
      namespace: String(row.namespace),
      name: String(row.name),
    }));
  }

  /** Drops the history that is too old or too long. */
  compact(): void {
    const oldest = this.#clock.wall().getTime() - MAX_HISTORY_AGE_MS;
    const counts = this.#rows("SELECT resource, count(*) AS n FROM history GROUP BY resource");
    for (const row of counts) {
      const resource = String(row.resource);
      const byCount = this.#row(
        "SELECT revision FROM history WHERE resource = ? ORDER BY revision DESC LIMIT 1 OFFSET ?",
        ...[resource, MAX_HISTORY_ROWS],
      );
      const byAge = this.#row(
        "SELECT max(revision) AS revision FROM history WHERE resource = ? AND at < ?",
        ...[resource, oldest],
      );
      const floor = Math.max(Number(byCount?.revision ?? 0), Number(byAge?.revision ?? 0));
      if (floor > this.floor(resource)) this.#raiseFloor(resource, floor);
    }
  }

  /** A value beside the objects: keys, identifiers. It is safe when `settled()` resolves. */
  getMeta(name: string): string | undefined {
    const value = this.#row("SELECT value FROM meta WHERE name = ?", name)?.value;
    if (value === undefined) return undefined;
    return this.#vault?.openMeta(name, String(value)) ?? String(value);
  }

  setMeta(name: string, value: string): void {
    this.#begin();
    const kept = this.#vault?.sealMeta(name, value) ?? value;
    this.#attempt(() => this.#run("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, kept));
  }

  /** To be called every half minute: notes how far the store has come, and seals Secrets again where a key is old. */
  maintain(): void {
    this.#commit();
    this.#guard?.reached(markOf(this.#database));
    this.#vault?.maintain();
  }

  /**
   * New keys for Secrets, at once; what older ones sealed follows with `maintain`. @throws `unimplemented` without keys
   */
  rotateKeys(): void {
    if (this.#guard === undefined || this.#vault === undefined) {
      throw new PicoletError("unimplemented", "cannot rotate keys: this store keeps its Secrets in clear");
    }
    this.#commit();
    this.#guard.keys.rotate(this.#clock);
    this.#vault.rotate();
  }

  /** A consistent copy of everything, while writes go on. @param file must not exist */
  async backup(file: string): Promise<void> {
    await this.settled();
    this.#commit();
    copyDatabase(this.#database, file);
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#commit();
    this.#isClosed = true;
    this.#statements.clear();
    try {
      this.#guard?.reached(markOf(this.#database));
    } catch (error) {
      this.#log.warn("cannot note how far the store has come", { error });
    }
    this.#database.close();
  }

  #opened({ resource, namespace, name }: ObjectKeys, row: Record<string, unknown>): StoredObject {
    const [revision, body] = [Number(row.revision), String(row.body)];
    if (resource !== SEALED_RESOURCE || this.#vault === undefined) return { revision, body };
    return { revision, body: this.#vault.openObject(namespace, name, revision, body) };
  }

  #openedEvent(resource: string, row: Record<string, unknown>): StoredEvent {
    const revision = Number(row.revision);
    const vault = resource === SEALED_RESOURCE ? this.#vault : undefined;
    const opened = (column: "body" | "previous"): string => {
      const text = String(row[column]);
      return vault?.openChange(revision, column, text) ?? text;
    };
    const previous = row.previous === null ? undefined : opened("previous");
    return storedEvent(revision, String(row.type) as ChangeType, String(row.namespace), opened("body"), previous);
  }

  #whole<T>(what: string, open: () => T): T | undefined {
    try {
      return open();
    } catch (error) {
      if (!isPicoletError(error, "corrupt")) throw error;
      if (!this.#reported.has(what) && this.#reported.size < MAX_REPORTED) {
        this.#reported.add(what);
        this.#log.error("a Secret is damaged and left out", { error: describeError(error) });
      }
      return undefined;
    }
  }

  #page(resource: string, namespace: string, from: ListPosition | undefined, limit: number): Record<string, unknown>[] {
    const columns = "SELECT namespace, name, revision, body FROM objects WHERE resource = ?";
    if (namespace !== "") {
      const sql = `${columns} AND namespace = ? AND name > ? ORDER BY name LIMIT ?`;
      return this.#someRows(sql, resource, namespace, from?.name ?? "", limit);
    }
    const sql = `${columns} AND (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT ?`;
    return this.#someRows(sql, resource, from?.namespace ?? "", from?.name ?? "", limit);
  }

  #raiseFloor(resource: string, floor: number): void {
    this.#begin();
    this.#attempt(() => {
      this.#run("DELETE FROM history WHERE resource = ? AND revision <= ?", resource, floor);
      this.#run("INSERT OR REPLACE INTO floors VALUES (?, ?)", resource, floor);
    });
    this.#floors.set(resource, floor);
  }

  #begin(): Batch {
    if (this.#isClosed) throw new PicoletError("unavailable", "cannot write: the store is closed", { retryable: true });
    if (this.#batch !== undefined) return this.#batch;
    this.#run("BEGIN IMMEDIATE");
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(ignore("callers that wait get the error; without any (maintenance), the log has it"));
    this.#batch = { events: [], done: promise, settle: (error) => (error === undefined ? resolve() : reject(error)) };
    setImmediate(() => this.#commit());
    return this.#batch;
  }

  #commit(): void {
    const batch = this.#batch;
    if (batch === undefined) return;
    try {
      this.#run("UPDATE meta SET value = ? WHERE name = 'revision'", this.#revision);
      this.#run("COMMIT");
    } catch (error) {
      this.#abandon(error);
      return;
    }
    this.#batch = undefined;
    this.#committed = this.#revision;
    for (const { resource, event } of batch.events) this.#recent.add(resource, event);
    batch.settle();
    for (const resource of new Set(batch.events.map((each) => each.resource))) this.#wake(resource);
  }

  /** One failed statement fails all of the batch: what came after it may have relied on it. */
  #attempt(work: () => void): void {
    try {
      work();
    } catch (error) {
      throw this.#abandon(error);
    }
  }

  #abandon(cause: unknown): PicoletError {
    const error = new PicoletError("unavailable", "cannot write to the store", { cause, retryable: true });
    const batch = this.#batch;
    this.#batch = undefined;
    // A full disk has ended the transaction already.
    if (this.#database.inTransaction) this.#database.exec("ROLLBACK");
    // The numbers given out are not used again: a reader may have seen one of them.
    this.#committed = this.#revision;
    for (const each of [...this.#derived.values()].flat()) each.reset();
    this.#log.error("cannot write to the store", { error: cause });
    batch?.settle(error);
    return error;
  }

  #wake(resource: string): void {
    const waiting = this.#waiting.get(resource);
    if (waiting === undefined) return;
    this.#waiting.delete(resource);
    for (const wake of waiting) wake();
  }

  #statement(sql: string): Database.Statement<unknown[], Record<string, unknown>> {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const made = this.#database.prepare<unknown[], Record<string, unknown>>(sql);
    this.#statements.set(sql, made);
    return made;
  }

  #run(sql: string, ...values: unknown[]): void {
    this.#statement(sql).run(...values);
  }

  #row(sql: string, ...values: unknown[]): Record<string, unknown> | undefined {
    return this.#statement(sql).get(...values);
  }

  /** The first rows, until their bodies have `PAGE_CHARACTERS`. */
  #someRows(sql: string, ...values: unknown[]): Record<string, unknown>[] {
    const rows: Record<string, unknown>[] = [];
    let characters = 0;
    for (const row of this.#statement(sql).iterate(...values)) {
      rows.push(row);
      characters += String(row.body).length + String(row.previous ?? "").length;
      if (characters >= PAGE_CHARACTERS) break;
    }
    return rows;
  }

  #rows(sql: string, ...values: unknown[]): Record<string, unknown>[] {
    return this.#statement(sql).all(...values);
  }
}

function storedEvent(
  revision: number,
  type: ChangeType,
  namespace: string,
  body: string,
  previous: string | undefined,
): StoredEvent {
  let parsed: ApiObject | undefined;
  return {
    revision,
    type,
    namespace,
    body,
    previous,
    get object(): ApiObject {
      parsed ??= JSON.parse(body) as ApiObject;
      return parsed;
    },
    release() {
      parsed = undefined;
    },
  };
}
