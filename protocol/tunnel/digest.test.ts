import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import {
  addToDigest,
  digestOf,
  EMPTY_DIGEST,
  mirrorsDigest,
  objectHash,
  removeFromDigest,
  statusHash,
} from "./digest.ts";

const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");
const entry = fc.record({ key: fc.string(), hash: fc.uint8Array({ minLength: 16, maxLength: 16 }) });
const entries = fc.uniqueArray(entry, { selector: ({ key }) => key });

test("a digest follows additions and removals in any order", () => {
  fc.assert(
    fc.property(entries, fc.nat(), (all, seed) => {
      let digest = EMPTY_DIGEST;
      for (const each of all) digest = addToDigest(sha256, digest, each);
      assert.deepEqual(digest, digestOf(sha256, all.toReversed()));
      const gone = all[seed % Math.max(1, all.length)];
      if (gone === undefined) return;
      const rest = all.filter((each) => each !== gone);
      assert.deepEqual(removeFromDigest(sha256, digest, gone), digestOf(sha256, rest));
    }),
  );
});

test("the digest of nothing is sixteen zeros", () => assert.deepEqual(digestOf(sha256, []), new Uint8Array(16)));

test("sets that differ in a key or a hash have other digests", () => {
  fc.assert(
    fc.property(entries, entry, (all, extra) => {
      fc.pre(all.every(({ key }) => key !== extra.key));
      const digests = [all, [...all, extra], [...all, { ...extra, key: `${extra.key}x` }]].map((set) =>
        Buffer.from(digestOf(sha256, set)).toString("hex"),
      );
      assert.equal(new Set(digests).size, 3);
    }),
  );
});

test("hashes do not depend on the order of keys, nor on fields that are undefined", () => {
  const one = { a: 1, b: { c: [1, 2], d: "x" } };
  const other = { b: { d: "x", c: [1, 2], e: undefined }, a: 1 };
  assert.deepEqual(objectHash(sha256, one), objectHash(sha256, other));
  assert.deepEqual(statusHash(sha256, one), objectHash(sha256, one).slice(0, 8));
  assert.notDeepEqual(objectHash(sha256, one), objectHash(sha256, { ...one, a: null }));
  assert.notDeepEqual(objectHash(sha256, { a: [1, 2] }), objectHash(sha256, { a: [2, 1] }));
});

test("the digest of mirror pods depends on namespace, name and uid of each, in any order", () => {
  const a = { namespace: "n", name: "a", uid: "1" };
  const b = { namespace: "n", name: "b", uid: "2" };
  assert.deepEqual(mirrorsDigest(sha256, [a, b]), mirrorsDigest(sha256, [b, a]));
  assert.notDeepEqual(mirrorsDigest(sha256, [a, b]), mirrorsDigest(sha256, [a, { ...b, uid: "3" }]));
  const shifted = [{ namespace: "na", name: "", uid: "1" }];
  assert.notDeepEqual(mirrorsDigest(sha256, [a]), mirrorsDigest(sha256, shifted));
});
