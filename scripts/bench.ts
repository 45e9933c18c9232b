/**
 * `npm run bench`: one JSON document of figures on standard output, progress on standard error.
 * Sizes are named by their unit, times are in seconds, floors are measured in the same run.
 *
 * --quick  shorter windows and fewer runs: for a look, not for a record
 */

import * as agent from "../test/bench/agent.ts";
import { floorManifestToStarted } from "../test/bench/cri-floor.ts";
import { percentile, round } from "../test/bench/process-figures.ts";
import { wasmFigures } from "../test/bench/wasm.ts";
import { Containerd, containerdMissing } from "../test/support/containerd.ts";
import { nodeWith } from "../test/support/node-fixtures.ts";
import { buildPrograms } from "./build.ts";
import { buildExamples } from "./build-examples.ts";
import { installTestSystem } from "./install-test-system.ts";

const quick = process.argv.includes("--quick");
const REST_WINDOW_MS = quick ? 15_000 : 60_000;
const RUNS = quick ? 5 : 20;

async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  process.stderr.write(`${name} ... `);
  const result = await work();
  process.stderr.write(`${((performance.now() - startedAt) / 1000).toFixed(1)} s\n`);
  return result;
}

const p50 = (samples: readonly number[]): number => round(percentile(samples, 0.5));

installTestSystem();
const missing = containerdMissing();
if (missing !== undefined) {
  console.error(`the bench needs a real containerd: ${missing}`);
  process.exit(1);
}
await step("build", async () => {
  await buildPrograms();
  await buildExamples();
});
await using containerd = await Containerd.start();
const figures: Record<string, unknown> = {};
const atRest: Record<string, unknown> = {};
for (const count of [0, 10, 50]) {
  atRest[`pods${count}`] = await step(`agent at rest with ${count} pods`, () =>
    agent.atRest(containerd, count, REST_WINDOW_MS),
  );
}
figures.agent = atRest;
const started = await step("manifest to started", () => agent.manifestToStarted(containerd, RUNS));
const floor = await step("the same calls by hand", () => floorManifestToStarted(containerd, RUNS));
figures.latency = {
  manifestToStarted: {
    p50: p50(started),
    p95: round(percentile(started, 0.95)),
    floorP50: p50(floor),
    ratio: round(p50(started) / p50(floor)),
  },
  crashToRestarted: { p50: p50(await step("crash to restarted", () => agent.crashToRestarted(containerd, RUNS))) },
  agentStartToAdopted: {
    p50: p50(await step("agent start to adopted", () => agent.startToAdopted(containerd, 20, Math.ceil(RUNS / 2)))),
  },
  agentStartToFirstPod: {
    p50: p50(await step("agent start to first pod", () => agent.startToFirstPod(containerd, Math.ceil(RUNS / 2)))),
  },
  pods40ToRunning: await step("40 pods to running", () => agent.manyToRunning(containerd, 40)),
};
figures.wasm = await step("components", () => wasmFigures());
figures.disk = { bytesPerHourIdle: await step("writes at rest", () => agent.idleWrites(containerd, REST_WINDOW_MS)) };
figures.edgectl = await step("edgectl status", async () => {
  await using node = nodeWith(containerd);
  await node.start();
  return { status: await agent.edgectlStatus(node, RUNS) };
});
console.log(JSON.stringify(figures, null, 2));
