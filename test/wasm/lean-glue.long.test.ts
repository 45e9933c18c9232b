/** A call of the host leaves nothing behind. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import type { InstantiateComponent } from "@picolet/runtime-wasm/shared/component/load-component.ts";
import { SCRIPT_NAME } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { LoopWaiter } from "@picolet/runtime-wasm/shared/resources/event-loop.ts";
import { CHEAP } from "@picolet/runtime-wasm/transpile/cheap-patches.ts";
import { generatedFiles } from "@picolet/runtime-wasm/transpile/generated-files.ts";
import { asScript } from "@picolet/runtime-wasm/transpile/generated-script.ts";
import { patched } from "@picolet/runtime-wasm/transpile/glue-patch.ts";
import { SYNCHRONOUS } from "@picolet/runtime-wasm/transpile/synchronous-patches.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { JumpingLoop, looped } from "../support/unit/wasm/looped-component.ts";
import type { TestComponent } from "../support/wasm/components.ts";
import { type Glue, glueOf, loadedComponent } from "../support/wasm/loaded-component.ts";

const WARMING = 5_000;
const WAITS = 20_000;
/** Six bytes of each wait; what is measured of a sound one is a tenth of it. */
const MAX_GROWTH_BYTES = 128 * 1024;

async function run(instantiate: InstantiateComponent, loop: JumpingLoop, ...args: readonly string[]): Promise<unknown> {
  const { exports, outcome } = looped(instantiate, new LoopWaiter(loop), args);
  (exports["wasi:cli/run@0.2.3"] as { run(): void }).run();
  return outcome();
}

test("a wait leaves nothing behind", async () => {
  const instantiate = await loadedComponent("waits.c");
  const loop = new JumpingLoop();
  assert.equal(await run(instantiate, loop, "wait", String(WARMING)), 0);
  const before = (await settledMemory()).heap;
  assert.equal(await run(instantiate, loop, "wait", String(WAITS)), 0);
  const grown = (await settledMemory()).heap - before;
  assert.equal(loop.waits, WARMING + WAITS);
  // jco's own glue keeps 2 KiB of each.
  assert.ok(grown < MAX_GROWTH_BYTES, `the heap has grown by ${grown} bytes`);
});

/** The glue of an example, made in this process, which takes a fifth of a transpiler process. */
async function exampleGlue(path: string): Promise<Glue> {
  const files = await generatedFiles(readFileSync(path));
  const [, source] = files.find(([name]) => name === SCRIPT_NAME) ?? [];
  return asScript(Buffer.from(source ?? []).toString("utf8"));
}

/** Checks that the report is true. */
function isLean({ script, isLean: told }: Glue, name: string): boolean {
  assert.equal(told, !/AsyncTask|task\./.test(script) || script.includes("picolet:async"), name);
  return told;
}

test("no component keeps what jco made of it", async () => {
  const sources = readdirSync("test/components").filter(
    (name) => !/\.(h|wit)$/.test(name) && name !== "hostile-name.wat",
  ) as TestComponent[];
  assert.ok(sources.length > 15);
  for (const source of sources) assert.ok(isLean(await glueOf(source), source), source);
  const examples = ["hello", "beat", "starts"].map((name) => `dist/examples/${name}.wasm`);
  for (const path of examples.filter((each) => existsSync(each))) {
    assert.ok(isLean(await exampleGlue(path), path), path);
  }
});

test("what costs something in each call is left in the glue of no component of WASI 0.2", async () => {
  for (const source of ["workload.c", "net.c", "http-server.c", "http-client.c", "board.c", "files.c"] as const) {
    const { script } = await glueOf(source);
    assert.doesNotMatch(
      script,
      /captureTable\d+ ?= new Map|_createdReps|curResourceBorrows|\bmemory\d+\.buffer/,
      source,
    );
    assert.match(script, /captureTable\d+ = new Captured\(\)/, source);
  }
});

test("the glue sees a memory that has grown, and one of two", () => {
  const { text: glue } = patched(
    `function instantiate(a, b) {
let dv = new DataView(new ArrayBuffer());
const dataView = mem => dv.buffer === mem.buffer ? dv : dv = new DataView(mem.buffer);
const memory0 = a, memory1 = b;
return [(at, value) => dataView(memory0).setInt8(at, value), at => new Uint8Array(memory1.buffer)[at]];
}
`,
    CHEAP,
  );
  assert.doesNotMatch(glue, /memory\d\.buffer/);
  type Memory = { grow(pages: number): number; readonly buffer: ArrayBuffer };
  const { Memory } = WebAssembly as unknown as { Memory: new (type: { initial: number }) => Memory };
  const [one, other] = [new Memory({ initial: 0 }), new Memory({ initial: 1 })];
  const [set, get] = new Function(`${glue}return instantiate;`)()(one, other) as [
    (at: number, value: number) => void,
    (at: number) => number | undefined,
  ];
  for (const at of [0, 65_536, 131_072]) {
    one.grow(1);
    set(at, 5);
    assert.equal(new Uint8Array(one.buffer)[at], 5);
    assert.equal(get(at), at === 0 ? 0 : undefined);
  }
  other.grow(1);
  assert.equal(get(65_536), 0);
});

test("glue that keeps numbers, or lends, in another way than is known stays as it is", () => {
  for (const text of [
    "function instantiate(a) {\nlet curResourceBorrows = [];\ncurResourceBorrows.push({ rsc: a, drop });\n}\n",
    "function instantiate(a) {\ntable._createdReps.add(rep);\nreturn table._createdReps.has(1);\n}\n",
  ])
    assert.equal(patched(text, CHEAP).text, text);
});

test("a component with forms that are not known keeps what jco made of it", () => {
  const task = "function instantiate(a) {\nlet gen= (function* _initGenerator () {\ntask.exit();\n})();\n}";
  assert.equal(patched(task, SYNCHRONOUS).outcome, "leave list");
  assert.equal(patched("function instantiate(a) {\nreturn a;\n}", SYNCHRONOUS).outcome, "leave list");
  const unfinished = "function instantiate(a) {\nconst b = (1;\nlet gen= (function* _initGenerator () {\n})();\n}";
  assert.equal(patched(unfinished, SYNCHRONOUS).outcome, "leave list");
});
