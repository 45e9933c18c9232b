/** The measurements of each part of `npm run bench`. Loaded after the command line was read. */
import type { RestingAgent } from "@picolet/test/bench/agent/agent-figures.ts";
import * as agent from "@picolet/test/bench/agent/agent-figures.ts";
import { blackBoxFigures } from "@picolet/test/bench/agent/black-box-figures.ts";
import { floorManifestToStarted } from "@picolet/test/bench/agent/cri-floor.ts";
import { startFloors } from "@picolet/test/bench/agent/floors.ts";
import { kubeletAtRest, kubeletAtRestWithHub, kubeletVersion } from "@picolet/test/bench/agent/kubelet.ts";
import { PROBES, ProbeBench } from "@picolet/test/bench/agent/probe-figures.ts";
import { statsFigures } from "@picolet/test/bench/agent/stats-figures.ts";
import { evictionFigures } from "@picolet/test/bench/eviction/eviction-figures.ts";
import { LEAN_LIMITS } from "@picolet/test/bench/goals.ts";
import { PortAgents, SampledBoard, scrapesAt50Pods } from "@picolet/test/bench/hub/monitoring-figures.ts";
import {
  LinkBoards,
  type LinkFigures,
  startRestingWithHub,
  throughTunnel,
} from "@picolet/test/bench/hub/tunnel-figures.ts";
import { percentile, round, spreadOf } from "@picolet/test/bench/measure/process-usage.ts";
import { step } from "@picolet/test/bench/measure/progress.ts";
import { DeviceAgents, deviceStarts } from "@picolet/test/bench/memory/device-figures.ts";
import { LeanAgent, type LeanFigures } from "@picolet/test/bench/memory/lean-figures.ts";
import { MemoryAgents } from "@picolet/test/bench/memory/memory-figures.ts";
import { boardPageMs, fleetPageMs } from "@picolet/test/bench/page/page-figures.ts";
import { wasmFigures } from "@picolet/test/bench/wasm/component-figures.ts";
import { nodeWith } from "@picolet/test/support/agent/node-fixtures.ts";
import type { Containerd } from "@picolet/test/support/containerd/containerd.ts";
import type { PartWork, Resting } from "./bench-run.ts";
import type { PartName } from "./bench-timetable.ts";

const POD_COUNTS = [0, 10, 50];
const SCRAPES = 20;
const LEAN_PERIODS = 3;
/** Runs of forty pods at once, which take ten seconds each. */
const MANY_RUNS = 3;

export interface Settings {
  readonly quick: boolean;
  readonly restWindowMs: number;
  readonly runs: number;
  readonly kubelet: string | undefined;
}

export function partWorks(containerd: Containerd, settings: Settings): Readonly<Record<PartName, PartWork>> {
  const { quick, restWindowMs } = settings;
  return {
    floors: { setUp: () => floors(settings) },
    agent: { setUp: () => agents(containerd, settings) },
    lean: { setUp: lean },
    memory: { setUp: () => memory(settings) },
    tunnel: {
      setUp: () => links(settings),
      measure: async (link) => {
        const [counted, timed] = [link as LinkFigures, await throughTunnel(containerd, quick)];
        return { ...counted, ...timed, spread: { ...counted.spread, ...timed.spread } };
      },
    },
    probes: {
      setUp: () => probes(settings),
      measure: async (rested) => {
        await using bench = await ProbeBench.start();
        const http = await step("probes by HTTP", () => bench.measureHttp(restWindowMs));
        return { ...PROBES, http, ...(rested as object) };
      },
    },
    kubelet: { measure: () => kubeletFigures(containerd, settings) },
    devices: {
      setUp: () => devices(containerd, settings),
      measure: async (rested) => ({ ...(rested as object), ...(await deviceLatency(containerd, settings)) }),
    },
    latency: { measure: () => latencyFigures(containerd, settings) },
    wasm: { measure: () => step("components", () => wasmFigures()) },
    eviction: { measure: () => evictionFigures(containerd, settings) },
    blackbox: { measure: () => step("a day of the black box", () => blackBoxFigures()) },
    stats: { measure: () => step("collection of usage", () => statsFigures()) },
    edgectl: { measure: () => edgectlFigures(containerd, settings) },
    page: { measure: () => step("a board's page in a browser", boardPage) },
    hub: { measure: () => step("the fleet's page in a browser", fleetPage) },
    api: { setUp: () => ports(containerd, settings) },
    metrics: {
      setUp: () => samples(containerd),
      measure: async (pushed) => {
        const scrapes = await step("scrapes of 50 pods", () => scrapesAt50Pods(containerd, quick ? 5 : SCRAPES));
        return { ...(pushed as object), scrapeMsAt50Pods: p50(scrapes), scrapeMsSpread: spreadOf(scrapes) };
      },
    },
  };
}

