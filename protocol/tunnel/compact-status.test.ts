import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { test } from "node:test";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import fc from "fast-check";
import { canonicalJson } from "../pod/container-hash.ts";
import { compactBase, MAX_COMPACT_DELTA_BYTES, packCompactDelta, unpackCompactDelta } from "./compact-status.ts";
import { encodeCbor } from "./encoding/cbor.ts";
import { toHex } from "./encoding/hex.ts";
import { applyDelta } from "./encoding/json-delta.ts";

const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");
const deflate = (bytes: Uint8Array, dictionary: Uint8Array): Uint8Array => deflateRawSync(bytes, { dictionary });
const inflate = (bytes: Uint8Array, dictionary: Uint8Array, maxOutputLength: number): Uint8Array =>
  inflateRawSync(bytes, { dictionary, maxOutputLength });
const WEB = { namespace: "default", name: "web", uid: "0b5a7b3e-1f52-4d0e-9d55-d8f0a3c7e111" };

/** As it comes out of JSON: without undefined fields and without nulls. */
const statuses = fc.dictionary(
  fc.string(),
  fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.array(fc.dictionary(fc.string(), fc.string()))),
);

test("a packed delta turns the base into the next status, for any order of its keys", () => {
  fc.assert(
    fc.property(statuses, statuses, (base, next) => {
      const reversed = Object.fromEntries(Object.entries(base).reverse());
      const [here, there] = [compactBase(sha256, WEB, base), compactBase(sha256, WEB, reversed)];
      assert.equal(toHex(here.key), toHex(there.key));
      const packed = packCompactDelta(deflate, here, base, next);
      assert.ok(packed);
      const made = applyDelta(reversed, unpackCompactDelta(inflate, there, packed));
      assert.equal(canonicalJson(made), canonicalJson(next));
    }),
  );
});

test("another pod, another name or another status have another key", () => {
  const status = { phase: "Running" };
  const keys = [
    compactBase(sha256, WEB, status),
    compactBase(sha256, WEB, { phase: "Failed" }),
    compactBase(sha256, { ...WEB, name: "db" }, status),
    compactBase(sha256, { ...WEB, namespace: "other" }, status),
    compactBase(sha256, { ...WEB, uid: "other" }, status),
  ].map(({ key }) => toHex(key));
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(keys[0]?.slice(0, 4), keys[1]?.slice(0, 4));
});

test("a delta that is too large is not packed, and one that becomes too large is not read", () => {
  const base = compactBase(sha256, WEB, {});
  const large = { message: "x".repeat(MAX_COMPACT_DELTA_BYTES) };
  assert.equal(packCompactDelta(deflate, base, {}, large), undefined);
  const bomb = deflate(encodeCbor(large), base.dictionary);
  assert.ok(bomb.length < 200);
  assert.throws(() => unpackCompactDelta(inflate, base, bomb));
});
