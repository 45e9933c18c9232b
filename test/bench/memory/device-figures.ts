/** Figures of device plugins: the memory that one adds to an agent at rest, and the start of a pod with its device. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerIdOf, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { TestDevicePlugin } from "../../support/unit/plugins/test-device-plugin.ts";
import { SETTLE_MS, startedAtMs } from "../agent/agent-figures.ts";
import { memoryOf, round, type Spread, spreadOf } from "../measure/process-usage.ts";
import { inspectable } from "./inspector.ts";
import { liveHeapMiB } from "./lean-figures.ts";

const RESOURCE = "example.com/camera";
/** Takes the least of several agents, because a grown heap differs by 1 MiB from start to start. */
const AGENTS = 4;
/** Between two readings, of which the least counts. */
const READING_MS = 5_000;

interface Measured {
  readonly node: AgentNode;
  readonly hasPlugin: boolean;
}

export interface DeviceMemory {
  readonly anonMiBAdded: number;
  /** The steady part of it, without what V8 keeps of a grown heap. */
  readonly liveHeapMiBAdded: number;
  readonly spread: Readonly<Record<"anonMiB" | "anonMiBWithPlugin", Spread>>;
}

/** Agents without and with a plugin, which are left alone from now on. */
export class DeviceAgents implements AsyncDisposable {
  readonly #all: readonly Measured[];
  readonly #started: AsyncDisposableStack;

  private constructor(all: readonly Measured[], started: AsyncDisposableStack) {
    this.#all = all;
    this.#started = started;
  }

  static async start(containerd: Containerd): Promise<DeviceAgents> {
    await using started = new AsyncDisposableStack();
    const all: Measured[] = [];
    for (let index = 0; index < 2 * AGENTS; index += 1) {
      const node = started.use(nodeWith(containerd));
      await inspectable(() => node.start());
      const hasPlugin = index % 2 === 1;
      if (hasPlugin) started.defer((await pluggedIn(node)).stop);
      all.push({ node, hasPlugin });
    }
    return new DeviceAgents(all, started.move());
  }

  async rest(windowMs: number): Promise<DeviceMemory> {
    await delay(SETTLE_MS);
    const least = new Map(this.#all.map((each) => [each, Number.POSITIVE_INFINITY]));
    for (const endAt = performance.now() + windowMs; performance.now() < endAt; await delay(READING_MS))
      for (const [each, anonMiB] of least) least.set(each, Math.min(anonMiB, memoryOf(each.node.pid).anonMiB));
    const of = (hasPlugin: boolean): Measured[] => this.#all.filter((each) => each.hasPlugin === hasPlugin);
    const anon = (hasPlugin: boolean): number[] => of(hasPlugin).map((each) => least.get(each) ?? 0);
    const live = async (hasPlugin: boolean): Promise<number> =>
      Math.min(...(await Promise.all(of(hasPlugin).map(({ node }) => liveHeapMiB(node)))));
    return {
      anonMiBAdded: round(Math.min(...anon(true)) - Math.min(...anon(false))),
      liveHeapMiBAdded: round((await live(true)) - (await live(false))),
      spread: { anonMiB: spreadOf(anon(false)), anonMiBWithPlugin: spreadOf(anon(true)) },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.disposeAsync();
  }
}

/** Registers a plugin with one device. */
async function pluggedIn(node: AgentNode): Promise<{ readonly stop: () => void }> {
  const folder = join(node.directory, "root", "device-plugins");
  const plugin = new TestDevicePlugin({ folder, resource: RESOURCE, devices: [{ ID: "a", health: "Healthy" }] });
  await plugin.start();
  await node.waitForStatus("a camera", ({ resources }) => resources.allocatable[RESOURCE] === "1");
  return { stop: () => plugin.stop() };
}

/** Seconds from a manifest's rename into the folder to its container's start, in turns without and with a device. */
export async function deviceStarts(
  containerd: Containerd,
  runs: number,
): Promise<{ readonly without: readonly number[]; readonly withDevice: readonly number[] }> {
  await using node = nodeWith(containerd);
  await node.start();
  const plugin = await pluggedIn(node);
  const [without, withDevice]: [number[], number[]] = [[], []];
  try {
    for (let run = 0; run < 2 * runs; run += 1) {
      const limits = run % 2 === 0 ? {} : { [RESOURCE]: "1" };
      const writtenAt = node.writeManifest("p.json", withLimits(limits));
      const pods = await node.waitForPods("a ready pod", allReady(1));
      const startedAt = await startedAtMs(containerd, containerIdOf(pods.get("p-node")));
      (run % 2 === 0 ? without : withDevice).push((startedAt - writtenAt) / 1000);
      await node.drain();
    }
  } finally {
    plugin.stop();
  }
  return { without, withDevice };
}

function withLimits(limits: Readonly<Record<string, string>>): unknown {
  const pod = containerPod("p") as { readonly spec: { readonly containers: readonly object[] } };
  const containers = pod.spec.containers.map((each) => ({ ...each, resources: { limits } }));
  return { ...pod, spec: { ...pod.spec, containers } };
}
