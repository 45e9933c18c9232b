/**
 * DaemonSets over the real API server while nodes come and go, templates change, pods die and the controllers are
 * killed and started again at any moment, all from one seed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type KubeClient,
  type KubeObject,
  type ListOptions,
  NODES,
  type ObjectRef,
  PODS,
  type ResourceType,
  type WatchEvent,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { DAEMON_SETS } from "@picolet/hub-core/kube-client/resource-types.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { EmbeddedCluster } from "@picolet/test/support/unit/embedded/in-process-cluster.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { podOf } from "../../api/typed-objects.ts";
import { REVISION_LABEL, targetNode } from "./daemon-set.ts";

const SEEDS = Number(process.env.SIM_SEEDS ?? 6);
const FIRST_SEED = Number(process.env.SIM_SEED ?? 1);
const STEPS = 60;
const NODE_NAMES = ["a", "b", "c", "d", "e"];
const { signal } = new AbortController();

const daemonSet = (image: string, maxSurge: number): KubeObject => ({
  apiVersion: "apps/v1",
  kind: "DaemonSet",
  metadata: { name: "web", namespace: "default" },
  spec: {
    selector: { matchLabels: { app: "web" } },
    updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxSurge, maxUnavailable: maxSurge > 0 ? 0 : 1 } },
    template: { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "app", image }] } },
  },
});

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
/** Turns of the event loop by which watches may lag, and answers may be late. */
const MAX_LAG = 12;
/** The share of requests that fail, half of them after they were carried out. */
const FAILURE_RATE = 0.1;

type Write = "create" | "update" | "patch" | "delete";

/**
 * A client over a bad connection: its reads are late, and some writes get no answer although they may have been carried
 * out.
 */
function unreliable(client: KubeClient, random: Random): KubeClient {
  const lag = async (): Promise<void> => {
    for (let left = Math.floor(random.next() * MAX_LAG); left > 0; left -= 1) await turn();
  };
  const fail = (): never => {
    throw new PicoletError("unavailable", "the connection broke", { retryable: true });
  };
  const write = <Name extends Write>(name: Name): KubeClient[Name] =>
    (async (...args: unknown[]) => {
      const lot = random.next();
      if (lot < FAILURE_RATE / 2) fail();
      await lag();
      const result = await (client[name] as (...all: unknown[]) => Promise<unknown>)(...args);
      if (lot < FAILURE_RATE) fail();
      return result;
    }) as KubeClient[Name];
  return {
    async get(type: ResourceType, ref: ObjectRef, signal: AbortSignal) {
      await lag();
      return await client.get(type, ref, signal);
    },
    list: (type, options, signal) => client.list(type, options, signal),
    async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent> {
      for await (const event of client.watch(type, options, signal)) {
        await lag();
        yield event;
      }
    },
    create: write("create"),
    update: write("update"),
    patch: write("patch"),
    delete: write("delete"),
    as: (user, groups) => unreliable(client.as(user, groups), random),
  };
}

class Simulation {
  readonly #cluster: EmbeddedCluster;
  readonly #clock: VirtualClock;
  readonly #random: Random;
  readonly #maxSurge: number;
  #image = 0;
  #isRunning = true;

  constructor(cluster: EmbeddedCluster, clock: VirtualClock, random: Random) {
    this.#cluster = cluster;
    this.#clock = clock;
    this.#random = random;
    this.#maxSurge = random.next() < 0.3 ? 1 : 0;
  }

