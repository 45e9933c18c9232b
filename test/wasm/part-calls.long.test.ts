/**
 * Calls between the parts of a component, in jco's own glue and in what is made of it: they mean the same, and leave
 * nothing.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DenseWaiter, Turns } from "@picolet/runtime-wasm/dense/turns.ts";
import type { InstantiateComponent } from "@picolet/runtime-wasm/shared/component/load-component.ts";
import { SCRIPT_NAME } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { LoopWaiter } from "@picolet/runtime-wasm/shared/resources/event-loop.ts";
import { generatedFiles } from "@picolet/runtime-wasm/transpile/generated-files.ts";
import { patched } from "@picolet/runtime-wasm/transpile/glue-patch.ts";
import { SYNCHRONOUS } from "@picolet/runtime-wasm/transpile/synchronous-patches.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { JumpingLoop, looped, unlooped } from "../support/unit/wasm/looped-component.ts";
import { type TestComponent, testComponent } from "../support/wasm/components.ts";
import { loadedComponent } from "../support/wasm/loaded-component.ts";

/** As `parts.wat` has them. */
const WAITS = 1;
const FAILS = 2;
const ASKS_WHILE_CLEANING_UP = 4;

const WARMING = 5_000;
const CALLS = 20_000;
/** Six bytes a call; jco's own glue keeps kilobytes. */
const MAX_GROWTH_BYTES = 128 * 1024;

/** Warms up JavaScript, which takes a hundred times as long. */
const SCRIPT_WARMING = 2_000;
const SCRIPT_CALLS = 8_000;

type Spin = (count: number, how: number) => number;

/** jco's output, as the rewriting gets it. */
async function generated(source: TestComponent): Promise<{ files: Map<string, Uint8Array>; text: string }> {
  const files = new Map(await generatedFiles(readFileSync(await testComponent(source))));
  const text = Buffer.from(files.get(SCRIPT_NAME) ?? [])
    .toString("utf8")
    .replace(/^[ \t]+/gm, "")
    .replace(/^export (?=function)/m, "")
    .replace(/^export const _util = \{[\s\S]*?^\};?/m, "");
  return { files, text };
}

/** In the glue that jco made. */
async function ownGlue(source: TestComponent = "parts.wat"): Promise<InstantiateComponent> {
  const { files, text } = await generated(source);
  const instantiate = new Function(`${text}\nreturn instantiate;`)();
  return (imports) => instantiate((name: string) => new WebAssembly.Module(files.get(name) as Uint8Array), imports);
}

const spinOf = (instantiate: InstantiateComponent): Spin =>
  unlooped(instantiate, new JumpingLoop(123_456_789n)).spin as Spin;

for (const [name, glue] of [
  ["jco's own glue", ownGlue],
  ["what is made of it", () => loadedComponent("parts.wat")],
] as const) {
  test(`each part has a context of its own in ${name}`, async () => {
    const spin = spinOf(await glue());
    for (const count of [0, 1, 3]) assert.equal(spin(count, 0), count);
  });

  test(`nothing calls the host while it cleans up after its result in ${name}`, async () => {
    const spin = spinOf(await glue());
    assert.throws(() => spin(1, ASKS_WHILE_CLEANING_UP), /cannot leave component instance/);
  });
}

test("after a call within a call that trapped, the next begins anew", async () => {
  const spin = spinOf(await loadedComponent("parts.wat"));
  for (let round = 0; round < 3; round += 1) {
    assert.throws(() => spin(2, FAILS), WebAssembly.RuntimeError);
    assert.equal(spin(2, 0), 2);
  }
});

test("calls between parts leave nothing behind", async () => {
  const spin = spinOf(await loadedComponent("parts.wat"));
  assert.equal(spin(WARMING, 0), WARMING);
  const before = (await settledMemory()).heap;
  assert.equal(spin(CALLS, 0), CALLS);
  for (let call = 0; call < CALLS; call += 1) spin(1, 0);
  for (let call = 0; call < CALLS; call += 1) assert.throws(() => spin(1, FAILS));
  const grown = (await settledMemory()).heap - before;
  assert.ok(grown < MAX_GROWTH_BYTES, `the heap has grown by ${grown} bytes`);
});

