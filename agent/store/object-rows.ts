/** The tables `objects` and `cursor`, row by row. */
import { hash } from "node:crypto";
import { digestOf } from "../../protocol/tunnel/digest.ts";
import { equalBytes } from "../../protocol/tunnel/hex.ts";
import type { Cursor, ObjectHash, ObjectKey, RemoteObject } from "../../protocol/tunnel/messages.ts";
import type { Connection } from "./connection.ts";
import { decode, encode, digestOf as rowDigestOf } from "./encoding.ts";
import { corrupt } from "./schema.ts";

/** What memory keeps of an object; its body stays on disk. */
export interface ObjectNote {
  readonly hash: ObjectHash;
  readonly bytes: number;
}

export interface ObjectContents {
  readonly notes: ReadonlyMap<ObjectKey, ObjectNote>;
  readonly cursor: Cursor;
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

/** The one place where an object becomes what lies on the disk, and back. */
export const objectBody = ({ object }: RemoteObject): Buffer => encode(object);
const objectOf = (body: Buffer): Readonly<Record<string, unknown>> => decode(body) as Readonly<Record<string, unknown>>;

/** Reads every row, to find damage. @throws `corrupt` */
export function readObjects(connection: Connection): ObjectContents {
  const notes = new Map<ObjectKey, ObjectNote>();
  for (const columns of connection.each("SELECT key, hash, body, digest FROM objects")) {
    const { key, hash: own, body } = objectRow(columns);
    // A copy: what SQLite gives is a slice of a larger block.
    notes.set(key, { hash: Uint8Array.from(own), bytes: body.length });
  }
  const unknown = cursorOf(notes);
  const stored = readCursor(connection);
  const isWhole = stored !== undefined && equalBytes(stored.digest, unknown.digest);
  return { notes, cursor: isWhole ? stored : unknown };
}

export function readObject(connection: Connection, key: ObjectKey): Readonly<Record<string, unknown>> | undefined {
  const columns = connection.row("SELECT key, hash, body, digest FROM objects WHERE key = ?", key);
  return columns === undefined ? undefined : objectOf(objectRow(columns).body);
}

export function writeObject(connection: Connection, key: ObjectKey, own: ObjectHash, body: Buffer): void {
  const bytes = Buffer.from(own);
  connection.run(
    "INSERT INTO objects (key, hash, body, digest) VALUES (?, ?, ?, ?) " +
      "ON CONFLICT DO UPDATE SET hash = excluded.hash, body = excluded.body, digest = excluded.digest",
    key,
    bytes,
    body,
    rowDigestOf([key, bytes.toString("hex")], body),
  );
}

export function deleteObject(connection: Connection, key: ObjectKey): void {
  connection.run("DELETE FROM objects WHERE key = ?", key);
}

export function writeCursor(connection: Connection, { epoch, revision, digest: state }: Cursor): void {
  const values = [Buffer.from(epoch), revision, Buffer.from(state)] as const;
  connection.run(
    "INSERT INTO cursor (id, epoch, revision, state, digest) VALUES (0, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET " +
      "epoch = excluded.epoch, revision = excluded.revision, state = excluded.state, digest = excluded.digest",
    ...values,
    cursorDigest(...values),
  );
}

function readCursor(connection: Connection): Cursor | undefined {
  const columns = connection.row("SELECT epoch, revision, state, digest FROM cursor WHERE id = 0");
  if (columns === undefined) return undefined;
  const { epoch, revision, state, digest } = columns;
  const isIntact =
    epoch instanceof Buffer &&
    typeof revision === "number" &&
    state instanceof Buffer &&
    digest instanceof Buffer &&
    cursorDigest(epoch, revision, state).equals(digest);
  if (!isIntact) throw corrupt("the cursor is not as it was written");
  // No Buffers: their `slice` shares memory where that of a Uint8Array copies.
  return { epoch: Uint8Array.from(epoch), revision, digest: Uint8Array.from(state) };
}

const cursorDigest = (epoch: Buffer, revision: number, state: Buffer): Buffer =>
  rowDigestOf([epoch.toString("hex"), revision], state);

function objectRow({ key, hash: own, body, digest }: Record<string, unknown>) {
  const isIntact =
    typeof key === "string" &&
    own instanceof Buffer &&
    body instanceof Buffer &&
    digest instanceof Buffer &&
    rowDigestOf([key, own.toString("hex")], body).equals(digest);
  if (!isIntact) throw corrupt("a row of the objects is not as it was written");
  return { key, hash: own, body };
}
