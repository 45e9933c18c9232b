import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { unloadModules } from "./unload-modules.ts";

test("a module is unloaded with the files that only it needs, and can be loaded again; shared files stay the only copy", () => {
  using folder = new TemporaryFolder();
  const file = (name: string, text: string): void => writeFileSync(folder.file(name), text);
  file("main.cjs", 'exports.errors = require("./errors.cjs"); exports.load = (name) => require("./" + name);');
  file("errors.cjs", "exports.made = {};");
  file("parser.cjs", "exports.made = {};");
  file("schema.cjs", 'require("./parser.cjs"); exports.made = {};');
  file("two-words-A1B2.cjs", 'exports.errors = require("./errors.cjs"); exports.schema = require("./schema.cjs");');
  file("link-C3.cjs", 'exports.parser = require("./parser.cjs");');
  file("two-words-else-D4.cjs", "");
  const require = createRequire(folder.file("main.cjs"));
  const main = require(folder.file("main.cjs"));
  const part = main.load("two-words-A1B2.cjs");
  const { parser } = main.load("link-C3.cjs");
  main.load("two-words-else-D4.cjs");
  const loaded = (): string[] =>
    Object.keys(require.cache)
      .filter((path) => path.startsWith(folder.file("")))
      .map((path) => basename(path));
  assert.equal(loaded().length, 7);

  unloadModules("two-words", "not-loaded");
  assert.deepEqual(loaded().sort(), ["errors.cjs", "link-C3.cjs", "main.cjs", "parser.cjs", "two-words-else-D4.cjs"]);
  const anew = main.load("two-words-A1B2.cjs");
  assert.notEqual(anew.schema.made, part.schema.made);
  assert.equal(anew.errors, main.errors);

  unloadModules("link");
  assert.equal(require(folder.file("parser.cjs")), parser, "the schema still needs it");
  unloadModules("two-words", "two-words-else");
  assert.ok(!loaded().includes("schema.cjs") && loaded().includes("errors.cjs"));
});
