import assert from "node:assert/strict";
import { test } from "node:test";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { NameClaims } from "./name-claims.ts";

const one = desired(podOf(), "one");
const two = desired(podOf(), "two");
const elsewhere = desired(podOf({}, { namespace: "other" }), "three");

test("the first to claim a name has it, the second is told whom to wait for", () => {
  const names = new NameClaims();
  assert.equal(names.claim(one), undefined);
  assert.equal(names.claim(one), undefined);
  assert.equal(names.claim(two), one.uid);
  names.release(one);
  assert.equal(names.claim(two), undefined);
});

test("the same name in another namespace is another name", () => {
  const names = new NameClaims();
  names.claim(one);
  assert.equal(names.claim(elsewhere), undefined);
});

test("a pod with traces comes before one without, in the order in which they were found", () => {
  const names = new NameClaims();
  names.occupy(two);
  names.occupy(one);
  assert.equal(names.claim(one), two.uid);
  assert.equal(names.claim(two), undefined);
  names.release(two);
  assert.equal(names.claim(one), undefined);
});

test("the release of one that waits changes nothing", () => {
  const names = new NameClaims();
  names.claim(one);
  names.release(two);
  assert.equal(names.claim(two), one.uid);
});
