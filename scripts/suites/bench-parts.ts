/** The measurements of each part of `npm run bench`. Loaded after the command line was read. */

import type { RestingAgent } from "@picolet/test/bench/agent/agent-figures.ts";
import * as agent from "@picolet/test/bench/agent/agent-figures.ts";
import { floorManifestToStarted } from "@picolet/test/bench/agent/cri-floor.ts";
import { floorFigures } from "@picolet/test/bench/agent/floors.ts";
import { kubeletAtRest, kubeletAtRestWithHub, kubeletVersion } from "@picolet/test/bench/agent/kubelet.ts";
import { probeFigures } from "@picolet/test/bench/agent/probe-figures.ts";
import { statsFigures } from "@picolet/test/bench/agent/stats-figures.ts";
import { evictionFigures } from "@picolet/test/bench/eviction/eviction-figures.ts";
import {
  type LinkFigures,
  linkFigures,
  startRestingWithHub,
  throughTunnel,
} from "@picolet/test/bench/hub/tunnel-figures.ts";
import { percentile, round, spreadOf } from "@picolet/test/bench/measure/process-usage.ts";
import { step } from "@picolet/test/bench/measure/progress.ts";
import { leanFigures } from "@picolet/test/bench/memory/lean-figures.ts";
import { memoryFigures } from "@picolet/test/bench/memory/memory-figures.ts";
import { wasmFigures } from "@picolet/test/bench/wasm/component-figures.ts";
import { nodeWith } from "@picolet/test/support/agent/node-fixtures.ts";
import type { Containerd } from "@picolet/test/support/containerd/containerd.ts";
import type { PartName, Settings } from "./bench.ts";

const POD_COUNTS = [0, 10, 50];

export interface Measure {
  /** Does next to nothing but wait: runs beside those of other parts, before any of them is measured. */
  readonly wait?: (containerd: Containerd, settings: Settings) => Promise<unknown>;
  /** Alone on the machine. @param waited what `wait` has resolved with */
  readonly measure?: (containerd: Containerd, settings: Settings, waited: unknown) => Promise<unknown>;
}

export const MEASURES: Readonly<Record<PartName, Measure>> = {
  floors: { wait: floors },
  agent: { wait: agentFigures },
  kubelet: { measure: kubeletFigures },
  lean: { wait: leanParts },
  memory: { measure: memory },
  latency: { measure: latencyFigures },
  tunnel: { wait: linkOf, measure: tunnel },
  wasm: { measure: () => step("components", () => wasmFigures()) },
  probes: { measure: (_, { restWindowMs }) => step("probes", () => probeFigures(restWindowMs)) },
  eviction: { measure: evictionFigures },
  stats: { measure: () => step("collection of usage", () => statsFigures()) },
  edgectl: { measure: edgectlFigures },
};

const p50 = (samples: readonly number[]): number => round(percentile(samples, 0.5));

function floors(_: Containerd, { restWindowMs }: Settings): Promise<unknown> {
  return step("bare Node at rest", () => floorFigures(restWindowMs));
}

/** All of them at once: they wait, and take no more of the machine together than one that starts. */
async function agentFigures(containerd: Containerd, { restWindowMs }: Settings): Promise<unknown> {
  await using resting = new AsyncDisposableStack();
  const agents: { readonly name: string; readonly alone: RestingAgent; readonly joined: RestingAgent }[] = [];
  for (const count of POD_COUNTS) {
    const [alone, joined] = await step(`agents with ${count} pods start`, async () => [
      resting.use(await agent.startResting(containerd, count)),
      resting.use(await startRestingWithHub(containerd, count)),
    ]).then(([first, second]) => [first, second] as const);
    if (alone !== undefined && joined !== undefined) agents.push({ name: `pods${count}`, alone, joined });
  }
  const figures = await step("agents at rest", () =>
    Promise.all(
      agents.map(async ({ name, alone, joined }) => {
        const restOf = ({ node }: RestingAgent) => agent.restOf(node.pid, restWindowMs);
        const [own, withHub] = await Promise.all([restOf(alone), restOf(joined)]);
        return { name, own, withHub, added: round(withHub.anonMiB - own.anonMiB) };
      }),
    ),
  );
  for (const { alone, joined } of agents) await Promise.all([alone.drain(), joined.drain()]);
  const byName = <T>(of: (each: (typeof figures)[number]) => T): Record<string, T> =>
    Object.fromEntries(figures.map((each) => [each.name, of(each)]));
  return {
    ...byName(({ own }) => own),
    withHub: byName(({ withHub }) => withHub),
    hubAddsAnonMiB: byName(({ added }) => added),
  };
}

async function kubeletFigures(containerd: Containerd, { kubelet: file, restWindowMs }: Settings): Promise<unknown> {
  if (file === undefined) return undefined;
  const atRest: Record<string, agent.RestFigures> = {};
  const withHub: Record<string, agent.RestFigures> = {};
  for (const count of POD_COUNTS) {
    const options = { containerd, pods: count, windowMs: restWindowMs };
    const pods = `pods${count}`;
    atRest[pods] = await step(`kubelet at rest with ${count} pods`, () => kubeletAtRest(file, options));
    withHub[pods] = await step("the same with a hub", () => kubeletAtRestWithHub(file, options));
  }
  return { version: kubeletVersion(file), ...atRest, withHub };
}

function memory(containerd: Containerd, { quick }: Settings): Promise<unknown> {
  return memoryFigures(containerd, { podCounts: quick ? [0, 10] : POD_COUNTS });
}

async function leanParts(): Promise<unknown> {
  const measure = (pods: number) => leanFigures({ pods, maxPeriods: 6, isEnough: () => false });
  const [pods0, pods10] = await step("what the guard in npm test sees", () => Promise.all([measure(0), measure(10)]));
  return { pods0, pods10 };
}

async function measured(name: string, work: () => Promise<readonly number[]>) {
  const samples = await step(name, work);
  return { p50: p50(samples), spread: spreadOf(samples) };
}

async function latencyFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  const half = Math.ceil(runs / 2);
  const started = await step("manifest to started", () => agent.manifestToStarted(containerd, runs));
  const floor = await step("the same calls by hand", () => floorManifestToStarted(containerd, runs));
  return {
    manifestToStarted: {
      p50: p50(started),
      p95: round(percentile(started, 0.95)),
      floorP50: p50(floor),
      ratio: round(p50(started) / p50(floor)),
      spread: spreadOf(started),
    },
    crashToRestarted: await measured("crash to restarted", () => agent.crashToRestarted(containerd, runs)),
    agentStartToAdopted: await measured("agent start to adopted", () => agent.startToAdopted(containerd, 20, half)),
    agentStartToFirstPod: await measured("agent start to first pod", () => agent.startToFirstPod(containerd, half)),
    pods40ToRunning: await step("40 pods to running", () => agent.manyToRunning(containerd, 40)),
  };
}

function linkOf(containerd: Containerd, { quick }: Settings): Promise<LinkFigures> {
  return linkFigures(containerd, { quick, step });
}

async function tunnel(containerd: Containerd, { quick }: Settings, link: unknown): Promise<unknown> {
  return { ...(link as LinkFigures), ...(await throughTunnel(containerd, { quick, step })) };
}

function edgectlFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  return step("edgectl status", async () => {
    await using node = nodeWith(containerd);
    await node.start();
    return { status: await agent.edgectlStatus(node, runs) };
  });
}
