/**
 * Fingerprints by which the two ends find out that they have the same without sending it. SHA-256 comes from outside:
 * nothing here may import `node:crypto`.
 */
import { canonicalJson } from "../pod/container-hash.ts";

/** 32 bytes. `(bytes) => hash("sha256", bytes, "buffer")` of node:crypto. */
export type Sha256 = (bytes: Uint8Array) => Uint8Array;

/** Half a SHA-256: no one can construct two contents with the same hash. */
const HASH_BYTES = 16;
/** Where only accidents matter: an older status for a newer one, a forgotten mirror pod. */
const SHORT_BYTES = 8;

const utf8 = new TextEncoder();

const hashOfJson = (sha256: Sha256, value: unknown, length: number): Uint8Array =>
  Uint8Array.from(sha256(utf8.encode(canonicalJson(value))).subarray(0, length));

/** The hash of a Kubernetes object in 16 bytes; the order of its keys does not matter. */
export const objectHash = (sha256: Sha256, object: unknown): Uint8Array => hashOfJson(sha256, object, HASH_BYTES);

/**
 * The hash of a status or a node report in 8 bytes; the order of its keys does not matter, and undefined fields count
 * as missing.
 */
export const statusHash = (sha256: Sha256, status: unknown): Uint8Array => hashOfJson(sha256, status, SHORT_BYTES);

/** The digest of an empty set. */
export const EMPTY_DIGEST: Uint8Array = new Uint8Array(HASH_BYTES);

interface Entry {
  readonly key: string;
  readonly hash: Uint8Array;
}

/**
 * 16 bytes over a set of keys with their hashes: the sum, modulo 2^128, of the SHA-256 of each entry. A sum needs no
 * order, and a change of one entry costs two hashes, not one over the whole set. (Sets with a given sum can be searched
 * for by a party that chooses thousands of entries; only the hub does.)
 */
export function digestOf(sha256: Sha256, entries: Iterable<Entry>): Uint8Array {
  const sum = new Uint8Array(HASH_BYTES);
  for (const entry of entries) addInto(sum, entryHash(sha256, entry), 1);
  return sum;
}

/** The digest after an entry has come: `addToDigest(sha256, EMPTY_DIGEST, e)` is `digestOf(sha256, [e])`. */
export const addToDigest = (sha256: Sha256, digest: Uint8Array, entry: Entry): Uint8Array => {
  const sum = digest.slice();
  addInto(sum, entryHash(sha256, entry), 1);
  return sum;
};

/** The digest after an entry has gone that was in it. */
export const removeFromDigest = (sha256: Sha256, digest: Uint8Array, entry: Entry): Uint8Array => {
  const sum = digest.slice();
  addInto(sum, entryHash(sha256, entry), -1);
  return sum;
};

/** 8 bytes over the mirror set, in any order. Of the empty set: zeros. */
export function mirrorsDigest(
  sha256: Sha256,
  items: Iterable<{ readonly namespace: string; readonly name: string; readonly uid: string }>,
): Uint8Array {
  const sum = new Uint8Array(HASH_BYTES);
  for (const { namespace, name, uid } of items) {
    addInto(sum, sha256(utf8.encode(JSON.stringify([namespace, name, uid]))), 1);
  }
  return sum.slice(0, SHORT_BYTES);
}

/** The key is no JSON and has no NUL in it, so that no two entries are the same bytes. */
function entryHash(sha256: Sha256, { key, hash }: Entry): Uint8Array {
  const text = utf8.encode(key);
  const bytes = new Uint8Array(text.length + 1 + hash.length);
  bytes.set(text);
  bytes.set(hash, text.length + 1);
  return sha256(bytes);
}

/** Little-endian, modulo 2^(8 * sum.length). */
function addInto(sum: Uint8Array, term: Uint8Array, sign: 1 | -1): void {
  let carry = 0;
  for (let at = 0; at < sum.length; at += 1) {
    const digit = (sum[at] ?? 0) + sign * (term[at] ?? 0) + carry;
    sum[at] = digit & 0xff;
    carry = digit >> 8;
  }
}
