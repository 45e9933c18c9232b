/**
 * A board behind a bad network: random changes to its pods in the API server while the link is cut, silent, damaged, slow
 * or narrow, and the agent, the hub or both are killed. At the end of each schedule both sides agree, and whatever was
 * healthy throughout has not been restarted. Real hub, real agent, real components.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type KubeClient, type KubeObject, PODS } from "../../hub/core/kube-client.ts";
import { HttpKubeClient } from "../../hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "../../hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "../../hub/kubernetes/kubeconfig-access.ts";
import { systemClock } from "../../protocol/async/system-clock.ts";
import { isPicoletError } from "../../protocol/errors.ts";
import type { Pod } from "../../protocol/pod.ts";
import { millis, type Random } from "../../protocol/ports.ts";
import { isReady, type PodsByName } from "../../scripts/follow-pods.ts";
import type { AgentNode } from "../support/agent-process.ts";
import { restartsOf } from "../support/agent-process.ts";
import { Fleet } from "../support/fleet.ts";
import { LinkProxy } from "../support/link-proxy.ts";
import {
  componentPod,
  containerIdOf,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../support/node-fixtures.ts";
import { seededRandom } from "../support/seeded-random.ts";

const SCHEDULES = Number(process.env.PICOLET_LINK_SCHEDULES ?? 20);
const FIRST_SEED = Number(process.env.PICOLET_LINK_SEED ?? 1);
const NAMES = ["a", "b", "c", "d"];
const STEPS = 6;
/** Between two steps, at the longest: what is under way is met in its middle. */
const LONGEST_PAUSE_MS = 400;
const NEVER = new AbortController().signal;
const NAMESPACE = "default";

let fleet: Fleet;
let proxy: LinkProxy;
let node: AgentNode;

