/** kill -9 of the agent at any point of whatever it is doing: the next one understands what it finds. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { Pod } from "../../protocol/pod.ts";
import { type PodUid, podUid } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { isAlive, type ProcessId } from "../../runtime-adapters/wasm/state/process-id.ts";
import type { WasmAdapter } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { testProgram } from "../support/bundles.ts";
import { testComponent } from "../support/components.ts";
import { runningProcesses } from "../support/processes.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { settled } from "../support/settled.ts";
import type { AgentLife } from "../support/wasm-agent-life.ts";
import { WasmRuntime } from "../support/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const WORKLOAD = "localhost/workload:1";
const PODS = 3;
const KILLS = 25;
/** Of life after the first deed. An action takes some milliseconds, a start some fifty. */
const LONGEST_LIFE_MS = 500;

function desiredPod(name: string): DesiredPod {
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid: name },
    spec: { securityContext: {}, containers: [{ name: "main", image: WORKLOAD, resources: {} }] },
  };
  return { uid: podUid(name), source: "file", origin: "", pod: pod as unknown as Pod };
}

/** Pids of all processes that were given a path of this state folder. */
const processesOf = (statePath: string): number[] =>
  runningProcesses()
    .filter(({ words }) => words.slice(1).some((each) => each.startsWith(`${statePath}/`)))
    .map(({ pid }) => pid);

/** What runs is what is said to run, and nothing else. */
async function checkTruth(runtime: WasmRuntime, adapter: WasmAdapter): Promise<number> {
  const ids: string[] = [];
  for (const { uid } of await adapter.list(NEVER)) {
    // A container that ends just now is said to have ended a moment later.
    assert.deepEqual(await settled(() => wronglyTold(runtime, adapter, uid)), []);
    ids.push(...(await adapter.inspect(uid, NEVER)).containers.map(({ id }) => id));
  }
  // A shell that the dead agent had just started may still be on its way to find out that it comes too late, or to
  // write down which runner it has started.
  const strays = await settled(() => straysBeside(runtime, ids));
  assert.deepEqual(strays, [], "no process that no container stands for");
  return ids.flatMap((id) => written(runtime, id)).length;
}

async function wronglyTold(runtime: WasmRuntime, adapter: WasmAdapter, uid: PodUid): Promise<string[]> {
  const { sandboxes, containers } = await adapter.inspect(uid, NEVER);
  assert.ok(sandboxes.length > 0, "no container without a sandbox");
  return containers.flatMap(({ id, state, sandboxId }) => {
    assert.ok(sandboxes.some((each) => each.id === sandboxId));
    assert.ok(state.kind === "running" || state.kind === "exited", `container ${id} is ${state.kind}`);
    const runs = written(runtime, id).some(isAlive);
    return runs === (state.kind === "running") ? [] : [`${id} is ${state.kind} and ${runs ? "runs" : "does not run"}`];
  });
}

/** The processes that the container's state folder names now. */
const written = (runtime: WasmRuntime, id: string): ProcessId[] =>
  [runtime.reaper(id), runtime.runner(id)].filter((each) => each !== undefined);

function straysBeside(runtime: WasmRuntime, ids: readonly string[]): number[] {
  const processes = processesOf(runtime.state.path);
  const known = new Set(ids.flatMap((id) => written(runtime, id)).map(({ pid }) => pid));
  return processes.filter((pid) => !known.has(pid));
}

test(`${KILLS} agents are killed at random, and each next one finds the truth`, async (context) => {
  await using runtime = await WasmRuntime.create();
  let adapter = runtime.adapter();
  const [image] = await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  const pods = [];
  for (let index = 0; index < PODS; index += 1) {
    const desired = desiredPod(`chaos-${index}`);
    pods.push({ desired, ...(await runtime.preparePod(desired)) });
  }
  const program = await testProgram("test/support/wasm-agent-life.ts");
  const random = seededRandom(20_260_301);
  let ran = 0;
  for (let seed = 1; seed <= KILLS; seed += 1) {
    await adapter[Symbol.asyncDispose]();
    const life: AgentLife = { seed, init: runtime.adapterInit, imageId: image?.id ?? "", pods };
    const child = spawn(process.execPath, [program, JSON.stringify(life)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(child, "exit");
    // Its life counts from its first deed: on a machine with much to do, Node alone may take longer to start.
    await Promise.race([once(child.stdout, "data"), ended]);
    await Promise.race([wait(random.next() * LONGEST_LIFE_MS), ended]);
    assert.equal(child.exitCode, null, `the agent of seed ${seed} failed by itself`);
    child.kill("SIGKILL");
    await ended;
    adapter = runtime.adapter();
    ran += await checkTruth(runtime, adapter);
  }
  context.diagnostic(`${ran} processes of containers were found over all lives`);
  assert.ok(ran > 0, "the lives were long enough to start something");
  for (const { desired } of pods) {
    const { sandboxes } = await adapter.inspect(desired.uid, NEVER);
    for (const { id } of sandboxes) await adapter.apply(desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
  }
  assert.deepEqual(await adapter.list(NEVER), []);
  assert.deepEqual(await settled(() => processesOf(runtime.state.path)), []);
  assert.deepEqual([readdirSync(`${runtime.state.path}/pods`), readdirSync(runtime.state.exitsDirectory)], [[], []]);
  await adapter[Symbol.asyncDispose]();
});
