/**
 * Defaults that the hub's embedded API server gives a pod with its binding, so that the hub changes nothing of it
 * afterwards.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { boardTolerations } from "@picolet/hub/bridge/away-tolerations.ts";
import { conditionsOf, fieldsAt } from "@picolet/hub/bridge/remote-object.ts";
import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { type KubeObject, NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { HUB_USER } from "@picolet/hub-embedded/auth/hub-authorizer.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { KubectlCluster } from "../support/hub/kubectl-cluster.ts";
import { Replica, reportOf, untilDesired } from "../support/unit/kubernetes/bridged-cluster.ts";
import { CallLog, RecordingKubeClient } from "../support/unit/kubernetes/recording-kube-client.ts";

const SAFE = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map((key) => ({
  key,
  operator: "Exists",
  effect: "NoExecute",
}));
const TIMED = SAFE.map((each) => ({ ...each, tolerationSeconds: 300 }));
/** Later than a minute after any pod's creation: the hub would patch at once. */
const LATER: Clock = { ...systemClock, wall: () => new Date(systemClock.wall().getTime() + 61_000) };

const calls = new CallLog();
const { signal } = new AbortController();
let cluster: KubectlCluster;
let replica: Replica;

before(async () => {
  cluster = await KubectlCluster.startFor("1.32", { tolerationsOn: boardTolerations });
  const client = new RecordingKubeClient(cluster.server.client(HUB_USER), calls);
  replica = await new Replica(client, { awayAfter: millis(1) }, LATER).ready();
});

after(async () => {
  await replica[Symbol.asyncDispose]();
  await cluster[Symbol.asyncDispose]();
});

async function joined(node: string, annotations: Record<string, string> = {}): Promise<NodeBackend> {
  const backend = replica.fleet.connect(node);
  await backend.putNode(reportOf(node), signal);
  await cluster.client.patch(NODES, { namespace: "", name: node }, "merge", { metadata: { annotations } }, {}, signal);
  return backend;
}

async function create(name: string, node: string, more: { annotations?: object; nodeName?: string } = {}) {
  const { annotations, nodeName } = more;
  const spec = {
    ...(nodeName === undefined ? { nodeSelector: { "kubernetes.io/hostname": node } } : { nodeName }),
    containers: [{ name: "main", image: "registry.example/app:1" }],
  };
  const metadata = { namespace: "default", name, annotations };
  const pod = { apiVersion: "v1", kind: "Pod", metadata, spec } as KubeObject;
  await cluster.client.create(PODS, { namespace: "default", name }, pod, {}, signal);
  return await placed(name, (found) => fieldsAt(found, "spec").nodeName === node);
}

async function placed(name: string, isReached: (pod: KubeObject) => boolean): Promise<KubeObject> {
  const isIt = (pod: KubeObject): boolean => pod.metadata.name === name && isReached(pod);
  const found = (await cluster.until(PODS, (pods) => pods.some(isIt))).find(isIt);
  assert.ok(found !== undefined);
  return found;
}

const conditionOf = (pod: KubeObject, type: string) => conditionsOf(pod.status).find((each) => each.type === type);
const tolerationsOf = (pod: KubeObject): unknown => fieldsAt(pod, "spec").tolerations;

for (const [what, more] of [
  ["that the scheduler binds", {}],
  ["that names its node", { nodeName: "board-1" }],
] as const) {
  test(`a pod ${what} keeps its first generation, and the hub has nothing to patch when its node is away`, async () => {
    const name = `app-${what.length}`;
    const backend = await joined("board-1");
    const pod = await create(name, "board-1", more);
    assert.deepEqual(tolerationsOf(pod), SAFE);
    assert.equal(pod.metadata.generation, 1);
    await untilDesired(backend, (keys) => keys.has(`Pod/default/${name}`));
    const ready = ["Ready", "ContainersReady"].map((type) => ({ type, status: "True", observedGeneration: 1 }));
    const startTime = "2026-01-01T00:00:00Z";
    const status = { phase: "Running", observedGeneration: 1, startTime, conditions: ready };
    const item = { namespace: "default", name, uid: pod.metadata.uid ?? "", status, gone: false };
    await backend.putStatuses([item], signal);
    const running = await placed(name, (found) => conditionOf(found, "Ready")?.status === "True");
    const scheduled = conditionOf(running, "PodScheduled");
    assert.equal(scheduled?.status, "True");
    assert.equal(scheduled.observedGeneration, 1);
    const before = conditionOf(pod, "PodScheduled")?.lastTransitionTime;
    assert.equal(scheduled.lastTransitionTime, before ?? startTime, "the time is that of the binding");

    await backend[Symbol.asyncDispose]();
    const left = await placed(name, (found) => conditionOf(found, "Ready")?.status === "False");
    assert.equal(left.metadata.generation, 1);
    const patches = calls.all.filter((each) => each.user === "" && each.verb === "patch" && each.name === name);
    assert.deepEqual(patches, []);
  });
}

test("what is to be evicted when its node is away keeps the five minutes", async () => {
  const evict = { "picolet.io/evict-when-away": "true" };
  await using _one = await joined("board-2");
  await using _other = await joined("board-3", evict);
  assert.deepEqual(tolerationsOf(await create("movable", "board-2", { annotations: evict })), TIMED);
  assert.deepEqual(tolerationsOf(await create("on-movable", "board-3")), TIMED);
  await cluster.addNode("no-board");
  assert.deepEqual(tolerationsOf(await create("elsewhere", "no-board")), TIMED);
});

test("kubectl apply of the same tolerations with a time changes nothing", async () => {
  await using _backend = await joined("board-4");
  const spec = {
    nodeSelector: { "kubernetes.io/hostname": "board-4" },
    tolerations: TIMED,
    containers: [{ name: "main", image: "registry.example/app:1" }],
  };
  const manifest = { apiVersion: "v1", kind: "Pod", metadata: { namespace: "default", name: "applied" }, spec };
  await cluster.apply(manifest);
  const bound = await placed("applied", (found) => fieldsAt(found, "spec").nodeName === "board-4");
  assert.deepEqual(tolerationsOf(bound), SAFE);
  await cluster.apply(manifest);
  const again = await placed("applied", () => true);
  assert.deepEqual([again.metadata.generation, tolerationsOf(again)], [1, SAFE]);
});
