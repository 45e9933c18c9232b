import { PicoletError } from "../../protocol/errors.ts";
import { digestWith, digestWithout } from "../../protocol/tunnel/digest.ts";
import type { Cursor, ObjectHash, ObjectKey } from "../../protocol/tunnel/messages.ts";
import type { ApiPods, ObjectStore } from "../core/store.ts";
import type { RemoteChange } from "../core/tunnel-ports.ts";
import { type Connection, MAX_DATABASE_BYTES } from "./connection.ts";
import {
  cursorOf,
  deleteObject,
  type ObjectContents,
  type ObjectNote,
  objectBody,
  readObject,
  sha256,
  writeCursor,
  writeObject,
} from "./object-rows.ts";
import { corrupt } from "./schema.ts";
import type { Batched } from "./store-file.ts";

/**
 * The 110 pods that a node runs at most, with 15 Secrets, ConfigMaps, claims and volumes each, and the 256 services that a
 * hub sends at most; of each some 200 bytes are in memory.
 * A change that would bring more is refused whole.
 */
export const MAX_OBJECTS = 2048;
/** Half of what the database may have: the other half is for the pods made of them. A change above it is refused whole. */
export const MAX_OBJECTS_BYTES = MAX_DATABASE_BYTES / 2;

export interface RemoteObjectTableComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Something is kept back for the next batch. */
  readonly keepBack: () => void;
  readonly pods: { replaceApi(pods: ApiPods, also: ((connection: Connection) => void) | undefined): void };
  /** What is kept back of the statuses goes with a change: one told of a pod's end must not outlive that pod's return. */
  readonly statuses: Pick<Batched, "write" | "written"> & { sweep(): void };
}

/** Bodies are on disk alone. */
export class RemoteObjectTable implements ObjectStore, Batched {
  readonly #components: RemoteObjectTableComponents;
  #notes: ReadonlyMap<ObjectKey, ObjectNote>;
  #cursor: Cursor;
  #bytes: number;
  #isCursorWritten = true;
  /** Counts the files that took another's place while they were open. */
  #files = 0;

  constructor(components: RemoteObjectTableComponents, { notes, cursor }: ObjectContents) {
    this.#components = components;
    this.#notes = notes;
    this.#cursor = cursor;
    this.#bytes = bytesOf(notes);
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
      if (before !== undefined) digest = digestWithout(sha256, digest, { key, hash: before.hash });
      if (hash !== undefined) digest = digestWith(sha256, digest, { key, hash });
    }
    return digest;
  }

  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined {
    if (!this.#notes.has(key)) return undefined;
    return this.#components.file.use("cannot read an object", (connection) => {
      const found = readObject(connection, key);
      // An index that lost it: nothing of this file can be relied upon. In the next one there is none.
      if (found === undefined && this.#notes.has(key)) throw corrupt("an object is not found by its key");
      return found;
    });
  }

  apply(change: RemoteChange, pods: ApiPods): void {
    const { statuses } = this.#components;
    const bodies = new Map(change.upserts.map((each) => [each.key, objectBody(each)]));
    const notes = this.#notesAfter(change, bodies);
    const bytes = bytesOf(notes);
    refuseTooMuch(notes.size, bytes, this.#notes.size, this.#bytes);
    const isChange = change.upserts.length + change.deletes.length > 0;
    const file = this.#files;
    // As it is, whatever was said that it would be.
    const cursor = { ...change.cursor, digest: this.digestAfter(change) };
    const write = (connection: Connection): void => {
      if (this.#files !== file) throw corrupt("the objects were lost with the file");
      for (const key of change.deletes) if (!bodies.has(key)) deleteObject(connection, key);
      for (const { key, hash } of change.upserts) {
        const body = bodies.get(key);
        if (body !== undefined) writeObject(connection, key, hash, body);
      }
      writeCursor(connection, cursor);
      statuses.write(connection);
    };
    this.#components.pods.replaceApi(pods, isChange ? write : undefined);
    this.#notes = notes;
    this.#bytes = bytes;
    this.#cursor = cursor;
    if (isChange) {
      statuses.written();
      statuses.sweep();
      return;
    }
    this.#isCursorWritten = false;
    this.#components.keepBack();
  }

  write(connection: Connection): void {
    if (!this.#isCursorWritten) writeCursor(connection, this.#cursor);
  }

  written(): void {
    this.#isCursorWritten = true;
  }

  /** Only their hashes are in memory: the hub has to send them again. */
  rewrite(): void {
    this.#files += 1;
    this.#notes = new Map();
    this.#bytes = 0;
    this.#cursor = cursorOf(this.#notes);
    this.#isCursorWritten = true;
  }

  #notesAfter({ upserts, deletes }: RemoteChange, bodies: ReadonlyMap<ObjectKey, Buffer>): Map<ObjectKey, ObjectNote> {
    const notes = new Map(this.#notes);
    for (const key of deletes) notes.delete(key);
    for (const { key, hash } of upserts)
      notes.set(key, { hash: Uint8Array.from(hash), bytes: bodies.get(key)?.length ?? 0 });
    return notes;
  }
}

function bytesOf(notes: ObjectContents["notes"]): number {
  let bytes = 0;
  for (const note of notes.values()) bytes += note.bytes;
  return bytes;
}

/** What grows no further is let through: a set above a limit must be able to shrink. */
function refuseTooMuch(count: number, bytes: number, countBefore: number, bytesBefore: number): void {
  const isTooMany = count > MAX_OBJECTS && count > countBefore;
  const isTooMuch = bytes > MAX_OBJECTS_BYTES && bytes > bytesBefore;
  if (!isTooMany && !isTooMuch) return;
  const [what, limit] = isTooMany
    ? [`${count} objects`, MAX_OBJECTS]
    : [`objects of ${bytes} bytes`, MAX_OBJECTS_BYTES];
  throw new PicoletError("resource_exhausted", `cannot store ${what}: at most ${limit} are kept`, { retryable: true });
}
