import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { SCRIPT_NAME } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { generatedFiles } from "@picolet/runtime-wasm/transpile/generated-files.ts";
import { asScript } from "@picolet/runtime-wasm/transpile/generated-script.ts";
import { keepHandles } from "@picolet/runtime-wasm/transpile/kept-handles.ts";
import { testComponent } from "@picolet/test/support/wasm/components.ts";

async function jcosText(): Promise<string> {
  const files = await generatedFiles(readFileSync(await testComponent("wasi-atomics.c")));
  const [, source] = files.find(([name]) => name === SCRIPT_NAME) ?? [];
  return Buffer.from(source ?? []).toString("utf8");
}

/** The glue of one import. */
const callOf = (text: string, name: string): string => {
  const end = text.indexOf(`.fnName = '${name}'`);
  return text.slice(text.lastIndexOf("= function(", end), end);
};

const SWAP = "wasi:keyvalue/atomics@0.2.0-draft2#swap";

test("a handle that a function takes and waits with is taken out of the table after the call, and no other is", async () => {
  const text = (await jcosText()).replace(/^[ \t]+/gm, "");
  const kept = keepHandles(text) ?? "";
  const before = callOf(text, SWAP);
  const after = callOf(kept, SWAP);
  const [taken, called] = [/^rscTableRemove\(/m, /=> swap\(/];
  assert.ok(before.search(taken) < before.search(called), "jco's own takes it before");
  assert.ok(after.search(taken) > after.search(called), "it is taken after");
  assert.match(
    after,
    /^captureTable\d+\.delete\(rep\d+\);\nrscTableRemove\(handleTable\d+, handle\d+\);\nvar variant\d+ = ret;$/m,
  );
  assert.equal(kept.replace(after, before), text, "nothing else is another");
});

test("a component whose glue has another form there is not made runnable: its swap would fail after a wait", async () => {
  const text = await jcosText();
  assert.doesNotThrow(() => asScript(text));
  for (const other of [
    text.replaceAll("rscTableRemove(", "rscTableRemoved("),
    text.replaceAll(/var variant\d+ = ret;/g, "const variant = ret;"),
    text.replaceAll("const _trampoline", "var _trampoline"),
  ]) {
    assert.throws(() => asScript(other), /a call that takes a handle has changed its form/);
  }
});
