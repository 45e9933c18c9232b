/**
 * Each patch of jco's glue matches the text of the installed jco, and is reported by its name where it does not match.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { SCRIPT_NAME } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { generatedFiles } from "@picolet/runtime-wasm/transpile/generated-files.ts";
import { asScript, GLUE_PATCHES, type GluePatches } from "@picolet/runtime-wasm/transpile/generated-script.ts";
import { type GluePatch, patched } from "@picolet/runtime-wasm/transpile/glue-patch.ts";
import { type TestComponent, testComponent } from "@picolet/test/support/wasm/components.ts";

type List = keyof GluePatches;

/**
 * Together they contain all that the patches change: a handle that is given away, several parts, a list as a result,
 * streams, futures.
 */
const SYNCHRONOUS: readonly TestComponent[] = ["wasi-atomics.c", "http-server.c", "parts.wat"];
const ASYNCHRONOUS: readonly TestComponent[] = ["async-client.c"];
const SPECIMENS: Readonly<Record<List, readonly TestComponent[]>> = {
  entry: SYNCHRONOUS,
  synchronous: SYNCHRONOUS,
  cheap: SYNCHRONOUS,
  asynchronous: ASYNCHRONOUS,
};
/** Patches that only check, each with a text that it must refuse. */
const GUARDS: Readonly<Record<string, string>> = {
  "streams from one part to another": "function streamTransfer(args) {\n}\n",
  "what is left of tasks": "task.exit();\n",
};

const generated = new Map<TestComponent, string>();

before(async () => {
  for (const name of [...SYNCHRONOUS, ...ASYNCHRONOUS]) {
    const files = await generatedFiles(readFileSync(await testComponent(name)));
    const [, source] = files.find(([file]) => file === SCRIPT_NAME) ?? [];
    generated.set(name, Buffer.from(source ?? []).toString("utf8"));
  }
});

/** A patch that jco's text has no place for any more. */
const lost = (patch: GluePatch): GluePatch =>
  "apply" in patch ? { ...patch, apply: () => undefined } : { ...patch, form: /(?!)/ };

/** The text that a patch of a list gets. */
function textBefore(list: List, patch: GluePatch, source: string): string {
  const { entry, synchronous } = GLUE_PATCHES;
  const earlier = list === "entry" ? [] : list === "cheap" ? [...entry, ...synchronous] : entry;
  const own: readonly GluePatch[] = GLUE_PATCHES[list];
  return patched(source, [...earlier, ...own.slice(0, own.indexOf(patch))]).text;
}

function specimenOf(list: List, patch: GluePatch): string | undefined {
  return SPECIMENS[list]
    .map((name) => generated.get(name) ?? "")
    .find((source) => {
      const text = textBefore(list, patch, source);
      return patched(text, [patch]).text !== text;
    });
}

for (const list of Object.keys(GLUE_PATCHES) as List[]) {
  for (const patch of GLUE_PATCHES[list] as readonly GluePatch[]) {
    const guarded = GUARDS[patch.name];
    test(`${list}: ${patch.name}: ${guarded === undefined ? "jco writes what it changes" : "refused where it is"}`, () => {
      if (guarded === undefined) {
        assert.notEqual(specimenOf(list, patch), undefined, "jco has changed its form: the patch finds no place");
      } else assert.deepEqual(patched(guarded, [patch]).missed, [patch.name]);
    });

    test(`${list}: ${patch.name}: missed by its name where jco writes something else, which leads to: ${patch.onMiss}`, () => {
      const source = specimenOf(list, patch) ?? generated.get(SPECIMENS[list][0] as TestComponent) ?? "";
      const all = GLUE_PATCHES[list] as readonly GluePatch[];
      const without = { ...GLUE_PATCHES, [list]: all.map((each) => (each === patch ? lost(patch) : each)) };
      if (patch.onMiss === "refuse") {
        assert.throws(() => asScript(source, without), {
          code: "failed",
          message: new RegExp(`${patch.name}.* has changed its form`),
        });
        return;
      }
      const { isLean, missed, script } = asScript(source, without);
      assert.ok(missed.includes(patch.name), missed.join(", "));
      assert.equal(isLean, patch.onMiss === "leave patch");
      // A list that is left out is left out whole.
      if (!isLean)
        assert.equal(script, asScript(source, { ...GLUE_PATCHES, synchronous: NONE, asynchronous: NONE }).script);
    });
  }
}

const NONE: readonly GluePatch[] = [
  { name: "none", why: "nothing is to be changed", onMiss: "leave list", apply: () => undefined },
];

test("every patch has a name of its own within its list, and gives its reason", () => {
  for (const patches of Object.values(GLUE_PATCHES) as (readonly GluePatch[])[]) {
    assert.equal(new Set(patches.map(({ name }) => name)).size, patches.length);
    for (const { why } of patches) assert.ok(why.length > 10, why);
  }
});

test("nothing is missed in what the installed jco writes", () => {
  for (const [name, source] of generated) {
    const { isLean, missed } = asScript(source);
    assert.deepEqual({ isLean, missed }, { isLean: true, missed: [] }, name);
  }
});