  async start(): Promise<void> {
    const set = daemonSet("img:0", this.#maxSurge);
    await this.#cluster.client.create(DAEMON_SETS, { namespace: "default", name: "web" }, set, {}, signal);
    this.#cluster.playAgents();
  }

  async step(): Promise<void> {
    await this.#turns(Math.floor(this.#random.next() * 40));
    const deeds = [
      () => this.#addNode(),
      () => this.#addNode(),
      () => this.#removeNode(),
      () => this.#changeTemplate(),
      () => this.#deletePod(),
      () => this.#failPod(),
      () => this.#toggle(),
      () => this.#toggle(),
      () => this.#clock.advance(millis(Math.floor(this.#random.next() * 3000))),
    ];
    await deeds[Math.floor(this.#random.next() * deeds.length)]?.();
  }

  /** Until nothing changes any more. */
  async settle(): Promise<void> {
    if (!this.#isRunning) await this.#toggle();
    for (let round = 0; round < 60; round += 1) {
      for (const name of await this.#nodeNames()) await this.#cluster.heartbeat(name);
      await this.#turns(200);
      await this.#clock.advance(seconds(30));
    }
  }

  async check(): Promise<void> {
    const { client } = this.#cluster;
    const pods = (await client.list(PODS, {}, signal)).items.map(podOf);
    const names = (await this.#nodeNames()).sort();
    assert.deepEqual(pods.map((pod) => pod.spec.nodeName).sort(), names, "one pod on each node");
    assert.ok(pods.every((pod) => pod.spec.containers[0]?.image === `img:${this.#image}`));
    assert.equal(new Set(pods.map(({ metadata }) => metadata.labels?.[REVISION_LABEL])).size, names.length > 0 ? 1 : 0);
    const set = await client.get(DAEMON_SETS, { namespace: "default", name: "web" }, signal);
    const status = set.status as Record<string, number>;
    assert.equal(status.observedGeneration, set.metadata.generation);
    for (const counter of ["desiredNumberScheduled", "currentNumberScheduled", "numberReady"]) {
      assert.equal(status[counter], names.length, counter);
    }
  }

  /** Watches that there are never two where one may be. */
  async guard(until: AbortSignal): Promise<void> {
    const alive = new Map<string, string>();
    const { resourceVersion } = await this.#cluster.client.list(PODS, {}, signal);
    for await (const event of this.#cluster.client.watch(PODS, { resourceVersion }, until)) {
      if (event.type === "BOOKMARK") continue;
      const pod = podOf(event.object);
      const uid = pod.metadata.uid ?? "";
      if (event.type === "DELETED" || pod.metadata.deletionTimestamp !== undefined) alive.delete(uid);
      else alive.set(uid, targetNode(pod) ?? "");
      const node = targetNode(pod) ?? "";
      const count = [...alive.values()].filter((each) => each === node).length;
      assert.ok(count <= 1 + this.#maxSurge, `${count} pods on ${node}: ${pod.metadata.name} came last`);
    }
  }

  async #turns(count: number): Promise<void> {
    for (let turn = 0; turn < count; turn += 1) await this.#clock.settle();
  }

  async #nodeNames(): Promise<string[]> {
    return (await this.#cluster.client.list(NODES, {}, signal)).items.map(({ metadata }) => metadata.name);
  }

  #pick<T>(all: readonly T[]): T | undefined {
    return all[Math.floor(this.#random.next() * all.length)];
  }

  async #addNode(): Promise<void> {
    const there = await this.#nodeNames();
    const name = this.#pick(NODE_NAMES.filter((each) => !there.includes(each)));
    if (name !== undefined) await this.#cluster.addNode(name);
  }

  async #removeNode(): Promise<void> {
    const name = this.#pick(await this.#nodeNames());
    if (name !== undefined) await this.#cluster.client.delete(NODES, { namespace: "", name }, {}, signal);
  }

  async #changeTemplate(): Promise<void> {
    this.#image += 1;
    const { spec } = daemonSet(`img:${this.#image}`, this.#maxSurge);
    const ref = { namespace: "default", name: "web" };
    await this.#cluster.client.patch(DAEMON_SETS, ref, "strategic", { spec }, {}, signal);
  }

  async #deletePod(): Promise<void> {
    const pod = this.#pick((await this.#cluster.client.list(PODS, {}, signal)).items);
    if (pod === undefined) return;
    const { namespace = "", name } = pod.metadata;
    await this.#cluster.client.delete(PODS, { namespace, name }, {}, signal).catch(() => undefined);
  }

  async #failPod(): Promise<void> {
    const pod = this.#pick((await this.#cluster.client.list(PODS, {}, signal)).items);
    if (pod === undefined) return;
    const { namespace = "", name } = pod.metadata;
    const status = { phase: "Failed", conditions: [{ type: "Ready", status: "False" }] };
    const options = { subresource: "status" };
    await this.#cluster.client
      .patch(PODS, { namespace, name }, "strategic", { status }, options, signal)
      .catch(() => undefined);
  }

  /** Kills the controllers in the middle of what they do, or starts them. */
  async #toggle(): Promise<void> {
    if (this.#isRunning) await this.#cluster.stopControllers();
    else this.#cluster.startControllers();
    this.#isRunning = !this.#isRunning;
  }
}

for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
  test(`seed ${seed}: one pod on each node in the end, and never two`, async () => {
    const random = seededRandom(seed);
    const clock = new VirtualClock(undefined, random);
    await using cluster = await EmbeddedCluster.start({
      clock,
      random,
      controllersClient: (client) => unreliable(client, random),
    });
    const simulation = new Simulation(cluster, clock, random);
    const end = new AbortController();
    await simulation.start();
    const guarded = simulation.guard(end.signal);
    guarded.catch(() => undefined);
    for (let step = 0; step < STEPS; step += 1) await simulation.step();
    await simulation.settle();
    await simulation.check();
    end.abort();
    await guarded.catch((error: unknown) => {
      if (error instanceof assert.AssertionError) throw error;
    });
  });
}
