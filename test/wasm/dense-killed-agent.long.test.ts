/**
 * kill -9 of the agent at any point, with pods that share a process: what that process has is what the next agent says.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { settled } from "../support/unit/ports/settled.ts";
import { killAgents } from "../support/wasm/killed-agents.ts";
import type { WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const PODS = 4;
const KILLS = 12;
const LONGEST_LIFE_MS = 400;

/** The containers that only the processes report, or only the adapter. */
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
  const podNames = Array.from({ length: PODS }, (_, index) => `dense-${index}`);
  const annotations = { "wasm.picolet.io/mode": "dense" };
  const init = { kills: KILLS, longestLifeMs: LONGEST_LIFE_MS, seed: 20_261_122, podNames, annotations };
  const ran = await killAgents(init, {
    async found(runtime, adapter, seed) {
      // A container that ends just now is said to have ended a moment later.
      assert.deepEqual(await settled(() => untold(runtime, adapter)), [], `after the agent of seed ${seed}`);
      return (await runtime.heldByHosts()).length;
    },
    async cleared(runtime) {
      assert.deepEqual(await settled(() => runtime.heldByHosts()), []);
      assert.deepEqual(readdirSync(`${runtime.state.path}/pods`), []);
    },
  });
  context.diagnostic(`${ran} containers ran over all lives`);
});
