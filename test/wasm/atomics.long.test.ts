/**
 * wasi:keyvalue/atomics of the second draft: real components in real processes, with the agent's own store behind them.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { type TestContext, test } from "node:test";
import { KeyvalueService } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { type BoardService, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { WasmPod } from "../support/wasm/wasm-runtime.ts";

const MODES = ["isolated", "dense"] as const;
type Mode = (typeof MODES)[number];

interface AtomicsBench extends WasmBench {
  /** As the agent's successor finds it. */
  reopen(): void;
  /** The names of the calls that reach the store. */
  readonly calls: string[];
}

/** @param answer given a call instead of the store where it returns something */
async function bench(context: TestContext, answer: (method: string) => void = () => undefined): Promise<AtomicsBench> {
  let store: KeyvalueService | undefined;
  const calls: string[] = [];
  const keyvalue: BoardService = {
    call: async (peer, method, request) => {
      calls.push(method);
      answer(method);
      assert.ok(store);
      return await store.call(peer, method, request);
    },
  };
  const made = await wasmBench(context, { services: { keyvalue: () => keyvalue } });
  const reopen = (): void => {
    store?.[Symbol.dispose]();
    const ports = { clock: systemClock, log: new RecordedLog(), namedBy: () => [], isClockSet: () => true };
    const onDamage = (): never => assert.fail("damaged");
    store = new KeyvalueService({ ...ports, onDamage }, { path: made.runtime.folder.at("keyvalue.db") });
  };
  reopen();
  context.after(() => store?.[Symbol.dispose]());
  return { ...made, pod: made.pod, calls, reopen };
}

const podOf = (made: WasmBench, mode: Mode, quota = "b=1Mi"): Promise<WasmPod> =>
  made.pod("wasi-atomics.c", {
    name: randomUUID(),
    annotations: {
      "wasm.picolet.io/interfaces": "keyvalue",
      "wasm.picolet.io/keyvalue": quota,
      "wasm.picolet.io/mode": mode,
    },
  });

/** The component's output for these commands. */
async function said(made: WasmBench, mode: Mode, text: string, quota?: string): Promise<string[]> {
  await using pod = await podOf(made, mode, quota);
  const args = text.split(" ");
  const started = await pod.start({ args });
  const { exitCode, message } = await pod.exit(started.id);
  assert.equal(exitCode, 0, message);
  return await pod.text(started, 1);
}

for (const mode of MODES) {
  test(`a swap is done when the key holds what was seen, and else gives the next handle (${mode})`, async (context) => {
    const made = await bench(context);
    assert.deepEqual(await said(made, mode, "new k current swap one new k current swap two get k"), [
      ...["ok", "nothing", "swapped", "ok", "one", "swapped", "two"],
    ]);
    // Since the handle was made, whether its value was asked for or not; and once more with the handle that comes of
    // it.
    assert.deepEqual(await said(made, mode, "new k set k three swap four current swap four get k"), [
      ...["ok", "ok", "cas-failed", "three", "swapped", "four"],
    ]);
    // Since its value was asked for.
    assert.deepEqual(await said(made, mode, "new k set k five current swap six get k"), [
      "ok",
      "ok",
      "five",
      "swapped",
      "six",
    ]);
    assert.deepEqual(await said(made, mode, "new k delete k swap seven swap seven get k"), [
      ...["ok", "ok", "cas-failed", "swapped", "seven"],
    ]);
    assert.deepEqual(await said(made, mode, "new absent set absent x swap y drop new k drop"), [
      ...["ok", "ok", "cas-failed", "dropped", "ok", "dropped"],
    ]);
    assert.deepEqual(await said(made, mode, "add n 5 add n -7 get n add k 1 add n 9223372036854775807 add n 9"), [
      ...["5", "-2", "-2", "other: not-a-number", "9223372036854775805", "other: not-a-number"],
    ]);
    made.reopen();
    assert.deepEqual(await said(made, mode, "get k get n"), ["seven", "9223372036854775805"]);
  });

  test(`components that count at once lose nothing of each other's (${mode})`, async (context) => {
    const made = await bench(context);
    const times = 150;
    const pods = await Promise.all([1, 2, 3].map(() => podOf(made, mode)));
    const ends = await Promise.all(
      pods.map(async (pod) => {
        const started = await pod.start({ args: ["count", "n", String(times), "add", "m", "3"] });
        const { exitCode, message } = await pod.exit(started.id);
        assert.equal(exitCode, 0, message);
        return (await pod.text(started, 2))[0] ?? "";
      }),
    );
    assert.ok(
      ends.every((end) => end.startsWith(`counted ${times}, failed`)),
      ends.join("\n"),
    );
    assert.deepEqual(await said(made, mode, "get n get m"), [String(3 * times), "9"]);
  });
}

test("what the store refuses is said, and costs the handle", async (context) => {
  const made = await bench(context);
  const quota = "b=2Mi/2";
  const long = "x".repeat(1025);
  assert.deepEqual(
    await said(made, "isolated", `new ${long} add ${long} 1 size a 1048577 size a 1048576 size c 1048576`, quota),
    [...["other: bad-key", "other: bad-key", "other: too-large", "swapped", "other: quota-exceeded"]],
  );
  assert.deepEqual(await said(made, "isolated", "new a", "c=1Mi"), ["no-such-store"]);
});

test("a swap of which nobody knows whether it was done is not done again", async (context) => {
  const failing = { left: 0 };
  const made = await bench(context, (method) => {
    if (method !== "swap-observed" || failing.left === 0) return;
    failing.left -= 1;
    throw new ServiceRefusal("unavailable");
  });
  failing.left = 1;
  assert.deepEqual(await said(made, "isolated", "new k swap one new k swap two get k"), [
    ...["ok", "other: unavailable", "ok", "swapped", "two"],
  ]);
  assert.equal(made.calls.filter((method) => method === "swap-observed").length, 2);
});

for (const mode of MODES) {
  test(`a component that was given away its handle, or keeps too many, ends itself alone (${mode})`, async (context) => {
    const made = await bench(context);
    await using hoarder = await podOf(made, mode);
    const hoards = await hoarder.start({ args: ["hoard", "k"] });
    const full = await hoarder.exit(hoards.id);
    assert.equal(full.exitCode, 1);
    assert.match(full.message, /^wasm trap: the component holds more than 1024 handles of compare-and-swap at once$/);
    await using cheat = await podOf(made, mode);
    const cheats = await cheat.start({ args: ["new", "k", "swap", "one", "swap", "two"] });
    const caught = await cheat.exit(cheats.id);
    assert.equal(caught.exitCode, 1);
    assert.match(caught.message, /^wasm trap: unknown handle index/);
    // Nor was it carried out before that was seen.
    assert.deepEqual(await said(made, mode, "get k"), ["one"]);
  });
}
