import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { addToDigest, removeFromDigest } from "@picolet/protocol/tunnel/digest.ts";
import type { Cursor, ObjectHash, ObjectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { Sealer } from "../core/store/sealer.ts";
import type { ApiPods, ObjectStore, RemoteChange } from "../core/store/store-ports.ts";
import { type Connection, MAX_DATABASE_BYTES } from "./connection.ts";
import {
  cursorOf,
  deleteObject,
  isSecret,
  type ObjectContents,
  type ObjectNote,
  objectBody,
  readObject,
  readRow,
  sha256,
  writeCursor,
  writeObject,
} from "./object-rows.ts";
import { corrupt } from "./schema.ts";
import type { Batched } from "./store-file.ts";

/**
 * The 110 pods that a node runs at most, with 15 Secrets, ConfigMaps, claims and volumes each, and the 256 services
 * that a hub sends at most; of each some 200 bytes are in memory. A change that would bring more is refused whole.
 */
export const MAX_OBJECTS = 2048;
/**
 * Half of what the database may have: the other half is for the pods made of them. A change above it is refused whole.
 */
export const MAX_OBJECTS_BYTES = MAX_DATABASE_BYTES / 2;

/**
 * Rows that one batch seals again, some 64 KiB of ordinary Secrets: the agent answers between two batches, and a power
 * cut repeats no more than one.
 */
const RESEALED_ROWS = 32;

export interface RemoteObjectTableComponents {
  readonly file: {
    use<R>(message: string, work: (connection: Connection) => R): R;
    /** Overwrites what deleted and moved rows left in the file. @throws what the disk throws */
    scrub(): void;
    /** All writes so far are on the disk when it returns. */
    settle(): void;
  };
  readonly log: Log;
  /** Seals the rows of Secrets; undefined: they are plain. */
  readonly sealer: Sealer | undefined;
  /** Called when a record waits for the next batch. */
  readonly keepBack: () => void;
  readonly pods: { replaceApi(pods: ApiPods, also: ((connection: Connection) => void) | undefined): void };
  /**
   * Statuses that are not on disk yet are written with a change: a report of a pod's end must not outlive its return.
   */
  readonly statuses: Pick<Batched, "write" | "written"> & { sweep(): void };
}

/** Bodies are on disk alone. */
export class RemoteObjectTable implements ObjectStore, Batched {
  readonly #components: RemoteObjectTableComponents;
  readonly #sealer: Sealer | undefined;
  #notes: ReadonlyMap<ObjectKey, ObjectNote>;
  #cursor: Cursor;
  #cursorGeneration: number;
  #bytes: number;
  #isCursorWritten = true;
  /** Counts the files that took another's place while they were open. */
  #files = 0;
  /** Rows on disk that do not open, until the hub's next word brings or deletes them. */
  readonly #unreadable: WatchSource<ReadonlySet<ObjectKey>>;
  /** Rows that `write` has sealed again, until `written`. */
  readonly #resealed = new Map<ObjectKey, ObjectNote>();
  #resealedCursor: number | undefined;
  /** Every row that has to be is sealed with the newest key, and the file holds no others. */
  #isSettled: boolean;
  #hasPlain: boolean;

  constructor(components: RemoteObjectTableComponents, contents: ObjectContents) {
    this.#components = components;
    this.#sealer = components.sealer;
    this.#notes = contents.notes;
    this.#cursor = contents.cursor;
    this.#cursorGeneration = contents.cursorGeneration;
    this.#bytes = bytesOf(contents.notes);
    this.#unreadable = new WatchSource(contents.unreadable);
    const { size } = contents.unreadable;
    if (size > 0) components.log.error("stored Secrets cannot be opened: the hub is asked for them", { secrets: size });
    const generations = this.#generations();
    this.#hasPlain = generations.has(0);
    const isSettled =
      this.#sealer?.isScrubbed === true && [...generations].every((n) => n === this.#sealer?.generation);
    // A key that ends with the process seals no rows again: others than it may still open them after the next start.
    this.#isSettled = isSettled || this.#sealer?.isDurable !== true;
    if (!this.#isSettled) components.keepBack();
  }

  get unreadable(): Watch<ReadonlySet<ObjectKey>> {
    return this.#unreadable;
  }

  get cursor(): Cursor {
    return this.#cursor;
  }

  *inventory(): Iterable<{ readonly key: ObjectKey; readonly hash: ObjectHash }> {
    for (const [key, { hash }] of this.#notes) yield { key, hash };
  }

  digestAfter({ upserts, deletes }: Omit<RemoteChange, "cursor">): Uint8Array {
    const touched = new Map<ObjectKey, ObjectHash | undefined>();
    for (const key of deletes) touched.set(key, undefined);
    for (const { key, hash } of upserts) touched.set(key, hash);
    let { digest } = this.#cursor;
    for (const [key, hash] of touched) {
      const before = this.#notes.get(key);
      if (before !== undefined) digest = removeFromDigest(sha256, digest, { key, hash: before.hash });
      if (hash !== undefined) digest = addToDigest(sha256, digest, { key, hash });
    }
    return digest;
  }

  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined {
    if (!this.#notes.has(key)) return undefined;
    const found = this.#components.file.use("cannot read an object", (connection) => {
      const row = readObject(connection, key, this.#sealer);
      // The index has lost it, so the file is damaged. A new file does not have the object.
      if (row === undefined && this.#notes.has(key)) throw corrupt("an object is not found by its key");
      return row;
    });
    if (found !== "unreadable") return found;
    this.#lose(key);
    return undefined;
  }

  apply(change: RemoteChange, pods: ApiPods): void {
    const { statuses } = this.#components;
    const bodies = new Map(change.upserts.map((each) => [each.key, objectBody(each)]));
    const notes = this.#notesAfter(change, bodies);
    const bytes = bytesOf(notes);
    refuseTooMuch(notes.size, bytes, this.#notes.size, this.#bytes);
    const isChange = change.upserts.length + change.deletes.length > 0;
    const file = this.#files;
    // The digest of the set as it is, even if the hub has announced another one.
    const cursor = { ...change.cursor, digest: this.digestAfter(change) };
    const unreadable = this.#unreadable.current;
    let cursorGeneration = this.#cursorGeneration;
    const write = (connection: Connection): void => {
      if (this.#files !== file) throw corrupt("the objects were lost with the file");
      for (const key of [...change.deletes, ...unreadable]) if (!bodies.has(key)) deleteObject(connection, key);
      for (const { key, hash } of change.upserts) {
        const body = bodies.get(key);
        if (body === undefined) continue;
        const generation = writeObject(connection, { key, hash, body }, this.#sealer);
        notes.set(key, { hash: Uint8Array.from(hash), bytes: body.length, generation });
      }
      cursorGeneration = writeCursor(connection, cursor, this.#sealer);
      statuses.write(connection);
    };
    this.#components.pods.replaceApi(pods, isChange ? write : undefined);
    this.#notes = notes;
    this.#bytes = bytes;
    this.#cursor = cursor;
    this.#cursorGeneration = cursorGeneration;
    if (isChange) {
      if (unreadable.size > 0) this.#unreadable.set(new Set());
      this.#resealIfRotated();
      statuses.written();
      statuses.sweep();
      return;
    }
    this.#isCursorWritten = false;
    this.#components.keepBack();
  }

  write(connection: Connection): void {
    this.#resealedCursor = undefined;
    this.#resealed.clear();
    const isStale = !this.#isSettled && this.#cursorGeneration !== this.#sealer?.generation;
    if (!this.#isCursorWritten || isStale) this.#resealedCursor = writeCursor(connection, this.#cursor, this.#sealer);
    if (!this.#isSettled) this.#reseal(connection);
  }

  written(): void {
    this.#isCursorWritten = true;
    this.#cursorGeneration = this.#resealedCursor ?? this.#cursorGeneration;
    const { size } = this.#resealed;
    if (size > 0) this.#notes = new Map([...this.#notes, ...this.#resealed]);
    this.#resealed.clear();
    if (this.#isSettled) return;
    if (size < RESEALED_ROWS) this.#settle();
    else this.#components.keepBack();
  }

  /** Only their hashes are in memory: the hub has to send them again. */
  rewrite(): void {
    this.#files += 1;
    this.#notes = new Map();
    this.#bytes = 0;
    this.#cursor = cursorOf(this.#notes);
    this.#isCursorWritten = true;
    this.#unreadable.set(new Set());
  }

  /** Secrets that are plain, or sealed with an older key. */
  #reseal(connection: Connection): void {
    const sealer = this.#sealer;
    if (sealer === undefined) return;
    for (const [key, note] of this.#notes) {
      if (this.#resealed.size >= RESEALED_ROWS) return;
      if (!isSecret(key) || note.generation === sealer.generation) continue;
      const row = readRow(connection, key, sealer);
      if (row?.body === undefined) continue;
      const generation = writeObject(connection, { key, hash: note.hash, body: row.body }, sealer);
      this.#resealed.set(key, { ...note, generation });
    }
  }

  /** @returns generations of the keys that rows are sealed with; 0 for a plain row that must be sealed */
  #generations(): ReadonlySet<number> {
    const generations = new Set([this.#cursorGeneration]);
    for (const [key, { generation }] of this.#notes) if (isSecret(key)) generations.add(generation);
    return generations;
  }

  /** A key has taken the place of the one that the rows are sealed with. */
  #resealIfRotated(): void {
    const { generation } = this.#sealer ?? {};
    if (generation === undefined || this.#sealer?.isDurable !== true || !this.#isSettled) return;
    if ([...this.#generations()].every((each) => each === generation)) return;
    this.#isSettled = false;
    this.#components.keepBack();
  }

  /** Every row is sealed with the newest key. Removes remains of older ones from the file, and then their keys. */
  #settle(): void {
    const { file, log } = this.#components;
    const sealer = this.#sealer;
    if (sealer === undefined) return;
    this.#isSettled = true;
    try {
      if (sealer.isScrubbed && !this.#hasPlain) file.settle();
      else file.scrub();
      this.#hasPlain = false;
      sealer.settle(this.#generations());
    } catch (error) {
      // The next start tries again; no needed row is lost.
      log.warn("cannot overwrite what was stored without encryption", { error: describeError(error) });
    }
  }

  /** A row that was readable at the start is damaged: that object alone is asked for again. */
  #lose(key: ObjectKey): void {
    this.#components.log.error("a stored Secret cannot be opened: the hub is asked for it", { key });
    const notes = new Map(this.#notes);
    notes.delete(key);
    this.#notes = notes;
    this.#bytes = bytesOf(notes);
    this.#cursor = cursorOf(notes);
    this.#isCursorWritten = false;
    this.#components.keepBack();
    this.#unreadable.set(new Set([...this.#unreadable.current, key]));
  }

  #notesAfter({ upserts, deletes }: RemoteChange, bodies: ReadonlyMap<ObjectKey, Buffer>): Map<ObjectKey, ObjectNote> {
    const notes = new Map(this.#notes);
    for (const key of deletes) notes.delete(key);
    for (const { key, hash } of upserts)
      notes.set(key, { hash: Uint8Array.from(hash), bytes: bodies.get(key)?.length ?? 0, generation: 0 });
    return notes;
  }
}

function bytesOf(notes: ObjectContents["notes"]): number {
  let bytes = 0;
  for (const note of notes.values()) bytes += note.bytes;
  return bytes;
}

/** A change that does not grow the set passes: a set above a limit must be able to shrink. */
function refuseTooMuch(count: number, bytes: number, countBefore: number, bytesBefore: number): void {
  const isTooMany = count > MAX_OBJECTS && count > countBefore;
  const isTooMuch = bytes > MAX_OBJECTS_BYTES && bytes > bytesBefore;
  if (!isTooMany && !isTooMuch) return;
  const [what, limit] = isTooMany
    ? [`${count} objects`, MAX_OBJECTS]
    : [`objects of ${bytes} bytes`, MAX_OBJECTS_BYTES];
  throw new PicoletError("resource_exhausted", `cannot store ${what}: at most ${limit} are kept`, { retryable: true });
}
