/** `npm run bench`: figures, floors beside them, and the goals that are missed. Its help says the rest. */
import { fileFlag, textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import * as agent from "@picolet/test/bench/agent/agent-figures.ts";
import { floorManifestToStarted } from "@picolet/test/bench/agent/cri-floor.ts";
import { floorFigures } from "@picolet/test/bench/agent/floors.ts";
import { kubeletAtRest, kubeletAtRestWithHub, kubeletVersion } from "@picolet/test/bench/agent/kubelet.ts";
import { probeFigures } from "@picolet/test/bench/agent/probe-figures.ts";
import { statsFigures } from "@picolet/test/bench/agent/stats-figures.ts";
import { evictionFigures } from "@picolet/test/bench/eviction/eviction-figures.ts";
import { describeMissed, GOALS, judge, LEAN_GOALS } from "@picolet/test/bench/goals.ts";
import { atRestWithHub, idleWrites, tunnelFigures } from "@picolet/test/bench/hub/tunnel-figures.ts";
import { percentile, round } from "@picolet/test/bench/measure/process-usage.ts";
import { step } from "@picolet/test/bench/measure/progress.ts";
import { leanFigures } from "@picolet/test/bench/memory/lean-figures.ts";
import { memoryFigures } from "@picolet/test/bench/memory/memory-figures.ts";
import { ratiosOf } from "@picolet/test/bench/ratios.ts";
import { wasmFigures } from "@picolet/test/bench/wasm/component-figures.ts";
import { nodeWith } from "@picolet/test/support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "@picolet/test/support/containerd/containerd.ts";
import { buildPrograms } from "../build/build.ts";
import { buildExamples } from "../build/build-examples.ts";
import { endWithUsageError, readOptions } from "../start/options.ts";
import { installTestSystem } from "../test/install-test-system.ts";

const POD_COUNTS = [0, 10, 50];

interface Settings {
  readonly quick: boolean;
  readonly restWindowMs: number;
  /** An agent at rest writes a few times an hour. */
  readonly writesWindowMs: number;
  readonly runs: number;
  readonly churnedPods: number;
  readonly kubelet: string | undefined;
}

interface Part {
  /** Of a whole run on a quiet machine. */
  readonly minutes: number;
  readonly what: string;
  readonly measure: (containerd: Containerd, settings: Settings) => Promise<unknown>;
}

/** In the order of the document. */
const PARTS: Readonly<Record<string, Part>> = {
  floors: { minutes: 2, what: "bare Node, and with one TLS connection, at rest", measure: floors },
  agent: {
    minutes: 17,
    what: "the agent at rest with 0, 10 and 50 pods, without and with a hub",
    measure: agentFigures,
  },
  kubelet: {
    minutes: 17,
    what: "the same of the kubelet that --kubelet names, standalone and joined to a hub",
    measure: kubeletFigures,
  },
  lean: {
    minutes: 5,
    what: "what the guard in npm test sees: memory, bytes, wake-ups, system calls at rest",
    measure: leanParts,
  },
  growth: { minutes: 7, what: "its memory while 10,000 pods come and go", measure: growthFigures },
  memory: {
    minutes: 7,
    what: "its memory by owner: heap by space and source file, malloc, stacks, libraries",
    measure: memory,
  },
  latency: { minutes: 3, what: "pods that start, crash, are adopted; the CRI calls by hand", measure: latencyFigures },
  tunnel: { minutes: 9, what: "bytes and round trips to the hub, exec and logs through it", measure: tunnel },
  wasm: {
    minutes: 6,
    what: "components: memory, restarts, pulls, HTTP, key-value store",
    measure: () => step("components", () => wasmFigures()),
  },
  probes: {
    minutes: 4,
    what: "300 probes every 10 s",
    measure: (_, { restWindowMs }) => step("probes", () => probeFigures(restWindowMs)),
  },
  eviction: { minutes: 12, what: "pods that leak memory", measure: evictionFigures },
  stats: { minutes: 1, what: "collection of usage", measure: () => step("collection of usage", () => statsFigures()) },
  disk: { minutes: 12, what: "bytes written at rest, with ten pods and a hub", measure: diskFigures },
  edgectl: { minutes: 1, what: "edgectl status", measure: edgectlFigures },
};

const ONLY = textFlag({ name: "only", value: "PART,PART", help: "these parts alone" });
const KUBELET = fileFlag({
  name: "kubelet",
  help: "a kubelet's binary (1.34), which is measured too, in front of the same containerd",
});

const OPTIONS = {
  name: "bench",
  summary: "figures of the agent, as one JSON document on standard output",
  flags: [
    ONLY,
    {
      name: "quick",
      help: "shorter windows and fewer runs: for a look, not for a record; what needs long windows is not judged",
    },
    KUBELET,
    { name: "no-judge", help: "figures alone: neither goals nor an exit code for them" },
  ],
  notes: [
    "Progress, figures as they come, tables and missed goals go to standard error. Sizes are named by their unit, times are " +
      "in seconds, floors are measured in the same run. It leaves with 0 when every goal of what was measured is met " +
      "(test/bench/goals.ts), with 1 when one is missed or a part failed.",
    "Parts, with the minutes that each takes:",
    ...Object.entries(PARTS).map(([name, { minutes, what }]) => `${name} (${minutes}): ${what}`),
  ],
};

const p50 = (samples: readonly number[]): number => round(percentile(samples, 0.5));

function floors(_: Containerd, { restWindowMs }: Settings): Promise<unknown> {
  return step("bare Node at rest", () => floorFigures(restWindowMs));
}

async function agentFigures(containerd: Containerd, { restWindowMs }: Settings): Promise<unknown> {
  const atRest: Record<string, agent.RestFigures> = {};
  const withHub: Record<string, agent.RestFigures> = {};
  const hubAddsAnonMiB: Record<string, number> = {};
  for (const count of POD_COUNTS) {
    const pods = `pods${count}`;
    const alone = await step(`agent at rest with ${count} pods`, () => agent.atRest(containerd, count, restWindowMs));
    const joined = await step("the same with a hub", () => atRestWithHub(containerd, count, restWindowMs));
    atRest[pods] = alone;
    withHub[pods] = joined;
    hubAddsAnonMiB[pods] = round(joined.anonMiB - alone.anonMiB);
  }
  return { ...atRest, withHub, hubAddsAnonMiB };
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

async function growthFigures(_: Containerd, { churnedPods }: Settings): Promise<unknown> {
  const growth = await step(`${churnedPods} pods come and go`, () => agent.anonGrowth(churnedPods));
  return { anonMiBPer10kPods: round((growth * 10_000) / churnedPods) };
}

function memory(containerd: Containerd, { quick }: Settings): Promise<unknown> {
  return memoryFigures(containerd, { podCounts: quick ? [0, 10] : POD_COUNTS });
}

async function leanParts(): Promise<unknown> {
  const measure = (pods: number) => leanFigures({ pods, maxPeriods: 6, isEnough: () => false });
  const [pods0, pods10] = await step("what the guard in npm test sees", () => Promise.all([measure(0), measure(10)]));
  return { pods0, pods10 };
}

async function latencyFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  const started = await step("manifest to started", () => agent.manifestToStarted(containerd, runs));
  const floor = await step("the same calls by hand", () => floorManifestToStarted(containerd, runs));
  return {
    manifestToStarted: {
      p50: p50(started),
      p95: round(percentile(started, 0.95)),
      floorP50: p50(floor),
      ratio: round(p50(started) / p50(floor)),
    },
    crashToRestarted: { p50: p50(await step("crash to restarted", () => agent.crashToRestarted(containerd, runs))) },
    agentStartToAdopted: {
      p50: p50(await step("agent start to adopted", () => agent.startToAdopted(containerd, 20, Math.ceil(runs / 2)))),
    },
    agentStartToFirstPod: {
      p50: p50(await step("agent start to first pod", () => agent.startToFirstPod(containerd, Math.ceil(runs / 2)))),
    },
    pods40ToRunning: await step("40 pods to running", () => agent.manyToRunning(containerd, 40)),
  };
}

function tunnel(containerd: Containerd, { quick }: Settings): Promise<unknown> {
  return tunnelFigures(containerd, { quick, step });
}

async function diskFigures(containerd: Containerd, { writesWindowMs }: Settings): Promise<unknown> {
  return { bytesPerHourIdle: await step("writes at rest", () => idleWrites(containerd, writesWindowMs)) };
}

function edgectlFigures(containerd: Containerd, { runs }: Settings): Promise<unknown> {
  return step("edgectl status", async () => {
    await using node = nodeWith(containerd);
    await node.start();
    return { status: await agent.edgectlStatus(node, runs) };
  });
}

const refuse = (message: string): never => endWithUsageError(OPTIONS.name, usageError(message));

/** Parts that are measured, in the document's order. */
function partsOf(only: string | undefined, kubelet: string | undefined): readonly string[] {
  const names = Object.keys(PARTS);
  const wanted = only?.split(",") ?? names.filter((name) => name !== "kubelet" || kubelet !== undefined);
  const unknown = wanted.filter((name) => !names.includes(name));
  if (unknown.length > 0) refuse(`the bench has no part ${unknown.join(", ")}`);
  if (wanted.includes("kubelet") && kubelet === undefined) refuse("the part kubelet needs --kubelet FILE");
  if (kubelet !== undefined && only !== undefined && !wanted.includes("kubelet")) wanted.push("kubelet");
  return names.filter((name) => wanted.includes(name));
}

const options = readOptions(OPTIONS);
const [quick, kubelet, isUnjudged] = [options.flag("quick"), options.value(KUBELET), options.flag("no-judge")];
const wanted = partsOf(options.value(ONLY), kubelet);
if (kubelet !== undefined) {
  try {
    console.error(`${kubelet}: ${kubeletVersion(kubelet)}`);
  } catch (error) {
    refuse(describeError(error));
  }
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

const settings: Settings = {
  ...{ quick, kubelet },
  restWindowMs: quick ? 15_000 : 60_000,
  writesWindowMs: quick ? 60_000 : 600_000,
  runs: quick ? 5 : 20,
  churnedPods: quick ? 1500 : 10_000,
};
const figures: Record<string, unknown> = {};
const failed: string[] = [];
{
  await using containerd = await Containerd.start();
  for (const name of wanted) {
    try {
      figures[name] = await PARTS[name]?.measure(containerd, settings);
    } catch (error) {
      // What the others have measured is not lost with it.
      failed.push(name);
      console.error(`\nthe part ${name} failed:`, error);
    }
  }
}
const ratios = ratiosOf(figures);
const measured = wanted.filter((name) => !failed.includes(name));
const verdicts = isUnjudged ? [] : judge(figures, [...GOALS, ...LEAN_GOALS], { parts: measured, quick });
const missedGoals = describeMissed(verdicts);
const judged = isUnjudged ? {} : { goals: verdicts, missedGoals };
console.log(JSON.stringify({ ...figures, ratios, failed, ...judged }, null, 2));
for (const line of missedGoals) console.error(`MISSED ${line}`);
if (!isUnjudged) console.error(`${verdicts.length - missedGoals.length} of ${verdicts.length} goals are met`);
process.exitCode = failed.length + missedGoals.length > 0 ? 1 : 0;
