/** Garbage collection of components: real ones, with what was transpiled of them. */
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { ImageCollector } from "@picolet/agent/images/image-collector.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { TRANSPILER_VERSION } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { MemoryDesiredStore } from "../support/unit/store/memory-desired-store.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const { signal } = new AbortController();
const USED = "localhost/workload:1";
const UNUSED = "localhost/exit-42:1";
const MOVED = "localhost/moved:1";

test("what nothing is made of goes with its transpiled code; what runs stays, named or not", async (context) => {
  const runtime = await WasmRuntime.create();
  const adapter = runtime.adapter();
  const store = new Store({ clock: systemClock, log: new RecordedLog() }, { path: ":memory:" });
  context.after(async () => {
    await adapter[Symbol.asyncDispose]();
    await runtime[Symbol.asyncDispose]();
    await store[Symbol.asyncDispose]();
  });
  const [workload, short, other] = [
    await testComponent("workload.c"),
    await testComponent("exit-42.wat"),
    await testComponent("files.c"),
  ];
  for (const [path, name] of [
    [workload, USED],
    [short, UNUSED],
    [other, MOVED],
  ] as const)
    await adapter.images.import(path, name, signal);
  const running = await WasmPod.create(runtime, adapter, { name: "running", image: USED });
  const { id } = await running.start({ args: ["sleep"] });
  const over = await WasmPod.create(runtime, adapter, { name: "over", image: UNUSED });
  await over.exit((await over.start()).id);
  const [{ id: sandboxId } = { id: "" }] = (await adapter.inspect(over.desired.uid, signal)).sandboxes;
  await adapter.apply(over.desired, { kind: "removeSandbox", sandboxId }, signal);
  // The name of what runs is another one's now.
  await adapter.images.import(other, USED, signal);
  const transpiled = runtime.folder.at("root", "transpiled");
  const stale = `${"0".repeat(64)}-${TRANSPILER_VERSION}`;
  mkdirSync(`${transpiled}/${stale}`);
  writeFileSync(`${transpiled}/${stale}/component.js`, "");

  const collector = new ImageCollector(
    {
      adapters: [adapter],
      filesystems: async () => [],
      images: { isPinned: () => false, pulls: [], prefetches: [] },
      access: { forget: () => undefined },
      pods: () => [],
      desired: new MemoryDesiredStore().desired,
      isSettled: () => true,
      kept: store.kept,
      ...{ events: new RecordedEvents(), clock: systemClock, log: new RecordedLog() },
    },
    {
      nodeName: "edge-1",
      policy: {
        ...{ highThresholdPercent: 85, lowThresholdPercent: 80 },
        ...{ minimumAge: millis(0), maximumAge: millis(0) },
      },
    },
  );
  const sizes = new Map((await adapter.images.list(signal)).map((each) => [each.id, each.sizeBytes]));
  const holdings = await adapter.images.holdings?.(signal);
  assert.ok(holdings !== undefined);
  const { derivedBytes, used } = holdings;
  assert.equal(derivedBytes.size, 2);
  assert.equal(sizes.size, 3);
  assert.ok(!readdirSync(transpiled).includes(stale));
  const [usedId = ""] = used;
  const freed = await collector.deleteUnused(signal);
  const [left] = await adapter.images.list(signal);
  assert.deepEqual([left?.id, left?.tags], [usedId, []]);
  const gone = [...sizes].filter(([each]) => each !== usedId);
  assert.equal(
    freed,
    gone.reduce((sum, [each, bytes]) => sum + bytes + (derivedBytes.get(each) ?? 0), 0),
  );
  assert.equal(readdirSync(transpiled).filter((name) => name !== "tmp").length, 1);
  assert.equal((await running.container((each) => each.id === id)).state.kind, "running");
  await running.stop(id);
  await adapter.apply(running.desired, { kind: "removeContainer", containerId: id }, signal);
  await collector.deleteUnused(signal);
  assert.deepEqual(await adapter.images.list(signal), []);
  assert.deepEqual(
    readdirSync(transpiled).filter((name) => name !== "tmp"),
    [],
  );
});
