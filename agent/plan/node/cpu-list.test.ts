import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseCpuList } from "./cpu-list.ts";

for (const [text, expected] of [
  ["", []],
  ["0", [0]],
  ["0-3", [0, 1, 2, 3]],
  ["5,0-2,1", [0, 1, 2, 5]],
  ["8191", [8191]],
  ["8192", undefined],
  ["3-1", undefined],
  ["1,", undefined],
  ["-1", undefined],
  ["a", undefined],
  ["0 1", undefined],
] as const) {
  test(`the list ${JSON.stringify(text)}`, () => assert.deepEqual(parseCpuList(text), expected));
}

test("no text makes it throw, and what it finds is ascending", () => {
  const parts = fc.array(fc.oneof(fc.nat(9000).map(String), fc.constantFrom("-", ",", "1-2", " ")), { maxLength: 9 });
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        parts.map((each) => each.join("")),
      ),
      (text) => {
        const cpus = parseCpuList(text) ?? [];
        for (const [index, cpu] of cpus.entries()) assert.ok(index === 0 || cpu > (cpus[index - 1] ?? -1));
      },
    ),
  );
});
