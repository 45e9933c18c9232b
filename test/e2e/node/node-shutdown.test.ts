/** The machine shuts down: a fake logind on a real message bus, a real agent, real containers. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { MessageBus, messageBusMissing } from "../../support/agent/message-bus.ts";
import { allReady, containerIdOf, containerPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { LinkProxy } from "../../support/unit/tunnel/link-proxy.ts";

const skip = containerdMissing() ?? messageBusMissing() ?? false;
const MESSAGE = "Pod was terminated in response to imminent node shutdown.";
/** The time of pods that are not critical; the critical ones get so long that no machine needs it. */
const FIRST_SECONDS = 6;
const CRITICAL_SECONDS = 47;
const PERIODS = {
  shutdownGracePeriod: `${FIRST_SECONDS + CRITICAL_SECONDS}s`,
  shutdownGracePeriodCriticalPods: `${CRITICAL_SECONDS}s`,
};
type KubeFields = Readonly<Record<string, unknown>>;
/** A pod's own, more than the first of these and less than the second. */
const OWN_SECONDS = 30;
const CRITICAL = 2_000_001_000;

let containerd: Containerd;
let bus: MessageBus;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  bus = await MessageBus.start();
  await bus.startLogind(60);
  process.env.DBUS_SYSTEM_BUS_ADDRESS = `unix:path=${bus.socketPath}`;
});

after(async () => {
  if (skip !== false) return;
  delete process.env.DBUS_SYSTEM_BUS_ADDRESS;
  await containerd[Symbol.asyncDispose]();
  await bus[Symbol.asyncDispose]();
});

const OBEYS = "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.1; done";
/** Hears nothing, but sees a file of the node. */
const IS_DEAF = "trap '' TERM; while [ ! -e /gate/over ]; do sleep 0.1; done";

function podOf(node: AgentNode, name: string, script: string, priority?: number): unknown {
  const volumeMounts = [{ name: "gate", mountPath: "/gate" }];
  return containerPod(name, script, {
    ...{ priority, terminationGracePeriodSeconds: OWN_SECONDS },
    containers: [{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script], volumeMounts }],
    volumes: [{ name: "gate", hostPath: { path: gateOf(node), type: "DirectoryOrCreate" } }],
  });
}

const gateOf = (node: AgentNode): string => join(node.directory, "gate");

/** Drains the node, and lets the pod that ignores SIGTERM end, so that its grace period is not waited for. */
async function drained(node: AgentNode): Promise<void> {
  const drain = node.drain();
  writeFileSync(join(gateOf(node), "over"), "");
  await drain;
}

const areOver = (pods: ReadonlyMap<string, Pod>): boolean =>
  [...pods.values()].every(({ status }) => status?.phase === "Failed");

const endOf = (pod: Pod | undefined): number =>
  Date.parse(pod?.status?.containerStatuses?.[0]?.state.terminated?.finishedAt ?? "");

async function readyNode(node: AgentNode): Promise<void> {
  await node.start();
  node.writeManifest("plain.json", podOf(node, "plain", OBEYS));
  node.writeManifest("deaf.json", podOf(node, "deaf", IS_DEAF));
  node.writeManifest("critical.json", podOf(node, "critical", OBEYS, CRITICAL));
  await node.waitForPods("three ready pods", allReady(3));
}

