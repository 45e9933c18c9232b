import assert from "node:assert/strict";
import { test } from "node:test";
import { ageOf, humanDuration } from "./age.ts";

const MINUTE = 60;
const HOUR = 3600;
const DAY = 24 * HOUR;

const CASES: readonly (readonly [number, string])[] = [
  [-5, "<invalid>"],
  [-1, "0s"],
  [0, "0s"],
  [119, "119s"],
  [2 * MINUTE, "2m"],
  [9 * MINUTE + 59, "9m59s"],
  [10 * MINUTE + 59, "10m"],
  [3 * HOUR - 1, "179m"],
  [3 * HOUR, "3h"],
  [7 * HOUR + 5 * MINUTE, "7h5m"],
  [47 * HOUR, "47h"],
  [2 * DAY, "2d"],
  [7 * DAY + 23 * HOUR, "7d23h"],
  [8 * DAY, "8d"],
  [729 * DAY, "729d"],
  [2 * 365 * DAY + DAY, "2y1d"],
  [9 * 365 * DAY, "9y"],
];

for (const [seconds, text] of CASES) {
  test(`${seconds} s are ${text}`, () => assert.equal(humanDuration(seconds * 1000), text));
}

test("the age of what has no time is unknown", () => {
  const now = new Date("2026-01-01T00:01:00Z");
  assert.equal(ageOf(undefined, now), "<unknown>");
  assert.equal(ageOf(null, now), "<unknown>");
  assert.equal(ageOf("2026-01-01T00:00:00Z", now), "60s");
});
