/** The tables `objects` and `cursor`, row by row. Secrets and the cursor are sealed where the store has a `Sealer`. */
import { hash } from "node:crypto";
import { digestOf } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { Cursor, ObjectHash, ObjectKey, RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { Sealer } from "../core/store/sealer.ts";
import type { Connection } from "./connection.ts";
import { decode, encode, digestOf as rowDigestOf } from "./encoding.ts";
import { corrupt } from "./schema.ts";

/** The part of an object that is in memory; its body stays on disk. */
export interface ObjectNote {
  readonly hash: ObjectHash;
  readonly bytes: number;
  /** The generation of the key that the row is sealed with; 0: it is not sealed. */
  readonly generation: number;
}

export interface ObjectContents {
  readonly notes: ReadonlyMap<ObjectKey, ObjectNote>;
  readonly cursor: Cursor;
  /** The generation of the cursor's row, as in `ObjectNote`. */
  readonly cursorGeneration: number;
  /** Rows that do not open: they are damaged, or their key is lost. */
  readonly unreadable: ReadonlySet<ObjectKey>;
}

export const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");

/** The set may not be what it was, or there never was one. */
export const cursorOf = (notes: ObjectContents["notes"]): Cursor => ({
  epoch: new Uint8Array(0),
  revision: 0,
  digest: digestOf(
    sha256,
    [...notes].map(([key, note]) => ({ key, hash: note.hash })),
  ),
});

/** Converts between objects and rows; no other code does. */
export const objectBody = ({ object }: RemoteObject): Buffer => encode(object);
const objectOf = (body: Buffer): Readonly<Record<string, unknown>> => decode(body) as Readonly<Record<string, unknown>>;

/** Objects whose rows are sealed. */
export const isSecret = (key: ObjectKey): boolean => key.startsWith("Secret/");

/** Reads every row, to find damage. @throws `corrupt` */
export function readObjects(connection: Connection, sealer: Sealer | undefined): ObjectContents {
  const notes = new Map<ObjectKey, ObjectNote>();
  const unreadable = new Set<ObjectKey>();
  for (const columns of connection.each(SELECT_OBJECTS)) {
    const row = objectRow(columns, sealer);
    // A copy: what SQLite gives is a slice of a larger block.
    if (row.body !== undefined)
      notes.set(row.key, { hash: Uint8Array.from(row.hash), bytes: row.body.length, generation: row.generation });
    else unreadable.add(row.key);
  }
  const unknown = cursorOf(notes);
  const { cursor: stored, generation } = readCursor(connection, sealer);
  const isWhole = stored !== undefined && equalBytes(stored.digest, unknown.digest);
  return { notes, cursor: isWhole ? stored : unknown, cursorGeneration: generation, unreadable };
}

const SELECT_OBJECTS = "SELECT key, hash, body, digest, sealed FROM objects";

/** A row. `body` is undefined when it cannot be opened. */
interface ObjectRow {
  readonly key: ObjectKey;
  readonly hash: ObjectHash;
  readonly body: Buffer | undefined;
  readonly generation: number;
}

/** @returns undefined when there is no such row @throws `corrupt` */
export function readRow(connection: Connection, key: ObjectKey, sealer: Sealer | undefined): ObjectRow | undefined {
  const columns = connection.row(`${SELECT_OBJECTS} WHERE key = ?`, key);
  return columns && objectRow(columns, sealer);
}

/** @returns undefined when there is no such row, "unreadable" when it does not open @throws `corrupt` */
export function readObject(
  connection: Connection,
  key: ObjectKey,
  sealer: Sealer | undefined,
): Readonly<Record<string, unknown>> | "unreadable" | undefined {
  const row = readRow(connection, key, sealer);
  return row === undefined ? undefined : row.body === undefined ? "unreadable" : objectOf(row.body);
}

/** @returns the generation that the row is sealed with, 0 for none */
export function writeObject(
  connection: Connection,
  { key, hash: own, body }: { readonly key: ObjectKey; readonly hash: ObjectHash; readonly body: Buffer },
  sealer: Sealer | undefined,
): number {
  const bytes = Buffer.from(own);
  const sql =
    "INSERT INTO objects (key, hash, body, digest, sealed) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET " +
    "hash = excluded.hash, body = excluded.body, digest = excluded.digest, sealed = excluded.sealed";
  if (sealer === undefined || !isSecret(key)) {
    connection.run(sql, key, bytes, body, rowDigestOf([key, bytes.toString("hex")], body), 0);
    return 0;
  }
  const box = sealer.seal(objectIdentity(key), Buffer.concat([Buffer.of(bytes.length), bytes, body]));
  connection.run(sql, key, EMPTY, box, EMPTY, 1);
  return sealer.generationOf(box);
}

export function deleteObject(connection: Connection, key: ObjectKey): void {
  connection.run("DELETE FROM objects WHERE key = ?", key);
}

/** @returns the generation that the row is sealed with, 0 for none */
export function writeCursor(
  connection: Connection,
  { epoch, revision, digest: state }: Cursor,
  sealer: Sealer | undefined,
): number {
  const sql =
    "INSERT INTO cursor (id, epoch, revision, state, digest, sealed) VALUES (0, ?, ?, ?, ?, ?) " +
    "ON CONFLICT DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision, state = excluded.state, " +
    "digest = excluded.digest, sealed = excluded.sealed";
  const values = [Buffer.from(epoch), revision] as const;
  const plain = Buffer.from(state);
  if (sealer === undefined) {
    connection.run(sql, ...values, plain, cursorDigest(...values, plain), 0);
    return 0;
  }
  // The digest is a sum over the hashes of all objects; with those of the others it would reveal that of a Secret.
  const box = sealer.seal(cursorIdentity(...values), plain);
  connection.run(sql, ...values, box, EMPTY, 1);
  return sealer.generationOf(box);
}

const EMPTY = Buffer.alloc(0);
const objectIdentity = (key: ObjectKey): readonly string[] => ["object", key];
const cursorIdentity = (epoch: Buffer, revision: number): readonly string[] => [
  "cursor",
  epoch.toString("hex"),
  String(revision),
];

function readCursor(
  connection: Connection,
  sealer: Sealer | undefined,
): { readonly cursor: Cursor | undefined; readonly generation: number } {
  const columns = connection.row("SELECT epoch, revision, state, digest, sealed FROM cursor WHERE id = 0");
  if (columns === undefined) return { cursor: undefined, generation: sealer?.generation ?? 0 };
  const { epoch, revision, state, digest, sealed } = columns;
  const isWhole =
    epoch instanceof Buffer && typeof revision === "number" && state instanceof Buffer && digest instanceof Buffer;
  const isIntact = isWhole && (sealed === 1 || cursorDigest(epoch, revision, state).equals(digest));
  if (!isIntact) throw corrupt("the cursor is not as it was written");
  const plain = sealed === 1 ? sealer?.open(cursorIdentity(epoch, revision), state) : state;
  const generation = sealed === 1 ? (sealer?.generationOf(state) ?? 0) : 0;
  if (plain === undefined) return { cursor: undefined, generation };
  // No Buffers: their `slice` shares memory where that of a Uint8Array copies.
  return { cursor: { epoch: Uint8Array.from(epoch), revision, digest: Uint8Array.from(plain) }, generation };
}

const cursorDigest = (epoch: Buffer, revision: number, state: Buffer): Buffer =>
  rowDigestOf([epoch.toString("hex"), revision], state);

function objectRow(columns: Record<string, unknown>, sealer: Sealer | undefined): ObjectRow {
  const { key, hash: own, body, digest, sealed } = columns;
  const isWhole =
    typeof key === "string" && own instanceof Buffer && body instanceof Buffer && digest instanceof Buffer;
  if (isWhole && sealed === 1) return openedRow(key as ObjectKey, body, sealer);
  const isIntact = isWhole && rowDigestOf([key, own.toString("hex")], body).equals(digest);
  if (!isIntact) throw corrupt("a row of the objects is not as it was written");
  return { key: key as ObjectKey, hash: own, body, generation: 0 };
}

function openedRow(key: ObjectKey, box: Buffer, sealer: Sealer | undefined): ObjectRow {
  const plain = sealer?.open(objectIdentity(key), box);
  const generation = sealer?.generationOf(box) ?? 0;
  if (plain === undefined) return { key, hash: EMPTY, body: undefined, generation };
  const end = 1 + (plain[0] ?? 0);
  return { key, hash: plain.subarray(1, end), body: plain.subarray(end), generation };
}