async function spun(instantiate: InstantiateComponent, loop: JumpingLoop, count: number, how: number): Promise<number> {
  const { exports, outcome } = looped(instantiate, new LoopWaiter(loop));
  (exports.spin as Spin)(count, how);
  return (await outcome()) as number;
}

test("waits within calls between parts leave nothing behind", async () => {
  const instantiate = await loadedComponent("parts.wat");
  const loop = new JumpingLoop();
  assert.equal(await spun(instantiate, loop, WARMING, WAITS), WARMING);
  const before = (await settledMemory()).heap;
  assert.equal(await spun(instantiate, loop, CALLS, WAITS), CALLS);
  const grown = (await settledMemory()).heap - before;
  assert.equal(loop.waits, WARMING + CALLS);
  assert.ok(grown < MAX_GROWTH_BYTES, `the heap has grown by ${grown} bytes`);
});

test("contexts of instances whose stacks are set aside in turns do not mix, also where one of them traps", async () => {
  const instantiate = await loadedComponent("parts.wat");
  // Each wait ends in another turn, so that every stack is set aside while all others run.
  const loops = [1n, 2n, 3n].map((part) => new JumpingLoop(part << 24n, (act) => setImmediate(act)));
  const runs = loops.map((loop) => spun(instantiate, loop, 200, WAITS));
  const failing = loops.map((loop) => spun(instantiate, loop, 1, WAITS | FAILS));
  for (const each of failing) await assert.rejects(each, WebAssembly.RuntimeError);
  assert.deepEqual(await Promise.all(runs), [200, 200, 200]);
});

/** Takes turns by a clock of which two looks are a slice: every second call of the host sets the stack aside. */
function crowded(): (id: string) => DenseWaiter {
  const running: string[] = [];
  let nowMs = 0;
  const now = (): number => (nowMs += 6);
  const turns = new Turns({ now, soon: (task) => void setImmediate(task), onTurn: (id) => void running.push(id) });
  return (id) => new DenseWaiter(id, new JumpingLoop(BigInt(id) << 24n), turns);
}

test("contexts do not mix where components take turns at each call of the host", async () => {
  const instantiate = await loadedComponent("parts.wat");
  const waiterOf = crowded();
  const runs = ["1", "2", "3"].map(async (id) => {
    const { exports, outcome } = looped(instantiate, waiterOf(id));
    (exports.spin as Spin)(100, id === "2" ? WAITS : 0);
    return outcome();
  });
  assert.deepEqual(await Promise.all(runs), [100, 100, 100]);
});

test("an instance that trapped while its stack was set aside begins its next call anew", async () => {
  const { exports, outcome } = looped(await loadedComponent("parts.wat"), new LoopWaiter(new JumpingLoop(1n << 24n)));
  const spin = exports.spin as Spin;
  spin(1, WAITS | FAILS);
  await assert.rejects(outcome() as Promise<unknown>, WebAssembly.RuntimeError);
  spin(3, WAITS);
  assert.equal(await outcome(), 3);
});

