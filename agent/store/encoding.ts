/**
 * How objects are written down: CBOR with the keys of every map sorted and undefined fields left out, so that equal
 * content is equal bytes, on every start and after every upgrade (the goldens hold it to that).
 */
import { hash } from "node:crypto";
// This entry never loads the native addon, which would cost 0.8 MB and four threads; "cbor-x" itself does.
import { Encoder } from "cbor-x/encode";

const OPTIONS = { useRecords: false, mapsAsObjects: true, useTag259ForMaps: false, variableMapSize: true };
const cbor = new Encoder(OPTIONS);

export const encode = (value: unknown): Buffer => cbor.encode(sorted(value));

/** @throws when `bytes` are not CBOR; what was written by `encode` comes back equal. */
export const decode = (bytes: Buffer): unknown => cbor.decode(bytes);

/** Half a SHA-256 finds every accident. It need not resist forgery: a process that can write the file can do more. */
const DIGEST_BYTES = 16;

/** @param identity all columns of the row but its body @returns the digest of the row */
export function digestOf(identity: readonly (string | number)[], body: Buffer | undefined): Buffer {
  const head = Buffer.from(JSON.stringify(identity));
  const row = body === undefined ? head : Buffer.concat([head, body]);
  return hash("sha256", row, "buffer").subarray(0, DIGEST_BYTES);
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((each) => (each === undefined ? null : sorted(each)));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return new Map(entries.map(([key, each]) => [key, sorted(each)]));
}
