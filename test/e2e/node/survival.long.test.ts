/** The agent dies, workloads die, the runtime dies: what a user sees of it. Real containerd, real components. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync, watch } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import {
  allReady,
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  identitiesOf,
  nodeWith,
  runPodsOfBothKinds,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = containerdMissing() ?? false;
const PODS_OF_A_KIND = 10;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

function runnerPidOf(node: AgentNode, containerId: string): number {
  const [pid] = node.runnerPids(containerId);
  if (pid === undefined) throw new Error(`no runner of ${containerId}`);
  return pid;
}

async function nodeWithHello(runtime = containerd): Promise<AgentNode> {
  const node = nodeWith(runtime);
  try {
    await node.start();
    edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
    return node;
  } catch (error) {
    await node[Symbol.asyncDispose]();
    throw error;
  }
}

/** @returns both, ready */
function runOneOfEach(node: AgentNode): Promise<ReadonlyMap<string, Pod>> {
  node.writeManifest("container.json", containerPod("container"));
  node.writeManifest("component.json", componentPod("component"));
  return node.waitForPods("two ready pods", allReady(2));
}

/** Most of the time goes by in waiting. */
describe("what dies and what goes on", { skip, concurrency: 2 }, () => {
  test("kill -9 of the agent restarts none of ten containers and ten components, and the next agent takes all up", async () => {
    await using node = await nodeWithHello();
    const before = await runPodsOfBothKinds(node, PODS_OF_A_KIND);
    await node.kill();
    await node.start();
    const afterwards = await node.waitForPods("twenty adopted pods", allReady(2 * PODS_OF_A_KIND));
    assert.deepEqual(identitiesOf(afterwards), identitiesOf(before));
    assert.ok(
      identitiesOf(before).every(
        ([, id, startedAt, restarts]) => id !== "" && startedAt !== undefined && restarts === 0,
      ),
    );
    await node.drain();
  });

  test("kill -9 of a container's process restarts it at once, in the same sandbox, and the count says so", async () => {
    await using node = await nodeWithHello();
    node.writeManifest("a.json", containerPod("a"));
    const first = (await node.waitForPods("a ready pod", allReady(1))).get("a-node");
    process.kill(containerd.pidOf(containerIdOf(first)), "SIGKILL");
    const restarted = await node.waitForPods(
      "a restarted container",
      (pods) => restartsOf(pods.get("a-node")) === 1 && isReady(pods.get("a-node")),
    );
    const status = restarted.get("a-node")?.status?.containerStatuses?.[0];
    assert.equal(status?.lastState?.terminated?.exitCode, 137);
    assert.notEqual(containerIdOf(restarted.get("a-node")), containerIdOf(first));
    assert.equal(restarted.get("a-node")?.status?.podIP, first?.status?.podIP);
    await node.drain();
  });

  test("kill -9 of a component's process restarts it at once, and the count says so", async () => {
    await using node = await nodeWithHello();
    node.writeManifest("a.json", componentPod("a"));
    const first = (await node.waitForPods("a ready pod", allReady(1))).get("a-node");
    process.kill(runnerPidOf(node, containerIdOf(first)), "SIGKILL");
    const restarted = await node.waitForPods(
      "a restarted component",
      (pods) => restartsOf(pods.get("a-node")) === 1 && isReady(pods.get("a-node")),
    );
    const status = restarted.get("a-node")?.status?.containerStatuses?.[0];
    assert.equal(status?.lastState?.terminated?.exitCode, 137);
    await node.drain();
  });

  test("a component dies while no agent is there: the next agent sees it and restarts it", async () => {
    await using node = await nodeWithHello();
    node.writeManifest("a.json", componentPod("a"));
    node.writeManifest("b.json", componentPod("b"));
    const first = await node.waitForPods("two ready pods", allReady(2));
    const pid = runnerPidOf(node, containerIdOf(first.get("a-node")));
    await node.kill();
    process.kill(pid, "SIGKILL");
    await node.start();
    const afterwards = await node.waitForPods(
      "a restarted component",
      (pods) => restartsOf(pods.get("a-node")) === 1 && allReady(2)(pods),
    );
    assert.equal(containerIdOf(afterwards.get("b-node")), containerIdOf(first.get("b-node")));
    await node.drain();
  });

  test("the container runtime dies: components go on, the node says why it is not ready, and recovers by itself", async () => {
    await using own = await Containerd.start();
    await using node = await nodeWithHello(own);
    const first = await runOneOfEach(node);
    await own.killDaemon();
    const notReady = await node.waitForStatus("a node that is not ready", (status) => !status.ready);
    const condition = notReady.conditions.find(({ type }) => type === "Ready");
    assert.match(condition?.message ?? "", /RuntimeNotReady|container runtime is down/);
    node.writeManifest("later.json", componentPod("later"));
    await node.waitForPods("a component started meanwhile", (pods) => isReady(pods.get("later-node")));
    await own.startDaemon();
    await node.waitForStatus("a node that is ready again", (status) => status.ready);
    const afterwards = await node.waitForPods("all pods ready", allReady(3));
    for (const name of ["container-node", "component-node"]) {
      assert.equal(containerIdOf(afterwards.get(name)), containerIdOf(first.get(name)));
    }
    await node.drain();
  });

  test("a pod's cgroup, folders and logs are gone when its manifest is gone", async () => {
    await using node = await nodeWithHello();
    await runOneOfEach(node);
    assert.equal(readdirSync(join(node.directory, "logs")).length, 2);
    await node.drain();
    assert.deepEqual(readdirSync(join(node.directory, "logs")), []);
    assert.deepEqual(readdirSync(join(node.directory, "root", "pods")), []);
    assert.deepEqual(node.podCgroups(), []);
  });

  test("a pod that has ended keeps its logs and has no cgroup any more", async () => {
    await using node = nodeWith(containerd);
    await node.start();
    const short = containerPod("once", "echo done", { restartPolicy: "Never" });
    node.writeManifest("once.json", short);
    await node.waitForPods("a pod that has ended", (pods) => pods.get("once-node")?.status?.phase === "Succeeded");
    const folder = join(node.directory, "root", "pods");
    await gone(join(folder, readdirSync(folder)[0] ?? "", "volumes"));
    assert.deepEqual(node.podCgroups(), []);
    assert.equal(edgectl(node, "logs", "once"), "done\n");
    await node.drain();
  });

  /** When there is no such folder. */
  async function gone(path: string): Promise<void> {
    const watcher = watch(dirname(path));
    try {
      while (existsSync(path)) await once(watcher, "change");
    } finally {
      watcher.close();
    }
  }

  test("after a power cut of the whole board everything that ran runs again, with nobody's help", async () => {
    await using own = await Containerd.start();
    await using node = await nodeWithHello(own);
    const before = await runOneOfEach(node);
    await node.kill();
    await own.cutPower();
    node.cutPower();
    await own.startDaemon();
    await node.start();
    const afterwards = await node.waitForPods("two pods that run anew", (pods) => {
      const isNew = ([name, pod]: [string, Pod]): boolean => containerIdOf(pod) !== containerIdOf(before.get(name));
      return allReady(2)(pods) && [...pods].every(isNew);
    });
    for (const [name, pod] of afterwards) assert.equal(pod.metadata.uid, before.get(name)?.metadata.uid);
    await node.drain();
  });

  test("logs are rotated while a container and a component write, and no line is lost or doubled", async () => {
    await using node = nodeWith(containerd, {
      config: { containerLogMaxSize: "4Ki", containerLogMaxFiles: 5, containerLogMonitorInterval: "3s" },
    });
    await node.start();
    const script =
      "trap 'exit 0' TERM; i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; sleep 1000 & wait $!";
    const image = `file://${await testComponent("workload.c")}`;
    node.writeManifest("container.json", containerPod("container", script));
    node.writeManifest("component.json", componentPod("component", { image, args: ["count"] }));
    const pods = await node.waitForPods("two ready pods", allReady(2));
    for (const name of ["container", "component"]) {
      const uid = pods.get(`${name}-node`)?.metadata.uid ?? "";
      const folder = join(node.directory, "logs", `default_${name}-node_${uid}`, "app");
      await node.waitForFile(folder, (file) => /^0\.log\.\d/.test(file));
      await node.waitForFile(folder, (file) => file === "0.log");
      const lines = edgectl(node, "logs", name)
        .trim()
        .split("\n")
        .map((line) => Number(line.replace("line ", "")));
      assert.ok(lines.length > 50, `${lines.length} lines of ${name}`);
      assert.deepEqual(
        lines,
        lines.map((_, index) => (lines[0] ?? 0) + index),
        name,
      );
    }
    await node.drain();
  });
});
