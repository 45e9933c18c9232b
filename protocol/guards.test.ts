import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { errnoOf, isRecord } from "./guards.ts";

test("an object of JSON is neither null nor a list nor a scalar", () => {
  assert.deepEqual([{}, { a: 1 }, null, undefined, [], "text", 1].map(isRecord), [
    ...[true, true, false, false, false, false, false],
  ]);
});

test("errnoOf gives the code of a system call's error, and an empty text without one", () => {
  assert.throws(
    () => readFileSync("/nowhere/at/all"),
    (error: unknown) => errnoOf(error) === "ENOENT",
  );
  for (const none of [new Error("plain"), { code: "ENOENT" }, Object.assign(new Error("exit"), { code: 1 }), undefined])
    assert.equal(errnoOf(none), "");
});
