/** kill -9 of the agent at any point: the next one understands the state that it finds. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import type { PodUid } from "@picolet/protocol/ports.ts";
import { isAlive, type ProcessId } from "@picolet/runtime-wasm/adapter/state/process-id.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { settled } from "../support/unit/ports/settled.ts";
import { killAgents } from "../support/wasm/killed-agents.ts";
import type { WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const PODS = 3;
const KILLS = 25;
const LONGEST_LIFE_MS = 500;

/** Pids of all processes that were given a path of this state folder. */
const processesOf = (statePath: string): number[] =>
  runningProcesses()
    .filter(({ words }) => words.slice(1).some((each) => each.startsWith(`${statePath}/`)))
    .map(({ pid }) => pid);

/** Checks that exactly the reported containers run. */
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
  const podNames = Array.from({ length: PODS }, (_, index) => `chaos-${index}`);
  const init = { kills: KILLS, longestLifeMs: LONGEST_LIFE_MS, seed: 20_260_301, podNames };
  const ran = await killAgents(init, {
    found: checkTruth,
    async cleared({ state }) {
      assert.deepEqual(await settled(() => processesOf(state.path)), []);
      assert.deepEqual([readdirSync(`${state.path}/pods`), readdirSync(state.exitsDirectory)], [[], []]);
    },
  });
  context.diagnostic(`${ran} processes of containers were found over all lives`);
});
