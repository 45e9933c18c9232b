import type Database from "better-sqlite3";
import { PicoletError } from "../../../protocol/errors.ts";
import type { Clock, Log } from "../../../protocol/ports.ts";
import type { ApiObject } from "../resource-definition.ts";
import { RecentEvents } from "./recent-events.ts";
import { copyDatabase, openDatabase } from "./schema.ts";

export type ChangeType = "ADDED" | "MODIFIED" | "DELETED";

/** One change, as watches see it. Shared by all of them, never changed. */
export interface StoredEvent {
  readonly revision: number;
  readonly type: ChangeType;
  readonly namespace: string;
  /** The object after the change; for DELETED its last state with the revision of the deletion. */
  readonly body: string;
  /** The object before, where labels or selectable fields differ: a selector then may have matched another answer. */
  readonly previous: string | undefined;
  /** `body`, parsed at most once. */
  readonly object: ApiObject;
}

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

/**
 * Changes kept of one resource, for watchers that come back: half an hour of a fleet of a thousand nodes at rest, about
 * 15 MB of pods. Who comes later gets 410 Expired and lists anew.
 */
const MAX_HISTORY_ROWS = 5000;
const MAX_HISTORY_AGE_MS = 3_600_000;
/** Objects read at once by a list that is not limited: keeps what SQLite holds open small. */
const EVENT_PAGE = 500;

/** The writes since the last commit: what everybody waits for who wrote or read in it. */
interface Batch {
  readonly events: { readonly resource: string; readonly event: StoredEvent }[];
  readonly done: Promise<void>;
  readonly settle: (error?: unknown) => void;
}

/**
 * All objects, their changes and the one counter of revisions, in SQLite. Calls are synchronous, so one call after the
 * other is one transaction to everybody else. A write is on the disk when `settled()` resolves, which whoever answers a
 * client awaits, readers too: they may have read what is not safe yet. Watches see a change when it is safe.
 */
export class ObjectStore implements Disposable {
  readonly #database: Database.Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #statements = new Map<string, Database.Statement<unknown[], Record<string, unknown>>>();
  readonly #recent = new RecentEvents();
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #floors = new Map<string, number>();
  #revision: number;
  #committed: number;
  #batch: Batch | undefined;
  #isClosed = false;

  /** @throws as `openDatabase` */
  constructor({ clock, log }: { readonly clock: Clock; readonly log: Log }, path: string) {
    this.#clock = clock;
    this.#log = log;
    this.#database = openDatabase(path);
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

  get(key: ObjectKeys): StoredObject | undefined {
    const sql = "SELECT revision, body FROM objects WHERE resource = ? AND namespace = ? AND name = ?";
    const row = this.#row(sql, key.resource, key.namespace, key.name);
    return row === undefined ? undefined : { revision: Number(row.revision), body: String(row.body) };
  }

  /**
   * In the order of namespace and name, from behind `after` on.
   * @param namespace "" for all
   */
  *list(resource: string, namespace: string, after?: { namespace: string; name: string }): Iterable<StoredObject> {
    let from = after;
    for (;;) {
      const rows = this.#page(resource, namespace, from);
      for (const row of rows) {
        yield { revision: Number(row.revision), body: String(row.body) };
      }
      const last = rows.at(-1);
      if (last === undefined || rows.length < EVENT_PAGE) return;
      from = { namespace: String(last.namespace), name: String(last.name) };
    }
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
    this.#guard(() => {
      if (type === "DELETED") {
        this.#run("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", resource, namespace, name);
      } else {
        const sql = `INSERT INTO objects (resource, namespace, name, revision, expires, body) VALUES (?, ?, ?, ?, ?, ?)
          ON CONFLICT (resource, namespace, name) DO UPDATE SET
          revision = excluded.revision, expires = excluded.expires, body = excluded.body`;
        this.#run(sql, resource, namespace, name, revision, expiresAt ?? null, body);
      }
      this.#run(
        "INSERT INTO history (revision, resource, type, namespace, at, body, previous) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ...[revision, resource, type, namespace, this.#clock.wall().getTime(), body, previous ?? null],
      );
    });
    batch.events.push({ resource, event: storedEvent(revision, type, namespace, body, previous) });
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
    return this.#rows(
      "SELECT * FROM history WHERE resource = ? AND revision > ? AND revision <= ? ORDER BY revision LIMIT ?",
      ...[resource, after, this.#committed, EVENT_PAGE],
    ).map((row) =>
      storedEvent(
        Number(row.revision),
        String(row.type) as ChangeType,
        String(row.namespace),
        String(row.body),
        row.previous === null ? undefined : String(row.previous),
      ),
    );
  }

  /** Where the history of a resource begins; watches from before it are Expired. */
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
    return value === undefined ? undefined : String(value);
  }

  setMeta(name: string, value: string): void {
    this.#begin();
    this.#guard(() => this.#run("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value));
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
    this.#database.close();
  }

  #page(resource: string, namespace: string, from: { namespace: string; name: string } | undefined) {
    const columns = "SELECT namespace, name, revision, body FROM objects WHERE resource = ?";
    if (namespace !== "") {
      const sql = `${columns} AND namespace = ? AND name > ? ORDER BY name LIMIT ${EVENT_PAGE}`;
      return this.#rows(sql, resource, namespace, from?.name ?? "");
    }
    const sql = `${columns} AND (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT ${EVENT_PAGE}`;
    return this.#rows(sql, resource, from?.namespace ?? "", from?.name ?? "");
  }

  #raiseFloor(resource: string, floor: number): void {
    this.#begin();
    this.#guard(() => {
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
    // Whoever waits hears of it; where nobody does (maintenance), the log has it.
    promise.catch(() => undefined);
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
  #guard(work: () => void): void {
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
  };
}
