/**
 * The adapter of a node that may never run a component: it answers without being loaded, and is loaded with the first
 * that comes.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const IMAGE = "localhost/waits:1";

async function runtimeOf(context: TestContext): Promise<WasmRuntime> {
  const runtime = await WasmRuntime.create();
  context.after(() => runtime[Symbol.asyncDispose]());
  return runtime;
}

test("on a node without components everything is answered, and no folder is made", async (context) => {
  const runtime = await runtimeOf(context);
  await using adapter = runtime.adapterOnDemand();
  const uid = podUid("absent-6f2a");
  assert.deepEqual(await adapter.list(NEVER), []);
  assert.deepEqual(await adapter.inspect(uid, NEVER), { uid, sandboxes: [], containers: [], manifest: undefined });
  assert.deepEqual(await adapter.isolation(uid, NEVER), []);
  assert.deepEqual(await adapter.sharedUsage(NEVER), new Map());
  assert.deepEqual(await adapter.images.list(NEVER), []);
  assert.deepEqual(await adapter.images.holdings?.(NEVER), { used: new Set(), derivedBytes: new Map() });
  assert.equal((await adapter.images.filesystems?.(NEVER))?.images.usedBytes, 0);
  const status = await adapter.status(NEVER);
  assert.equal(existsSync(runtime.adapterInit.rootDirectory), false);
  assert.equal(existsSync(`${runtime.adapterInit.stateDirectory}/pods`), false);
  await using loaded = runtime.adapter();
  assert.deepEqual(status, await loaded.status(NEVER), "as the adapter says it");
});

test("an image loads it, and the next agent over the same folders sees that image", async (context) => {
  const runtime = await runtimeOf(context);
  {
    await using adapter = runtime.adapterOnDemand();
    await adapter.images.import(await testComponent("waits.c"), IMAGE, NEVER);
    assert.deepEqual(
      (await adapter.images.list(NEVER)).map(({ tags }) => tags),
      [[IMAGE]],
    );
  }
  await using next = runtime.adapterOnDemand();
  assert.deepEqual(
    (await next.images.list(NEVER)).map(({ tags }) => tags),
    [[IMAGE]],
  );
});

test("a pod that an earlier agent left is listed by one that was asked nothing before", async (context) => {
  const runtime = await runtimeOf(context);
  const pod = await (async () => {
    await using adapter = runtime.adapter();
    return await WasmPod.create(runtime, adapter, { image: IMAGE });
  })();
  await using next = runtime.adapterOnDemand();
  assert.deepEqual(
    (await next.list(NEVER)).map(({ uid }) => uid),
    [pod.desired.uid],
  );
});

test("hints reach who took them before it was loaded, and end with the signal", async (context) => {
  const runtime = await runtimeOf(context);
  await using adapter = runtime.adapterOnDemand();
  const unheard = new AbortController();
  const nothing = adapter.hints(unheard.signal).next();
  unheard.abort();
  assert.equal((await nothing).done, true, "of an adapter that is never loaded");

  const watching = new AbortController();
  const hints = adapter.hints(watching.signal);
  const first = hints.next();
  await adapter.images.import(await testComponent("waits.c"), IMAGE, NEVER);
  const pod = await WasmPod.create(runtime, adapter, { image: IMAGE });
  await pod.start();
  assert.equal((await first).value, pod.desired.uid);
  watching.abort();
  for await (const uid of hints) assert.equal(uid, pod.desired.uid);
});