before(async () => {
  fleet = await Fleet.start(["--drain-time", "1s"]);
  proxy = await LinkProxy.start(() => fleet.tunnelPort, seededRandom(1));
  const hub = {
    ...(await fleet.joinConfig(proxy.port)),
    heartbeatInterval: "5s",
    reconnectBackoff: { initial: "100ms", max: "1s" },
  };
  node = nodeWith(undefined, { config: { nodeName: "board", hub } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
});

after(async () => {
  await node?.[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await fleet?.[Symbol.asyncDispose]();
});

/** What the schedule has asked for: the UID of each pod that is to run. */
type Wanted = Map<string, string>;

const pick = <T>(random: Random, list: readonly T[]): T => {
  const item = list[Math.floor(random.next() * list.length)];
  assert.ok(item !== undefined);
  return item;
};

const pause = (random: Random): Promise<void> => systemClock.sleep(millis(random.next() * LONGEST_PAUSE_MS), NEVER);

/** A client of the hub that runs now; the administrator's link is a good one. */
async function withClient<T>(task: (client: KubeClient) => Promise<T>): Promise<T> {
  const access = await loadKubeconfigAccess({ kubeconfig: fleet.ready.kubeconfig });
  await using transport = new KubeTransport({ access, clock: systemClock, random: { next: Math.random } });
  return await task(new HttpKubeClient(transport));
}

function podNamed(name: string, generation: number): KubeObject {
  const pod = componentPod(name, { env: [{ name: "GENERATION", value: String(generation) }] }) as {
    readonly spec: object;
  };
  return { ...pod, spec: { ...pod.spec, nodeName: "board" } } as unknown as KubeObject;
}

async function change(client: KubeClient, random: Random, wanted: Wanted, generation: number): Promise<void> {
  const name = pick(random, NAMES);
  const ref = { namespace: NAMESPACE, name };
  if (wanted.has(name)) {
    const isForced = random.next() < 0.3;
    await client.delete(PODS, ref, isForced ? { gracePeriodSeconds: 0 } : {}, NEVER);
    wanted.delete(name);
    return;
  }
  try {
    const made = await client.create(PODS, { ...ref, name: "" }, podNamed(name, generation), {}, NEVER);
    wanted.set(name, made.metadata.uid ?? "");
  } catch (error) {
    // The one before it is still being ended.
    if (!isPicoletError(error, "already_exists")) throw error;
  }
}

async function step(random: Random, wanted: Wanted, generation: number): Promise<string> {
  const kind = random.next();
  if (kind < 0.5) {
    await withClient((client) => change(client, random, wanted, generation));
    return "change";
  }
  if (kind < 0.6) {
    proxy.cut();
    return "cut";
  }
  if (kind < 0.85) {
    const behaviour = pick(random, [
      { silent: true },
      { refuses: true },
      { corruption: 0.05 },
      { latencyMs: 300 },
      { chunkBytes: 1 },
      { bytesPerSecond: 1250 },
    ]);
    proxy.behave(behaviour);
    return JSON.stringify(behaviour);
  }
  if (kind < 0.9) {
    proxy.heal();
    return "heal";
  }
  const victims = pick(random, [["agent"], ["hub"], ["agent", "hub"]]);
  if (victims.includes("hub")) await fleet.endHub("SIGKILL");
  if (victims.includes("agent")) await node.kill();
  await pause(random);
  if (victims.includes("hub")) await fleet.startHub();
  if (victims.includes("agent")) await node.start();
  return `killed ${victims.join(" and ")}`;
}

/** Follows the API server's pods until they are exactly those wanted, all Ready. */
async function untilAgreed(wanted: Wanted, seen: string): Promise<void> {
  await withClient(async (client) => {
    const limit = AbortSignal.timeout(60_000);
    const { items, resourceVersion } = await client.list(PODS, { namespace: NAMESPACE }, limit);
    const pods = new Map(items.map((pod) => [pod.metadata.name, pod]));
    const agreed = (): boolean =>
      pods.size === wanted.size &&
      [...pods.values()].every((pod) => wanted.get(pod.metadata.name) === pod.metadata.uid && isReady(asPod(pod)));
    try {
      if (agreed()) return;
      for await (const event of client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, limit)) {
        if (event.type === "BOOKMARK") continue;
        if (event.type === "DELETED") pods.delete(event.object.metadata.name);
        else pods.set(event.object.metadata.name, event.object);
        if (agreed()) return;
      }
      throw new Error("the watch ended");
    } catch (cause) {
      const there = [...pods.values()].map(
        (pod) =>
          `${pod.metadata.name} ${pod.metadata.uid} ${pod.metadata.deletionTimestamp} ${JSON.stringify(pod.status)}`,
      );
      const shown = [
        seen,
        `wanted ${JSON.stringify([...wanted])}`,
        ...there,
        node.log.slice(-4000),
        ...fleet.log.slice(-20),
      ];
      throw new Error(`the API server never showed what was wanted\n${shown.join("\n")}`, { cause });
    }
  });
}

const asPod = (object: KubeObject): Pod => object as unknown as Pod;

/** Identity of what runs: it must not change while the pod is wanted and healthy. */
const runOf = (pod: Pod | undefined): string => `${containerIdOf(pod)} ${restartsOf(pod)}`;

test(`${SCHEDULES} schedules of changes, bad links and crashes end in agreement, with nothing healthy restarted`, async (context) => {
  const wanted: Wanted = new Map();
  let runs = new Map<string, string>();
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SCHEDULES; seed += 1) {
    const random = seededRandom(seed);
    const done: string[] = [];
    const before = new Map(wanted);
    for (let index = 0; index < STEPS; index += 1) {
      done.push(await step(random, wanted, seed * STEPS + index));
      await pause(random);
    }
    proxy.heal();
    const seen = `seed ${seed}: ${done.join(", ")}`;
    await untilAgreed(wanted, seen);
    const isAgreed = (pods: PodsByName): boolean =>
      pods.size === wanted.size &&
      [...pods].every(([name, pod]) => pod.metadata.uid === wanted.get(name) && isReady(pod));
    const pods = await node.waitForPods(`${seen}: the node's agreement`, isAgreed);
    const now = new Map([...pods].map(([name, pod]) => [pod.metadata.uid ?? name, runOf(pod)]));
    for (const [name, uid] of wanted) {
      if (before.get(name) === uid) assert.equal(now.get(uid), runs.get(uid), `${seen}: ${name} was restarted`);
      assert.match(now.get(uid) ?? "", / 0$/, `${seen}: ${name} was started twice`);
    }
    assert.equal(node.runnerPids().length, wanted.size, `${seen}: one process for each pod`);
    runs = now;
  }
  context.diagnostic(`${proxy.connections} connections`);
});
