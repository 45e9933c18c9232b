import assert from "node:assert/strict";
import { test } from "node:test";
import { goDuration } from "./go-duration.ts";

test("durations read as Go writes them", () => {
  const cases: readonly (readonly [number, string])[] = [
    [0, "0s"],
    [0.9, "0s"],
    [-5, "0s"],
    [87.6, "87ms"],
    [1000, "1s"],
    [1500, "1.5s"],
    [60_000, "1m0s"],
    [62_345, "1m2.345s"],
    [3_600_000, "1h0m0s"],
    [90_061_001, "25h1m1.001s"],
  ];
  for (const [milliseconds, text] of cases) assert.equal(goDuration(milliseconds), text);
});