test("glue that calls between parts in another way than is known stays as it is", async () => {
  const { text } = await generated("parts.wat");
  assert.equal(patched(text, SYNCHRONOUS).outcome, "whole");
  const others = [
    [/= _symmetricSyncGuestCallEnter;/, "= _conditional(_symmetricSyncGuestCallEnter);"],
    [/= _symmetricSyncGuestCallExit;/, "= _symmetricSyncGuestCallExit.bind(null);"],
    [/contextGet\.bind\(null, \{/, "contextGet.bind(null, { isShared: true,"],
    [/slot: 0 \}/, "slot: 2 }"],
    [/cstate\.mayLeave = true;/, "cstate.mayLeave = cstate.could;"],
    [/entryFnName: '<initialize>'/, "entryFnName: '<other>'"],
    [/_guardMayLeave\(\d+,|_suspendingImport\(\d+,/g, (all: string) => all.replace(/\d+/, "77")],
    [/^flags: \{$/m, "mayBlock: CURRENT_TASK_MAY_BLOCK,\nflags: {"],
  ] as const;
  for (const [form, by] of others) {
    const other = text.replace(form, by as string);
    assert.notEqual(other, text, String(form));
    assert.equal(patched(other, SYNCHRONOUS).outcome, "leave list", String(form));
  }
});

/** Exports of `calls.js` beside `run`. */
interface Calls {
  readonly lists: {
    readonly Counter: new (start: number) => { add(by: number): number; names(): string[] };
    echo(points: readonly object[], choice?: object): unknown;
    nothing(): void;
  };
  shout(text: string): string;
  fail(text: string): void;
}

for (const [name, glue] of [
  ["jco's own glue", () => ownGlue("calls.js")],
  ["what is made of it", () => loadedComponent("calls.js")],
] as const) {
  test(`a component of JavaScript takes and gives in ${name}`, async () => {
    const { lists, shout, fail } = unlooped(await glue()) as unknown as Calls;
    assert.equal(shout("h\u00e9llo"), "h\u00e9llo!");
    const [points, text, bytes] = [
      [
        { x: 1, label: "one" },
        { x: 2, label: "two" },
      ],
      { tag: "text", val: "chosen" },
      { tag: "bytes", val: Uint8Array.of(1, 2) },
    ];
    assert.deepEqual(lists.echo(points, text), [points.toReversed(), text]);
    assert.deepEqual(lists.echo(points, bytes), [points.toReversed(), bytes]);
    assert.deepEqual(lists.echo(points), [points.toReversed(), undefined]);
    assert.throws(() => lists.echo([]), /there are no points/);
    lists.nothing();
    const counter = new lists.Counter(3);
    assert.equal(counter.add(4), 7);
    assert.deepEqual(counter.names(), ["7", "counter"]);
    assert.throws(() => fail("no"), WebAssembly.RuntimeError);
  });
}

test("calls of exports in JavaScript leave nothing behind", async () => {
  const { lists, shout } = unlooped(await loadedComponent("calls.js")) as unknown as Calls;
  const points = [{ x: 1, label: "one" }];
  const call = (times: number): void => {
    for (let left = times; left > 0; left -= 1) {
      shout("hello");
      lists.echo(points);
      assert.throws(() => lists.echo([]));
    }
  };
  call(SCRIPT_WARMING);
  const before = (await settledMemory()).heap;
  call(SCRIPT_CALLS);
  const grown = (await settledMemory()).heap - before;
  assert.ok(grown < MAX_GROWTH_BYTES, `the heap has grown by ${grown} bytes`);
});

async function called(
  instantiate: InstantiateComponent,
  waiter: LoopWaiter,
  what: string,
  times: number,
): Promise<void> {
  const { exports, outcome } = looped(instantiate, waiter, [what, String(times)]);
  (exports["wasi:cli/run@0.2.12"] as { run(): void }).run();
  assert.equal(await outcome(), 0);
}

for (const [where, waiterOf] of [
  ["by itself", () => new LoopWaiter(new JumpingLoop())],
  ["beside others", () => crowded()("1")],
] as const) {
  for (const what of ["now", "wait", "print"]) {
    test(`calls of the host (${what}) in JavaScript leave nothing behind ${where}`, async () => {
      const instantiate = await loadedComponent("calls.js");
      await called(instantiate, waiterOf(), what, SCRIPT_WARMING);
      const before = (await settledMemory()).heap;
      await called(instantiate, waiterOf(), what, SCRIPT_CALLS);
      const grown = (await settledMemory()).heap - before;
      assert.ok(grown < MAX_GROWTH_BYTES, `the heap has grown by ${grown} bytes`);
    });
  }
}
