import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDocument } from "yaml";
import { KUBERNETES_YAML } from "./kubernetes-yaml.ts";

const read = (text: string): unknown => parseDocument(text, KUBERNETES_YAML).toJS();

for (const [text, value] of [
  ["0644", 0o644],
  ["644", 644],
  ["yes", true],
  ["off", false],
  ['"yes"', "yes"],
  ["~", null],
  ["12:30", "12:30"],
  ["12:30.5", "12:30.5"],
  ["2026-01-31", "2026-01-31"],
  ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"],
  ["0x1F", 31],
  ["1e3", 1000],
  ["1.10", 1.1],
  ["100m", "100m"],
] as const) {
  test(`${text} is ${JSON.stringify(value)}`, () => assert.deepEqual(read(`a: ${text}`), { a: value }));
}

test("merge keys work", () => {
  assert.deepEqual(read("a: &a {x: 1}\nb: {<<: *a, z: 2}"), { a: { x: 1 }, b: { x: 1, z: 2 } });
});

test("a key that comes twice is an error", () => {
  assert.match(parseDocument("a: 1\na: 2", KUBERNETES_YAML).errors[0]?.message ?? "", /unique/);
});
