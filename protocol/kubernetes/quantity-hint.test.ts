import assert from "node:assert/strict";
import { test } from "node:test";
import { parseQuantity } from "./quantity.ts";
import { unitHint } from "./quantity-hint.ts";

for (const [text, meant] of [
  ["64MB", ["64M", "64Mi"]],
  ["64mb", ["64M", "64Mi"]],
  ["64 M", ["64M", "64Mi"]],
  ["1.5GB", ["1.5G", "1.5Gi"]],
  ["64K", ["64k", "64Ki"]],
  ["64MiB", ["64Mi"]],
  ["64mi", ["64Mi"]],
  ["64 bytes", ["64"]],
  ["64B", ["64"]],
  ["lots", []],
  ["", []],
  ["64Mx", []],
  [64, []],
  [`${"9".repeat(100_000)}MB`, []],
] as const) {
  test(`${String(text).slice(0, 20)} was meant to be ${meant.join(" or ") || "unknown"}`, () => {
    const hint = unitHint(text);
    const quoted = [...hint.matchAll(/"([^"]*)"/g)].map(([, each]) => each ?? "");
    assert.deepEqual(quoted, meant);
    for (const each of quoted) assert.ok(parseQuantity(each).ok, each);
  });
}

test("a hint says how far apart both are", () => {
  assert.equal(unitHint("64MB"), '; did you mean "64M" (10^6) or "64Mi" (2^20)?');
});
