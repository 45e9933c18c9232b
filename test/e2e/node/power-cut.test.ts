/**
 * Repeated power cuts: SIGKILL of the agent at random points of a run of adds, changes and removals. After each, the
 * next agent ends where an agent that was never killed would have ended.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const skip = containerdMissing() ?? false;
const CUTS = Number(process.env.PICOLET_POWER_CUTS ?? 60);
const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
/** Few names, so that most operations meet a pod of that name that is starting, running or ending. */
const NAMES = ["a", "b", "c", "d"];
/** A cut comes this long after the agent was started at the latest: past its start, a pod's start and a pod's end. */
const LATEST_CUT_MS = 700;

interface Wanted {
  readonly kind: "container" | "component";
  readonly generation: string;
}

function manifestOf(name: string, { kind, generation }: Wanted): unknown {
  const env = [{ name: "GENERATION", value: generation }];
  if (kind === "component") return componentPod(name, { env });
  const pod = containerPod(name) as { spec: { containers: Record<string, unknown>[] } };
  for (const container of pod.spec.containers) container.env = env;
  return pod;
}

const generationOf = (pod: Pod): string | undefined =>
  pod.spec.containers[0]?.env?.find(({ name }) => name === "GENERATION")?.value;

function operate(node: AgentNode, wanted: Map<string, Wanted>, random: () => number, step: number): void {
  const name = NAMES[Math.floor(random() * NAMES.length)] ?? "a";
  if (wanted.has(name) && random() < 0.4) {
    wanted.delete(name);
    node.removeManifest(`${name}.json`);
    return;
  }
  const pod: Wanted = { kind: random() < 0.5 ? "container" : "component", generation: String(step) };
  wanted.set(name, pod);
  node.writeManifest(`${name}.json`, manifestOf(name, pod));
}

const areAsWanted =
  (wanted: ReadonlyMap<string, Wanted>) =>
  (pods: ReadonlyMap<string, Pod>): boolean =>
    pods.size === wanted.size &&
    [...wanted].every(([name, { generation }]) => {
      const pod = pods.get(`${name}-node`);
      return pod !== undefined && generationOf(pod) === generation && isReady(pod);
    });

test(`${CUTS} power cuts during adds, changes and removals end where none would have`, { skip }, async () => {
  const random = seededRandom(SEED);
  const next = (): number => random.next();
  await using containerd = await Containerd.start();
  await using node = nodeWith(containerd);
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  const wanted = new Map<string, Wanted>();
  for (let step = 0; step < CUTS; step += 1) {
    operate(node, wanted, next, step);
    if (next() < 0.5) operate(node, wanted, next, step);
    await delay(next() * LATEST_CUT_MS);
    await node.kill();
    node.spawn();
  }
  await node.kill();
  await node.start();
  await node.waitForPods(`the end state (seed ${SEED})`, areAsWanted(wanted));
  const listed = (kind: "containers" | "tasks"): string[] =>
    containerd
      .ctr(kind, "list", "--quiet")
      .split("\n")
      .filter((line) => line.trim() !== "");
  const wantedContainers = [...wanted.values()].filter(({ kind }) => kind === "container").length;
  // containerd undoes in its own time what it was making when an agent died.
  const otherThan = (kind: "containers" | "tasks", fits: (count: number) => boolean) => (): string[] => {
    const all = listed(kind);
    return fits(all.length) ? [] : all;
  };
  const wrongTasks = await settled(otherThan("tasks", (count) => count === 2 * wantedContainers));
  assert.deepEqual(wrongTasks, [], "a sandbox and a container of each pod run, and no other");
  // A start that was cut off leaves a dead run beside the next, as any run that failed does.
  const tooMany = await settled(otherThan("containers", (count) => count <= 3 * wantedContainers));
  assert.deepEqual(tooMany, [], "nothing is left of others");
  assert.equal(node.runnerPids().length, wanted.size - wantedContainers, "one runner a component pod");
  assert.equal(node.podCgroups().length, wanted.size);
  await node.drain();
  assert.deepEqual(node.runnerPids(), []);
  assert.deepEqual(await settled(() => listed("containers")), []);
  assert.deepEqual(node.podCgroups(), []);
});
