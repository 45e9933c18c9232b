/** kill -9 of the agent at any point, with pods that share a process: what that process has is what the next agent says. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { Pod } from "../../protocol/pod.ts";
import { podUid } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { WasmAdapter } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { testProgram } from "../support/bundles.ts";
import { testComponent } from "../support/components.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { settled } from "../support/settled.ts";
import type { AgentLife } from "../support/wasm-agent-life.ts";
import { WasmRuntime } from "../support/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const WORKLOAD = "localhost/workload:1";
const PODS = 4;
const KILLS = 12;
/** Of life after the first deed. */
const LONGEST_LIFE_MS = 400;

function densePod(name: string): DesiredPod {
  const annotations = { "wasm.picolet.io/mode": "dense" };
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid: name, annotations },
    spec: { securityContext: {}, containers: [{ name: "main", image: WORKLOAD, resources: {} }] },
  };
  return { uid: podUid(name), source: "file", origin: "", pod: pod as unknown as Pod };
}

/** Of what the processes say they have, and what the adapter says runs: one, and not the other. */
async function untold(runtime: WasmRuntime, adapter: WasmAdapter): Promise<string[]> {
  const told = new Set<string>();
  for (const { uid } of await adapter.list(NEVER)) {
    for (const { id, state } of (await adapter.inspect(uid, NEVER)).containers) {
      assert.ok(state.kind === "running" || state.kind === "exited", `container ${id} is ${state.kind}`);
      if (state.kind === "running") told.add(id);
    }
  }
  const held = new Set(await runtime.heldByHosts());
  return [...told, ...held].filter((id) => told.has(id) !== held.has(id));
}

test(`${KILLS} agents are killed at random, and each next one finds the containers of the shared process as they are`, async (context) => {
  await using runtime = await WasmRuntime.create();
  let adapter = runtime.adapter();
  const [image] = await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  const pods = [];
  for (let index = 0; index < PODS; index += 1) {
    const desired = densePod(`dense-${index}`);
    pods.push({ desired, ...(await runtime.preparePod(desired)) });
  }
  const program = await testProgram("test/support/wasm-agent-life.ts");
  const random = seededRandom(20_261_122);
  let ran = 0;
  for (let seed = 1; seed <= KILLS; seed += 1) {
    await adapter[Symbol.asyncDispose]();
    const life: AgentLife = { seed, init: runtime.adapterInit, imageId: image?.id ?? "", pods };
    const child = spawn(process.execPath, [program, JSON.stringify(life)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(child, "exit");
    await Promise.race([once(child.stdout, "data"), ended]);
    await Promise.race([wait(random.next() * LONGEST_LIFE_MS), ended]);
    assert.equal(child.exitCode, null, `the agent of seed ${seed} failed by itself`);
    child.kill("SIGKILL");
    await ended;
    adapter = runtime.adapter();
    // A container that ends just now is said to have ended a moment later.
    const wrong = await settled(() => untold(runtime, adapter));
    assert.deepEqual(wrong, [], `after the agent of seed ${seed}`);
    ran += (await runtime.heldByHosts()).length;
  }
  context.diagnostic(`${ran} containers ran over all lives`);
  assert.ok(ran > 0, "the lives were long enough to start something");
  for (const { desired } of pods) {
    const { sandboxes } = await adapter.inspect(desired.uid, NEVER);
    for (const { id } of sandboxes) await adapter.apply(desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
  }
  assert.deepEqual(await adapter.list(NEVER), []);
  assert.deepEqual(await settled(() => runtime.heldByHosts()), []);
  assert.deepEqual(readdirSync(`${runtime.state.path}/pods`), []);
  await adapter[Symbol.asyncDispose]();
});