async function boardPage(): Promise<unknown> {
  const firstPaintMs = await boardPageMs();
  return { firstPaintMs: p50(firstPaintMs), spread: { firstPaintMs: spreadOf(firstPaintMs) } };
}

async function fleetPage(): Promise<unknown> {
  const fleetPageMsAt10000 = await fleetPageMs();
  return {
    fleetPageMsAt10000: p50(fleetPageMsAt10000),
    spread: { fleetPageMsAt10000: spreadOf(fleetPageMsAt10000) },
  };
}

async function ports(containerd: Containerd, { restWindowMs }: Settings): Promise<Resting> {
  const started = await step("agents without and with the kubelet's port start", () => PortAgents.start(containerd));
  return {
    rest: () => step("the kubelet's port at rest", () => started.rest(restWindowMs)),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

async function samples(containerd: Containerd): Promise<Resting> {
  const started = await step("a board that pushes samples starts", () => SampledBoard.start(containerd));
  return {
    rest: () => step("samples of ten pods", () => started.rest()),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

const p50 = (samples: readonly number[]): number => round(percentile(samples, 0.5));

async function floors({ restWindowMs }: Settings): Promise<Resting> {
  const started = await startFloors();
  return {
    rest: () => step("bare Node at rest", () => started.rest(restWindowMs)),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

async function agents(containerd: Containerd, { restWindowMs }: Settings): Promise<Resting> {
  await using started = new AsyncDisposableStack();
  const pairs: { readonly name: string; readonly alone: RestingAgent; readonly joined: RestingAgent }[] = [];
  for (const count of POD_COUNTS) {
    await step(`agents with ${count} pods start`, async () => {
      const alone = started.use(await agent.startResting(containerd, count, "alone"));
      const joined = started.use(await startRestingWithHub(containerd, count));
      pairs.push({ name: `pods${count}`, alone, joined });
    });
  }
  started.defer(
    async () => void (await Promise.all(pairs.flatMap(({ alone, joined }) => [alone.drain(), joined.drain()]))),
  );
  const processes = started.move();
  return {
    rest: () => step("agents at rest", () => agentFigures(pairs, restWindowMs)),
    [Symbol.asyncDispose]: () => processes.disposeAsync(),
  };
}

async function agentFigures(
  pairs: readonly { readonly name: string; readonly alone: RestingAgent; readonly joined: RestingAgent }[],
  windowMs: number,
): Promise<unknown> {
  const restOf = ({ node }: RestingAgent) => agent.restOf(node.pid, windowMs);
  const figures = await Promise.all(
    pairs.map(async ({ name, alone, joined }) => {
      const [own, withHub] = await Promise.all([restOf(alone), restOf(joined)]);
      return { name, own, withHub, added: round(withHub.anonMiB - own.anonMiB) };
    }),
  );
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

async function lean(): Promise<Resting> {
  await using started = new AsyncDisposableStack();
  const pods0 = started.use(await LeanAgent.start(0));
  const pods10 = started.use(await LeanAgent.start(10));
  const processes = started.move();
  return {
    rest: () =>
      step("what the guard in npm test sees", async () => {
        const [none, ten] = await Promise.all([leanFigures("pods0", pods0), leanFigures("pods10", pods10)]);
        return { pods0: none, pods10: ten };
      }),
    [Symbol.asyncDispose]: () => processes.disposeAsync(),
  };
}

async function leanFigures(name: keyof typeof LEAN_LIMITS, one: LeanAgent): Promise<unknown> {
  const periods: Partial<LeanFigures>[] = [];
  const figures = await one.rest({
    maxPeriods: LEAN_PERIODS,
    // All periods, and one collection of garbage if it does.
    isEnough: ({ liveHeapMiB = Number.POSITIVE_INFINITY }) => liveHeapMiB <= LEAN_LIMITS[name].liveHeapMiB,
    onPeriod: (period) => periods.push(period),
  });
  const samplesOf = (figure: string): number[] => periods.flatMap((each) => each[figure as keyof LeanFigures] ?? []);
  return { ...figures, spread: Object.fromEntries(Object.keys(figures).map((key) => [key, spreadOf(samplesOf(key))])) };
}

async function memory({ quick }: Settings): Promise<Resting> {
  const started = await step("agents for memory by owner start", () =>
    MemoryAgents.start({ podCounts: quick ? [0, 10] : POD_COUNTS }),
  );
  return {
    rest: async () => void (await step("agents for memory by owner settle", () => started.settle())),
    finish: () => started.figures(),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

async function links({ quick, restWindowMs }: Settings): Promise<Resting> {
  const started = await step("boards whose links are counted start", () => LinkBoards.start());
  return {
    rest: () => started.rest({ quick, quietMs: agent.SETTLE_MS + restWindowMs }),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

async function probes({ restWindowMs }: Settings): Promise<Resting> {
  const bench = await ProbeBench.start();
  return {
    rest: () =>
      step("probes of other kinds", async () => {
        const [mixed, exec] = await Promise.all([
          bench.measure("mixed", restWindowMs),
          bench.measure("exec", restWindowMs),
        ]);
        return { mixed, exec };
      }),
    [Symbol.asyncDispose]: () => bench[Symbol.asyncDispose](),
  };
}

async function devices(containerd: Containerd, { restWindowMs }: Settings): Promise<Resting> {
  const started = await step("agents without and with a device plugin start", () => DeviceAgents.start(containerd));
  return {
    rest: () => step("agents with a device plugin", () => started.rest(restWindowMs)),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  };
}

async function deviceLatency(containerd: Containerd, { runs }: Settings): Promise<object> {
  const { without, withDevice } = await step("a pod with a device", () => deviceStarts(containerd, runs));
  return {
    manifestToStarted: { p50: p50(withDevice), spread: spreadOf(withDevice) },
    manifestToStartedWithout: { p50: p50(without), spread: spreadOf(without) },
  };
}

async function measured(name: string, work: () => Promise<readonly number[]>) {
  const samples = await step(name, work);
  return { p50: p50(samples), spread: spreadOf(samples) };
}

async function latencyFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  const half = Math.ceil(runs / 2);
  const started = await step("manifest to started", () => agent.manifestToStarted(containerd, runs));
  const floor = await step("the same calls by hand", () => floorManifestToStarted(containerd, runs));
  const many = await step("40 pods to running", () => agent.manyToRunning(containerd, 40, Math.min(half, MANY_RUNS)));
  return {
    manifestToStarted: {
      p50: p50(started),
      p95: round(percentile(started, 0.95)),
      floorP50: p50(floor),
      ratio: round(p50(started) / p50(floor)),
      spread: spreadOf(started),
      floorSpread: spreadOf(floor),
    },
    crashToRestarted: await measured("crash to restarted", () => agent.crashToRestarted(containerd, runs)),
    agentStartToAdopted: await measured("agent start to adopted", () => agent.startToAdopted(containerd, 20, half)),
    agentStartToFirstPod: await measured("agent start to first pod", () => agent.startToFirstPod(containerd, half)),
    pods40ToRunning: p50(many),
    pods40ToRunningSpread: spreadOf(many),
  };
}

function edgectlFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  return step("edgectl status", async () => {
    await using node = nodeWith(containerd);
    await node.start();
    return { status: await agent.edgectlStatus(node, runs) };
  });
}
