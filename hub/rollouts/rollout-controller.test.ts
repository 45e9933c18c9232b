import assert from "node:assert/strict";
import { test } from "node:test";
import type { FleetNode, FleetNodes } from "@picolet/hub-core/fleet.ts";
import type { KubeClient, KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { onlyReplica } from "./leadership.ts";
import { rolloutData } from "./rollout.ts";
import { RolloutController } from "./rollout-controller.ts";

const BOARDS = 1000;
/** Boards whose Nodes change in a second: heartbeats and reports of a fleet. */
const CHANGES = 10;
const ROUNDS = 20;
/** Ten times what it takes: a list or a walk for each board would be far beyond. */
const MOST_CPU_MS = 15;

/** An API server that has one rollout, and Nodes in memory whose watch is as fast as the writes. */
class MemoryFleet {
  readonly requests: string[] = [];
  readonly #nodes = new Map<string, FleetNode>();
  readonly #followers = new Set<(name: string) => void>();
  #version = 10;
  rollout: KubeObject = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: {
      name: "r",
      namespace: "picolet-system",
      uid: "r-uid",
      resourceVersion: "9",
      creationTimestamp: "2026-01-01T00:00:00Z",
      labels: { "picolet.io/rollout": "os" },
    },
    data: rolloutData({
      kind: "os",
      target: "registry.example/os:2",
      selector: "",
      hub: "h",
      maxUnavailable: "10%",
      maxFailures: 3,
      canary: 0,
      window: undefined,
      bandwidth: undefined,
      healthDeadline: undefined,
      allowDowngrade: false,
    }),
  };

  constructor(count: number) {
    for (let index = 0; index < count; index += 1) {
      const name = `board-${index}`;
      const base = { name, uid: `${name}-uid`, resourceVersion: "5", labels: { role: "edge" }, annotations: {} };
      this.#nodes.set(name, { ...base, ready: "True", updateReport: undefined });
    }
  }

  get nodes(): FleetNodes {
    return {
      synced: new WatchSource(true),
      names: () => this.#nodes.keys(),
      node: (name) => this.#nodes.get(name),
      view: () => undefined,
      follow: (onChange) => {
        this.#followers.add(onChange);
        return { [Symbol.dispose]: () => void this.#followers.delete(onChange) };
      },
    };
  }

  change(name: string, annotations: Readonly<Record<string, string>>): string {
    const node = this.#nodes.get(name);
    assert.ok(node !== undefined);
    this.#version += 1;
    const resourceVersion = String(this.#version);
    this.#nodes.set(name, { ...node, resourceVersion, annotations: { ...node.annotations, ...annotations } });
    for (const follower of this.#followers) follower(name);
    return resourceVersion;
  }

  get client(): KubeClient {
    const patch = async (type: ResourceType, ref: { readonly name: string }, _kind: string, body: unknown) => {
      this.requests.push(`patch ${type.plural}`);
      const { metadata, data } = body as { metadata: { annotations: Record<string, string> }; data: object };
      if (type.plural === "nodes") {
        const given = Object.entries(metadata.annotations).filter(([, value]) => value !== null);
        return { metadata: { resourceVersion: this.change(ref.name, Object.fromEntries(given)) } };
      }
      this.#version += 1;
      const version = { ...this.rollout.metadata, resourceVersion: String(this.#version) };
      this.rollout = { ...this.rollout, metadata: version, data: { ...(this.rollout.data as object), ...data } };
      return this.rollout;
    };
    const list = async (type: ResourceType) => {
      this.requests.push(`list ${type.plural}`);
      return { items: [this.rollout], resourceVersion: "9", continue: undefined };
    };
    async function* watch(_type: ResourceType, _options: object, signal: AbortSignal) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      yield* [];
    }
    return { patch, list, watch } as unknown as KubeClient;
  }
}

test("a round over 1,000 boards lists nothing, writes 25 Nodes at most, and costs little", async (context) => {
  const [fleet, clock, log] = [new MemoryFleet(BOARDS), new VirtualClock(), new RecordedLog()];
  const { client, nodes } = fleet;
  const parts = { client, clientOf: () => client, nodes, clock, log, random: seededRandom(1) };
  const ports = { ...parts, leadership: onlyReplica, events: { record: () => undefined } };
  const controller = new RolloutController({ ...ports, parseSelector: () => () => true }, { hub: "h" });
  const life = new AbortController();
  const end = endOfRun(controller.run(life.signal));
  const round = async (): Promise<void> => {
    await clock.advance(seconds(1));
    // Each slice of the Nodes and each write takes a turn of the event loop.
    for (let turn = 0; turn < 100; turn += 1) await clock.settle();
  };
  const turnsOf = (): number => fleet.requests.filter((each) => each === "patch nodes").length;
  let before = 0;
  for (let second = 0; second < 10; second += 1) {
    await round();
    assert.ok(turnsOf() - before <= 2 * 25, "25 in the round at the start of the second, and in that at its end");
    before = turnsOf();
  }
  assert.equal(turnsOf(), BOARDS / 10, "a tenth of the boards has its turn");
  const { user, system } = process.cpuUsage();
  for (let second = 0; second < ROUNDS; second += 1) {
    for (let each = 0; each < CHANGES; each += 1) fleet.change(`board-${second * CHANGES + each}`, {});
    await round();
  }
  const used = process.cpuUsage();
  const milliseconds = (used.user + used.system - user - system) / 1000 / ROUNDS;
  context.diagnostic(`${milliseconds.toFixed(1)} ms of CPU in a round`);
  assert.ok(milliseconds < MOST_CPU_MS, `${milliseconds} ms of CPU in a round`);
  assert.deepEqual(new Set(fleet.requests), new Set(["list configmaps", "patch configmaps", "patch nodes"]));
  assert.equal(fleet.requests.filter((each) => each.startsWith("list")).length, 1);
  life.abort();
  await end;
  assert.deepEqual(
    log.entries.filter(({ level }) => level !== "info"),
    [],
  );
});
