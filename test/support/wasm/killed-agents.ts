/** Agents that are killed at any point of their work on the same components, one after the other. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { testProgram } from "../unit/machine/bundles.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";
import { testComponent } from "./components.ts";
import type { AgentLife } from "./wasm-agent-life.ts";
import { WasmRuntime } from "./wasm-runtime.ts";

const NEVER = new AbortController().signal;
const WORKLOAD = "localhost/workload:1";

export interface KilledAgentsInit {
  readonly kills: number;
  /** The longest life after the first action. An action takes some milliseconds, a start some fifty. */
  readonly longestLifeMs: number;
  readonly seed: number;
  readonly podNames: readonly string[];
  /** Annotations of the pods. */
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface KilledAgentsChecks {
  /**
   * Checks the state that the next agent finds.
   * @returns how much of it ran
   */
  readonly found: (runtime: WasmRuntime, adapter: WasmAdapter, seed: number) => Promise<number>;
  /** When all pods have been removed by the last agent. */
  readonly cleared: (runtime: WasmRuntime) => Promise<void>;
}

/** @returns how much ran over all lives */
export async function killAgents(
  { kills, longestLifeMs, seed: first, podNames, annotations }: KilledAgentsInit,
  { found, cleared }: KilledAgentsChecks,
): Promise<number> {
  await using runtime = await WasmRuntime.create();
  let adapter = runtime.adapter();
  const [image] = await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  const pods = [];
  for (const name of podNames) {
    const desired = { uid: podUid(name), source: "file", origin: "", pod: podOf(name, annotations) } as const;
    pods.push({ desired, ...(await runtime.preparePod(desired)) });
  }
  const program = await testProgram("test/support/wasm/wasm-agent-life.ts");
  const random = seededRandom(first);
  let ran = 0;
  for (let seed = 1; seed <= kills; seed += 1) {
    await adapter[Symbol.asyncDispose]();
    const life: AgentLife = { seed, init: runtime.adapterInit, imageId: image?.id ?? "", pods };
    const child = spawn(process.execPath, [program, JSON.stringify(life)], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "exit");
    // Its life counts from its first deed: on a machine with much to do, Node alone may take longer to start.
    await Promise.race([once(child.stdout, "data"), ended]);
    await Promise.race([wait(random.next() * longestLifeMs), ended]);
    assert.equal(child.exitCode, null, `the agent of seed ${seed} failed by itself`);
    child.kill("SIGKILL");
    await ended;
    adapter = runtime.adapter();
    ran += await found(runtime, adapter, seed);
  }
  assert.ok(ran > 0, "the lives were long enough to start something");
  for (const { desired } of pods) {
    const { sandboxes } = await adapter.inspect(desired.uid, NEVER);
    for (const { id } of sandboxes) await adapter.apply(desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
  }
  assert.deepEqual(await adapter.list(NEVER), []);
  await cleared(runtime);
  await adapter[Symbol.asyncDispose]();
  return ran;
}

function podOf(name: string, annotations: Readonly<Record<string, string>> = {}): Pod {
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid: name, annotations },
    spec: { securityContext: {}, containers: [{ name: "main", image: WORKLOAD, resources: {} }] },
  };
  return pod as unknown as Pod;
}
