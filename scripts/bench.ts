/**
 * `npm run bench`: one JSON document of figures on standard output, progress on standard error.
 * Sizes are named by their unit, times are in seconds, floors are measured in the same run.
 *
 * --quick            shorter windows and fewer runs: for a look, not for a record
 * --only NAME,NAME   those parts alone, by their names in the document: `npm run bench -- --only eviction,stats`. All of them
 *                    take some 40 minutes; `agent`, `tunnel` and `disk` wait for minutes of rest.
 */

import { parseArgs } from "node:util";
import * as agent from "../test/bench/agent.ts";
import { floorManifestToStarted } from "../test/bench/cri-floor.ts";
import { evictionFigures } from "../test/bench/eviction.ts";
import { probeFigures } from "../test/bench/probes.ts";
import { percentile, round } from "../test/bench/process-figures.ts";
import { step } from "../test/bench/progress.ts";
import { statsFigures } from "../test/bench/stats.ts";
import { atRestWithHub, TUNNEL_GOALS, tunnelFigures } from "../test/bench/tunnel.ts";
import { wasmFigures } from "../test/bench/wasm.ts";
import { Containerd, containerdMissing } from "../test/support/containerd.ts";
import { nodeWith } from "../test/support/node-fixtures.ts";
import { buildPrograms } from "./build.ts";
import { buildExamples } from "./build-examples.ts";
import { installTestSystem } from "./install-test-system.ts";

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, only: { type: "string" } },
});
const { quick } = options;
const REST_WINDOW_MS = quick ? 15_000 : 60_000;
const RUNS = quick ? 5 : 20;
const CHURNED_PODS = quick ? 1500 : 10_000;

const p50 = (samples: readonly number[]): number => round(percentile(samples, 0.5));

/** What a hub adds, by the pods that there are: the part `agent` measures it, and the tunnel has it among its figures. */
const anonMiBAdded: Record<string, number> = {};

type Part = (containerd: Containerd) => Promise<unknown>;

/** In the order of the document. */
const PARTS: ReadonlyMap<string, Part> = new Map<string, Part>([
  ["agent", agentFigures],
  ["latency", latencyFigures],
  ["tunnel", tunnelAndGoals],
  ["wasm", () => step("components", () => wasmFigures())],
  ["probes", () => step("probes", () => probeFigures(REST_WINDOW_MS))],
  ["eviction", (containerd) => evictionFigures(containerd, { quick })],
  ["stats", () => step("collection of usage", () => statsFigures())],
  ["disk", diskFigures],
  ["edgectl", edgectlFigures],
]);

async function agentFigures(containerd: Containerd): Promise<unknown> {
  const atRest: Record<string, agent.RestFigures> = {};
  const withHub: Record<string, agent.RestFigures> = {};
  for (const count of [0, 10, 50]) {
    const pods = `pods${count}`;
    const alone = await step(`agent at rest with ${count} pods`, () => agent.atRest(containerd, count, REST_WINDOW_MS));
    const joined = await step("the same with a hub", () => atRestWithHub(containerd, count, REST_WINDOW_MS));
    atRest[pods] = alone;
    withHub[pods] = joined;
    anonMiBAdded[pods] = round(joined.anonMiB - alone.anonMiB);
  }
  const growth = await step(`${CHURNED_PODS} pods come and go`, () => agent.anonGrowth(CHURNED_PODS));
  return { ...atRest, withHub, anonGrowthMiBPer10kPods: round((growth * 10_000) / CHURNED_PODS) };
}

async function latencyFigures(containerd: Containerd): Promise<unknown> {
  const started = await step("manifest to started", () => agent.manifestToStarted(containerd, RUNS));
  const floor = await step("the same calls by hand", () => floorManifestToStarted(containerd, RUNS));
  return {
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
}

async function tunnelAndGoals(containerd: Containerd): Promise<unknown> {
  return { ...(await tunnelFigures(containerd, { quick, step })), anonMiBAdded, goals: TUNNEL_GOALS };
}

async function diskFigures(containerd: Containerd): Promise<unknown> {
  return { bytesPerHourIdle: await step("writes at rest", () => agent.idleWrites(containerd, REST_WINDOW_MS)) };
}

function edgectlFigures(containerd: Containerd): Promise<unknown> {
  return step("edgectl status", async () => {
    await using node = nodeWith(containerd);
    await node.start();
    return { status: await agent.edgectlStatus(node, RUNS) };
  });
}

const wanted = options.only?.split(",") ?? [...PARTS.keys()];
const unknown = wanted.filter((name) => !PARTS.has(name));
if (unknown.length > 0) {
  console.error(`the bench has no part ${unknown.join(", ")}, but ${[...PARTS.keys()].join(", ")}`);
  process.exit(1);
}
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
for (const [name, part] of PARTS) if (wanted.includes(name)) figures[name] = await part(containerd);
console.log(JSON.stringify(figures, null, 2));
