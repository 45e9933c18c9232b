/** Figures of the real agent with real containers: memory, CPU, latencies. Sizes in MiB, times in seconds. */
import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import { allReady, containerIdOf, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { PodChurn } from "../../support/agent/pod-churn.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import {
  cpuPercentOf,
  type MemoryFigures,
  memoryOf,
  percentile,
  round,
  type Spread,
  spreadOf,
} from "../measure/process-usage.ts";

export interface RestFigures {
  readonly rssMiB: number;
  readonly pssMiB: number;
  readonly anonMiB: number;
  /** Percent of one core. */
  readonly cpuPercent: number;
  /** Over the parts of the window. */
  readonly spread: Readonly<Record<"rssMiB" | "pssMiB" | "anonMiB" | "cpuPercent", Spread>>;
}

/**
 * After this long with nothing happening, the work and the garbage of pods' starts are over: a minute after an event
 * its count is written and sent, which for fifty pods takes 1.2 s of CPU, 19,000 wake-ups and 380 KB.
 */
export const SETTLE_MS = 90_000;
const STATUS_TIMEOUT_MS = 60_000;

/** An agent with pods that run, which is left alone from now on. */
export interface RestingAgent extends AsyncDisposable {
  readonly node: AgentNode;
  /** Ends its pods. */
  drain(): Promise<void>;
}

/**
 * With `count` container pods.
 * @param prefix of their names, an agent's own: several rest in front of one containerd, with the same node name
 */
export async function startResting(containerd: Containerd, count: number, prefix: string): Promise<RestingAgent> {
  await using started = new AsyncDisposableStack();
  const node = started.use(nodeWith(containerd));
  await node.start();
  for (let index = 0; index < count; index += 1) {
    const name = `${prefix}${index}-of-${count}`;
    node.writeManifest(`${name}.json`, containerPod(name));
  }
  await node.waitForPods(`${count} ready pods`, allReady(count));
  started.move();
  return { node, drain: () => node.drain(), [Symbol.asyncDispose]: () => node[Symbol.asyncDispose]() };
}

/**
 * Measures a process that does nothing from now on. Reading its memory takes the kernel a millisecond, and the process
 * nothing.
 */
export async function restOf(pid: number, windowMs: number, settleMs = SETTLE_MS): Promise<RestFigures> {
  await delay(settleMs);
  const memory: MemoryFigures[] = [];
  const { cpuPercent, spread } = await cpuPercentOf(pid, windowMs, () => memory.push(memoryOf(pid)));
  const spreadOfMemory = (name: keyof MemoryFigures): Spread => spreadOf(memory.map((each) => each[name]));
  return {
    ...memoryOf(pid),
    cpuPercent,
    spread: {
      rssMiB: spreadOfMemory("rssMiB"),
      pssMiB: spreadOfMemory("pssMiB"),
      anonMiB: spreadOfMemory("anonMiB"),
      cpuPercent: spread,
    },
  };
}

/** Come and go at once. */
const PODS_A_ROUND = 50;
/** By then the agent has loaded what it needs, and its rings are full. */
const WARM_UP_PODS = 1000;
/**
 * An agent to which nothing happens for ten seconds collects its garbage, 200 s after the last time at the earliest.
 */
const COLLECTED_MS = 15_000;
const BETWEEN_COLLECTIONS_MS = 215_000;

/**
 * MiB of anonymous memory that the agent has more after `pods` pods have come and gone. In front of a runtime in
 * memory.
 */
export async function anonGrowth(pods: number): Promise<number> {
  await using churn = await PodChurn.start();
  const until = async (count: number): Promise<void> => {
    while (churn.pods < count) await churn.round(PODS_A_ROUND);
    await delay(COLLECTED_MS);
  };
  await until(WARM_UP_PODS);
  const before = churn.anon;
  const collectedAt = performance.now();
  await until(WARM_UP_PODS + pods);
  await delay(Math.max(0, collectedAt + BETWEEN_COLLECTIONS_MS - performance.now()));
  return churn.anon - before;
}

/** Seconds from each manifest's rename into the folder to its container's start, as containerd has it. */
export async function manifestToStarted(containerd: Containerd, runs: number): Promise<number[]> {
  await using node = nodeWith(containerd);
  await node.start();
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const writtenAt = node.writeManifest("p.json", containerPod("p"));
    const pods = await node.waitForPods("a ready pod", allReady(1));
    samples.push(((await startedAtMs(containerd, containerIdOf(pods.get("p-node")))) - writtenAt) / 1000);
    await node.drain();
  }
  return samples;
}

