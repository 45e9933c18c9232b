import assert from "node:assert/strict";
import { test } from "node:test";
import { runConfined } from "./load-component.ts";

const run = (body: string): unknown => runConfined(`"use strict";\n${body}`, "test.js");

test("only the language's own global names are visible", () => {
  const names = [
    "process",
    "require",
    "module",
    "global",
    "Buffer",
    "fetch",
    "setTimeout",
    "queueMicrotask",
    "navigator",
  ];
  assert.deepEqual(
    run(`return [${names.map((name) => `typeof ${name}`).join(", ")}]`),
    names.map(() => "undefined"),
  );
  assert.equal(run("return typeof globalThis.process"), "undefined");
  assert.equal(run("return (function () { return this; })()"), undefined);
  assert.deepEqual(run("return Object.keys(globalThis)"), ["WebAssembly"]);
});

test("the glue has the global names that it needs", () => {
  assert.equal(run("return new WebAssembly.Global({ value: 'i32', mutable: true }, 1).value"), 1);
  assert.equal(run("return new TextDecoder().decode(new TextEncoder().encode('ü'))"), "ü");
  assert.equal(run("console.error('nobody reads this'); return globalThis.WebAssembly === WebAssembly"), true);
});
