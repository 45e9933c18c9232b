import { jsonSize } from "./encoding/json-delta.ts";
import { MAX_DESIRED_BYTES, MAX_DESIRED_ITEMS } from "./message-codec.ts";
import type { Desired, ObjectKey, RemoteObject } from "./messages.ts";

/** A piece besides its keys and objects: kind, revision, digest, lengths of lists. */
const PIECE_BYTES = 40;
/** The length of a key on the wire. */
const KEY_BYTES = 3;
/** Key and hash of an object on the wire, besides the key's own characters. */
const ITEM_BYTES = 24;

/**
 * One revision in pieces of about MAX_DESIRED_BYTES; an object that is larger is a piece of its own. There is always a
 * last piece, which has the digest. Objects are as they were given: what changes meanwhile belongs to another revision.
 */
export function* desiredPieces(revision: {
  readonly revision: number;
  readonly upserts: readonly RemoteObject[];
  readonly deletes: readonly ObjectKey[];
  readonly digest: Uint8Array;
}): Generator<Desired> {
  let upserts: RemoteObject[] = [];
  let deletes: ObjectKey[] = [];
  let bytes = PIECE_BYTES;
  const piece = (last: boolean): Desired => {
    const digest = last ? revision.digest : NO_DIGEST;
    const full: Desired = { kind: "desired", revision: revision.revision, upserts, deletes, last, digest };
    upserts = [];
    deletes = [];
    bytes = PIECE_BYTES;
    return full;
  };
  const isFull = (size: number): boolean => {
    const items = upserts.length + deletes.length;
    return items > 0 && (bytes + size > MAX_DESIRED_BYTES || items >= MAX_DESIRED_ITEMS);
  };
  for (const key of revision.deletes) {
    const size = KEY_BYTES + key.length;
    if (isFull(size)) yield piece(false);
    deletes.push(key);
    bytes += size;
  }
  for (const object of revision.upserts) {
    const size = ITEM_BYTES + object.key.length + jsonSize(object.object);
    if (isFull(size)) yield piece(false);
    upserts.push(object);
    bytes += size;
  }
  yield piece(true);
}

const NO_DIGEST = new Uint8Array();