test("a shutdown ends the pods in order within the time they have, and nothing new comes; they are back after it", {
  skip,
}, async () => {
  await using node = nodeWith(containerd, { config: PERIODS });
  await readyNode(node);
  await bus.said("inhibit shutdown picolet delay");
  const begun = performance.now();
  bus.tell("shutdown");
  await bus.said("released");
  const took = performance.now() - begun;
  const [least, most] = [FIRST_SECONDS * 1000, CRITICAL_SECONDS * 1000];
  assert.ok(took > least && took < most, `${took} ms: all of the first group's time, and a part of the second's`);

  const pods = await node.waitForPods("three ended pods", areOver);
  for (const [name, { status }] of pods) {
    const target = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
    assert.deepEqual(
      [status?.phase, status?.reason, status?.message, target?.status, target?.reason, target?.message],
      ["Failed", "Terminated", MESSAGE, "True", "TerminationByKubelet", MESSAGE],
      name,
    );
  }
  const [plain, deaf, critical] = ["plain-node", "deaf-node", "critical-node"].map((name) => pods.get(name));
  assert.ok(endOf(plain) < endOf(deaf) && endOf(deaf) <= endOf(critical));
  assert.equal(plain?.status?.containerStatuses?.[0]?.state.terminated?.exitCode, 0);
  assert.equal(deaf?.status?.containerStatuses?.[0]?.state.terminated?.exitCode, 137);

  const ready = (await node.status()).conditions.find(({ type }) => type === "Ready");
  assert.deepEqual(
    [ready?.status, ready?.reason, ready?.message],
    ["False", "KubeletNotReady", "node is shutting down"],
  );
  node.writeManifest("late.json", podOf(node, "late", OBEYS));
  const { reason } = await node.waitForEvent("a refusal", (event) => event.involvedObject.name === "late-node");
  assert.equal(reason, "NodeShutdown");
  const late = (await node.waitForPods("four pods", (all) => all.size === 4 && areOver(all))).get("late-node");
  assert.equal(late?.status?.message, "Pod was rejected: Pod was rejected as the node is shutting down.");

  node.removeManifest("late.json");
  bus.tell("cancel");
  await node.waitForPods("three pods that are back", allReady(3));
  await bus.said("inhibit shutdown picolet delay");
  await drained(node);
});

test("after the reboot static pods run again", { skip }, async () => {
  await using node = nodeWith(containerd, { config: PERIODS });
  await readyNode(node);
  const answer = edgectl(node, "node", "shutdown");
  assert.equal(answer, "node/node is shut down\n");
  const ended = await node.waitForPods("three ended pods", areOver);
  assert.equal(ended.size, 3);
  await node.stop();
  await node.start();
  await node.waitForPods("three pods that are back", allReady(3));
  await drained(node);
});

test("the API server has the end of all pods before the machine is off", { skip }, async () => {
  await using fleet = await Fleet.start();
  await using proxy = await LinkProxy.start(() => fleet.tunnelPort, seededRandom(1));
  const hub = await fleet.joinConfig(proxy.port);
  await using node = nodeWith(containerd, { config: { ...PERIODS, hub } });
  await node.start();
  await fleet.untilNodeReady("node");
  await using admin = await FleetAdmin.of(fleet);
  const names = ["one", "two"];
  for (const name of names) await admin.create(PODS, containerPod(name, OBEYS, { nodeName: "node" }) as KubeFields);
  for (const name of names) await admin.untilPod(name, "is ready", isReady);
  proxy.behave({ latencyMs: 300 });
  // Not synchronously: the proxy is in this process.
  await promisify(execFile)("dist/board/bin/edgectl", ["--socket", node.socketPath, "node", "shutdown"]);
  await node.kill();
  for (const name of names) {
    const { phase, reason } = (await admin.pod(name)).status ?? {};
    assert.deepEqual([name, phase, reason], [name, "Failed", "Terminated"]);
  }
  await node.start();
  await admin.clear();
});

test("a stop of the agent alone ends no pod; one while systemd takes the machine down ends all", { skip }, async () => {
  await using node = nodeWith(containerd, { config: PERIODS });
  const systemctl = join(node.directory, "systemctl");
  const says = (state: string): void => {
    writeFileSync(systemctl, `#!/bin/sh\necho ${state}\nexit 1\n`);
    chmodSync(systemctl, 0o755);
  };
  const path = process.env.PATH;
  process.env.PATH = `${node.directory}:${path}`;
  try {
    says("degraded");
    await readyNode(node);
    await node.stop();
    await node.start();
    const pods = await node.waitForPods("three pods that went on", allReady(3));
    assert.ok([...pods.values()].every(({ status }) => status?.containerStatuses?.[0]?.restartCount === 0));
    says("stopping");
    await node.stop();
    const running = containerd
      .ctr("tasks", "ls")
      .split("\n")
      .filter((line) => line.endsWith("RUNNING"));
    const ids = [...pods.values()].map(containerIdOf);
    assert.deepEqual(
      ids.filter((id) => running.some((line) => line.startsWith(id))),
      [],
    );
    await node.start();
    await node.waitForPods("three pods that are back", allReady(3));
    await drained(node);
  } finally {
    process.env.PATH = path;
  }
});