/** When the runtime started the container, as it says itself. Milliseconds since the epoch. */
export async function startedAtMs(containerd: Containerd, containerId: string): Promise<number> {
  using client = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
  const signal = new AbortController().signal;
  const { status } = await client.unary(RuntimeService.containerStatus, { containerId }, STATUS_TIMEOUT_MS, signal);
  if (status === undefined) throw new Error(`containerd knows no container ${containerId}`);
  return status.startedAtMs;
}

/** Seconds from SIGKILL of a container's process to the start of the next. */
export async function crashToRestarted(containerd: Containerd, runs: number): Promise<number[]> {
  await using node = nodeWith(containerd);
  await node.start();
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    node.writeManifest("p.json", containerPod("p"));
    const first = await node.waitForPods("a ready pod", allReady(1));
    const killedAt = Date.now();
    process.kill(containerd.pidOf(containerIdOf(first.get("p-node"))), "SIGKILL");
    const restarted = (pods: ReadonlyMap<string, Pod>): boolean =>
      restartsOf(pods.get("p-node")) === 1 && isReady(pods.get("p-node"));
    const pods = await node.waitForPods("a restart", restarted);
    samples.push(((await startedAtMs(containerd, containerIdOf(pods.get("p-node")))) - killedAt) / 1000);
    await node.drain();
  }
  return samples;
}

/** Seconds from the start of an agent's process until it shows `count` pods that run already as ready. */
export async function startToAdopted(containerd: Containerd, count: number, runs: number): Promise<number[]> {
  await using node = nodeWith(containerd);
  await node.start();
  for (let index = 0; index < count; index += 1) node.writeManifest(`p${index}.json`, containerPod(`p${index}`));
  await node.waitForPods(`${count} ready pods`, allReady(count));
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    await node.kill();
    const startedAt = performance.now();
    await node.start();
    await node.waitForPods("all adopted", allReady(count));
    samples.push((performance.now() - startedAt) / 1000);
  }
  await node.drain();
  return samples;
}

/** Seconds from the start of an agent's process, its one manifest there already, to the container's start. */
export async function startToFirstPod(containerd: Containerd, runs: number): Promise<number[]> {
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    await using node = nodeWith(containerd);
    node.writeManifest("p.json", containerPod("p"));
    const startedAt = Date.now();
    await node.start();
    const pods = await node.waitForPods("a ready pod", allReady(1));
    samples.push(((await startedAtMs(containerd, containerIdOf(pods.get("p-node")))) - startedAt) / 1000);
    await node.drain();
  }
  return samples;
}

/** Seconds until `count` manifests written at once all run. */
export async function manyToRunning(containerd: Containerd, count: number, runs: number): Promise<number[]> {
  await using node = nodeWith(containerd);
  await node.start();
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const startedAt = performance.now();
    for (let index = 0; index < count; index += 1) node.writeManifest(`p${index}.json`, containerPod(`p${index}`));
    await node.waitForPods(`${count} ready pods`, allReady(count));
    samples.push((performance.now() - startedAt) / 1000);
    await node.drain();
  }
  return samples;
}

/** Seconds that `edgectl status` takes, and a Node that does nothing, in turns. */
export async function edgectlStatus(
  node: AgentNode,
  runs: number,
): Promise<{
  readonly p50: number;
  readonly floorP50: number;
  readonly spread: Spread;
  readonly floorSpread: Spread;
}> {
  const timed = (file: string, args: readonly string[]): number => {
    const startedAt = performance.now();
    execFileSync(file, args, { stdio: "ignore" });
    return (performance.now() - startedAt) / 1000;
  };
  const samples: number[] = [];
  const floor: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    samples.push(timed("dist/board/bin/edgectl", ["--socket", node.socketPath, "status"]));
    floor.push(timed("node_modules/node/bin/node", ["-e", "0"]));
  }
  return {
    p50: round(percentile(samples, 0.5)),
    floorP50: round(percentile(floor, 0.5)),
    spread: spreadOf(samples),
    floorSpread: spreadOf(floor),
  };
}
