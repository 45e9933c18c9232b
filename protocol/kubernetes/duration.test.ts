import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { millis } from "../ports.ts";
import { formatDuration, parseDuration } from "./duration.ts";

for (const [text, ms] of [
  ["0", 0],
  ["0s", 0],
  ["20s", 20_000],
  ["1m30s", 90_000],
  ["1h0m0s", 3_600_000],
  ["1.5h", 5_400_000],
  [".5s", 500],
  ["5.s", 5000],
  ["300ms", 300],
  ["10us", 0.01],
  ["10µs", 0.01],
  ["1ns", 1e-6],
  ["-1.5m", -90_000],
  ["+2s", 2000],
  ["2562047h", 9_223_369_200_000],
] as const) {
  test(`${text} is ${ms} ms`, () => assert.equal(parseDuration(text), ms));
}

for (const text of [
  "",
  "20",
  "s",
  "1d",
  "1 s",
  " 1s",
  "1s ",
  "--1s",
  "1s-2s",
  ".s",
  "1e3s",
  "2562048h",
  "9".repeat(65),
]) {
  test(`${JSON.stringify(text.slice(0, 12))} is no duration`, () => assert.equal(parseDuration(text), undefined));
}

test("no text makes the parser throw or give anything but a finite number", () => {
  const similar = fc.string({ unit: fc.constantFrom(..."0123456789.+-hmsuµn ") });
  fc.assert(
    fc.property(fc.oneof(fc.string(), similar), (text) => {
      const parsed = parseDuration(text);
      assert.ok(parsed === undefined || Number.isFinite(parsed));
    }),
    { numRuns: 1000 },
  );
});

for (const [value, expected] of [
  [0, "0s"],
  [0.25, "250µs"],
  [1, "1ms"],
  [1.5, "1.5ms"],
  [999, "999ms"],
  [1500, "1.5s"],
  [60_000, "1m0s"],
  [90_100, "1m30.1s"],
  [3_600_000, "1h0m0s"],
  [-20_000, "-20s"],
] as const) {
  test(`${value} ms are written ${expected}, and read again`, () => {
    assert.equal(formatDuration(millis(value)), expected);
    assert.equal(parseDuration(expected), value);
  });
}
