/**
 * `npm run bench`: one JSON document of figures on standard output, progress on standard error.
 * Sizes are named by their unit, times are in seconds, floors are measured in the same run.
 *
 * --quick  shorter windows and fewer runs: for a look, not for a record
 */

import * as agent from "../test/bench/agent.ts";
import { floorManifestToStarted } from "../test/bench/cri-floor.ts";
import { probeFigures } from "../test/bench/probes.ts";
import { percentile, round } from "../test/bench/process-figures.ts";
import { step } from "../test/bench/progress.ts";
import { atRestWithHub, TUNNEL_GOALS, tunnelFigures } from "../test/bench/tunnel.ts";
import { wasmFigures } from "../test/bench/wasm.ts";
import { Containerd, containerdMissing } from "../test/support/containerd.ts";
import { nodeWith } from "../test/support/node-fixtures.ts";
import { buildPrograms } from "./build.ts";
import { buildExamples } from "./build-examples.ts";
import { installTestSystem } from "./install-test-system.ts";

const quick = process.argv.includes("--quick");
const REST_WINDOW_MS = quick ? 15_000 : 60_000;
const RUNS = quick ? 5 : 20;

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
const atRest: Record<string, agent.RestFigures> = {};
const withHub: Record<string, agent.RestFigures> = {};
const anonMiBAdded: Record<string, number> = {};
for (const count of [0, 10, 50]) {
  const pods = `pods${count}`;
  const alone = await step(`agent at rest with ${count} pods`, () => agent.atRest(containerd, count, REST_WINDOW_MS));
  const joined = await step("the same with a hub", () => atRestWithHub(containerd, count, REST_WINDOW_MS));
  atRest[pods] = alone;
  withHub[pods] = joined;
  anonMiBAdded[pods] = round(joined.anonMiB - alone.anonMiB);
}
figures.agent = { ...atRest, withHub };
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
const tunnel = await tunnelFigures(containerd, { quick, step });
figures.tunnel = { ...tunnel, anonMiBAdded, goals: TUNNEL_GOALS };
figures.wasm = await step("components", () => wasmFigures());
figures.probes = await step("probes", () => probeFigures(REST_WINDOW_MS));
figures.disk = { bytesPerHourIdle: await step("writes at rest", () => agent.idleWrites(containerd, REST_WINDOW_MS)) };
figures.edgectl = await step("edgectl status", async () => {
  await using node = nodeWith(containerd);
  await node.start();
  return { status: await agent.edgectlStatus(node, RUNS) };
});
console.log(JSON.stringify(figures, null, 2));
