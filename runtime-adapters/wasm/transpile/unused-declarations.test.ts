import assert from "node:assert/strict";
import { test } from "node:test";
import { removeUnused, statements } from "./unused-declarations.ts";

const names = (source: string): (string | undefined)[] =>
  statements(source)
    .filter(({ text }) => text.trim() !== "")
    .map(({ declares }) => declares);
const kept = (source: string, rest: string): string =>
  removeUnused(statements(source), rest)
    .map(({ text }) => text)
    .join("");

test("a text is divided into its statements, with any content", () => {
  const source = [
    "const a = { b: [1, (2)], c: ';' };",
    "function d(x = '}') { return `$" + "{x + `}$" + "{'`'}`}` /* } */; }",
    "async function e() { // it's }\n}",
    'class F { "}"() { return /[}\'"]\\/;/.test("\\""); } }',
    "let g = a / 2; let h = (a) / 2 / 1;",
    "if (a) { g = 1; }\nh.i = () => { };",
  ].join("\n");
  assert.deepEqual(names(source), ["a", "d", "e", "F", "g", "h", undefined]);
  assert.equal(kept(source, "a d e F g h"), source);
});

test("unused declarations are removed, those that a kept one mentions are not", () => {
  const source =
    "const a = 1;\nfunction b() { return a; }\nfunction c() { return d(); }\nfunction d() { return c(); }\n";
  assert.equal(kept(source, "b();"), "const a = 1;\nfunction b() { return a; }\n");
  assert.equal(kept(source, ""), "\n");
  assert.equal(kept(source, "call('c')"), "\nfunction c() { return d(); }\nfunction d() { return c(); }\n");
});

test("a statement that does something stays, with what it needs", () => {
  assert.equal(kept("const a = new Map();\nconst b = 2;\na.set(1, 2);", ""), "const a = new Map();\na.set(1, 2);");
});

test("text that is no whole program is refused", () => {
  for (const broken of ["(", ")", "'a", "`${a", "/* a", "a = '\n'"]) {
    assert.throws(() => statements(broken), RangeError, broken);
  }
});
