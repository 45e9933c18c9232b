/** An error that is ignored on purpose has one name, `ignore("why")`, so that all others are faults. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { sourceFilesOf } from "./source-tree.ts";

const NOTHING = String.raw`\(\w*\) => (?:undefined|null|void 0|\{\s*\}),?\s*\)`;
const FORMS: readonly RegExp[] = [
  new RegExp(String.raw`\.catch\(\s*${NOTHING}`),
  new RegExp(String.raw`\.then\([\w.]+,\s*${NOTHING}`),
  new RegExp(String.raw`\.(?:on|once)\(\s*"error",\s*${NOTHING}`),
  /\bcatch(?: \(\w+\))? \{\s*(?:\/\/[^\n]*\s*)*\}/,
];

const swallows = (source: string): readonly string[] => FORMS.flatMap((form) => form.exec(source)?.[0] ?? []);

test("an error is ignored by its name alone, with the reason", () => {
  const found = sourceFilesOf(".")
    .filter((path) => !/^test\/|\.test\.ts$/.test(path))
    .flatMap((path) => swallows(readFileSync(path, "utf8")).map((text) => `${path}: ${text}`));
  assert.deepEqual(found, [], 'write ignore("why") of @picolet/protocol/errors.ts');
});

test("every way to ignore an error without a reason is found", () => {
  for (const text of [
    "work.catch(() => undefined);",
    "work.catch(() => {});",
    "work.catch((_error) => {\n});",
    "work\n  .catch(\n    () => undefined,\n  );",
    "sleep().then(wake, () => undefined);",
    'socket.on("error", () => undefined);',
    "try { work(); } catch {\n  // It does not matter.\n}",
    "try { work(); } catch (error) {}",
  ])
    assert.equal(swallows(text).length, 1, text);
});

test("a reason, a value and a decision are left", () => {
  for (const text of [
    'work.catch(ignore("it is awaited below"));',
    "work.catch(() => 0);",
    "try { work(); } catch {\n  return undefined;\n}",
    'try { work(); } catch {\n  ignore("it has ended");\n}',
    'socket.on("close", () => undefined);',
  ])
    assert.deepEqual(swallows(text), [], text);
});
