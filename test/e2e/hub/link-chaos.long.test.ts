/**
 * A board behind a bad network: random changes to its pods in the API server while the link is cut, silent, damaged,
 * slow or narrow, and the agent, the hub or both are killed. At the end of each schedule both sides agree, and no
 * container that was healthy throughout has been restarted. Real hub, real agent, real components and containers.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { type KubeClient, type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { millis, type Random } from "@picolet/protocol/ports.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { restartsOf } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { settled } from "../../support/unit/ports/settled.ts";
import { LinkProxy } from "../../support/unit/tunnel/link-proxy.ts";

const skip = containerdMissing() ?? false;
const SCHEDULES = Number(process.env.PICOLET_LINK_SCHEDULES ?? 12);
const FIRST_SEED = Number(process.env.PICOLET_LINK_SEED ?? 1);
/** The first of them are components, the others containers. */
const NAMES = ["a", "b", "c", "d"];
const COMPONENTS = new Set(["a", "b"]);
const STEPS = 6;
/** Between two steps, at the longest: what is under way is met in its middle. */
const LONGEST_PAUSE_MS = 400;
const NEVER = new AbortController().signal;
const NAMESPACE = "default";

/** A failing disposal does not prevent the others. */
const owned = new AsyncDisposableStack();
let containerd: Containerd;
let fleet: Fleet;
let proxy: LinkProxy;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = owned.use(await Containerd.start());
  fleet = owned.use(await Fleet.start(["--drain-time", "1s"]));
  proxy = owned.use(await LinkProxy.start(() => fleet.tunnelPort, seededRandom(1)));
  const hub = {
    ...(await fleet.joinConfig(proxy.port)),
    heartbeatInterval: "5s",
    reconnectBackoff: { initial: "100ms", max: "1s" },
  };
  node = owned.use(nodeWith(containerd, { config: { nodeName: "board", hub } }));
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
});

after(async () => {
  await owned.disposeAsync();
});

/** The schedules' requests: the UID of each pod that must run. */
type Wanted = Map<string, string>;

/** How often the agent has been killed. */
let kills = 0;
/**
 * The same when a pod was made, by UID: containerd ends a container whose start was cut off, and the next agent's is
 * another.
 */
const killsBefore = new Map<string, number>();
const cutOffStarts = (name: string, uid: string): number =>
  COMPONENTS.has(name) ? 0 : kills - (killsBefore.get(uid) ?? kills);

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
  const pod = (COMPONENTS.has(name) ? componentPod(name) : containerPod(name)) as Pod;
  const env = [{ name: "GENERATION", value: String(generation) }];
  const containers = pod.spec.containers.map((each) => ({ ...each, env }));
  return { ...pod, spec: { ...pod.spec, containers, nodeName: "board" } } as unknown as KubeObject;
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
    const uid = made.metadata.uid ?? "";
    wanted.set(name, uid);
    killsBefore.set(uid, kills);
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
  if (victims.includes("agent")) {
    await node.kill();
    kills += 1;
  }
  await pause(random);
  if (victims.includes("hub")) await fleet.startHub();
  if (victims.includes("agent")) await node.start();
  return `killed ${victims.join(" and ")}`;
}

/**
 * Follows the API server's pods, by name, until they fit. @throws with `seen` and all that is known of them otherwise
 */
async function untilShown(seen: string, fits: (pods: PodsByName) => boolean): Promise<void> {
  await withClient(async (client) => {
    const limit = AbortSignal.timeout(60_000);
    const { items, resourceVersion } = await client.list(PODS, { namespace: NAMESPACE }, limit);
    const pods = new Map(items.map((pod) => [pod.metadata.name, asPod(pod)]));
    try {
      if (fits(pods)) return;
      for await (const event of client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, limit)) {
        if (event.type === "BOOKMARK") continue;
        if (event.type === "DELETED") pods.delete(event.object.metadata.name);
        else pods.set(event.object.metadata.name, asPod(event.object));
        if (fits(pods)) return;
      }
      throw new Error("the watch ended");
    } catch (cause) {
      const shown = [...pods.values()].map(({ metadata, status }) => JSON.stringify({ metadata, status }));
      const logs = [node.log.slice(-4000), ...fleet.log.slice(-20)];
      throw new Error(`${seen}: never shown by the API server\n${[...shown, ...logs].join("\n")}`, { cause });
    }
  });
}

const asPod = (object: KubeObject): Pod => object as unknown as Pod;

/** Identity of what runs: it must not change while the pod is wanted and healthy. */
const runOf = (pod: Pod | undefined): string => `${containerIdOf(pod)} ${restartsOf(pod)}`;

test(`${SCHEDULES} schedules of changes, bad links and crashes end in agreement, with nothing healthy restarted`, {
  skip,
}, async (context) => {
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
    const isAgreed = (shown: PodsByName): boolean =>
      shown.size === wanted.size &&
      [...wanted].every(([name, uid]) => shown.get(name)?.metadata.uid === uid) &&
      [...shown.values()].every(isReady);
    await untilShown(`${seen}: what is wanted`, isAgreed);
    const pods = await node.waitForPods(`${seen}: the node's agreement`, isAgreed);
    const isTold = ([name, pod]: [string, Pod]): boolean => runOf(pod) === runOf(pods.get(name));
    await untilShown(`${seen}: what runs`, (shown) => isAgreed(shown) && [...shown].every(isTold));
    const now = new Map([...pods].map(([name, pod]) => [pod.metadata.uid ?? name, runOf(pod)]));
    for (const [name, uid] of wanted) {
      const told = `${seen}: ${name}: ${JSON.stringify(pods.get(name)?.status)}\n${node.log.slice(-4000)}`;
      if (before.get(name) === uid) assert.equal(now.get(uid), runs.get(uid), `restarted: ${told}`);
      else assert.ok(restartsOf(pods.get(name)) <= cutOffStarts(name, uid), `started twice: ${told}`);
    }
    const components = [...wanted.keys()].filter((name) => COMPONENTS.has(name)).length;
    assert.equal(node.runnerPids().length, components, `${seen}: one process for each component`);
    // containerd undoes in its own time what it was making when the agent died.
    const wrong = await settled(() => {
      const tasks = containerd.ctr("tasks", "list", "--quiet").split("\n").filter(Boolean);
      return tasks.length === 2 * (wanted.size - components) ? [] : tasks;
    });
    assert.deepEqual(wrong, [], `${seen}: a sandbox and a container for each pod of containers`);
    runs = now;
  }
  context.diagnostic(`${proxy.connections} connections`);
});
