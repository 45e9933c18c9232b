/**
 * An agent that exceeds its memory budget restarts, and its pods never notice; disk writes of pods are counted. Real
 * containers and components.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  allReady,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  identitiesOf,
  nodeWith,
  runPodsOfBothKinds,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";

const skip = containerdMissing() ?? false;
const PODS_OF_A_KIND = 3;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

const commandOf = (pid: number): string => readFileSync(`/proc/${pid}/cmdline`, "latin1");

async function makePods(node: AgentNode): Promise<ReadonlyMap<string, Pod>> {
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  return await runPodsOfBothKinds(node, PODS_OF_A_KIND);
}

/** Most of the time goes by in waiting. */
describe("the budgets of an agent", { skip, concurrency: 2 }, () => {
  test("above its memory budget the agent says so, begins anew in the same process, and every pod runs on", async () => {
    // Less than any agent takes: there is nothing that shedding could do.
    await using node = nodeWith(containerd, { config: { budget: { memoryBytes: "8Mi" } } });
    await node.start();
    const { pid } = node;
    const { agent: first } = await node.status();
    assert.ok(first.anonBytes > first.budgetBytes);
    const command = commandOf(pid);
    const make = async () => ({ pods: await makePods(node), runners: node.runnerPids().toSorted() });
    // It is twenty seconds until then, which a machine with much to do may take for the pods.
    const [, { pods, runners }] = await Promise.all([node.waitForRestart(), make()]);
    assert.equal(commandOf(pid), command, "with the flags that it was started with");
    const { agent: second } = await node.status();
    assert.ok(Date.parse(second.startedAt) > Date.parse(first.startedAt), "another life of it");
    assert.deepEqual(
      identitiesOf(await node.waitForPods("all pods again", allReady(2 * PODS_OF_A_KIND))),
      identitiesOf(pods),
    );
    assert.deepEqual(node.runnerPids().toSorted(), runners);
    const { message } = await node.waitForEvent("an event", ({ reason }) => reason === "AgentMemoryExceeded");
    assert.match(message, /^picolet takes [\d.]+ MiB, more than its budget of 8 MiB, and starts again; pods run on$/);
    // Its children are those of the previous agent, which no process waits for: they end all the same.
    node.removeManifest("component-0.json");
    node.removeManifest("container-0.json");
    await node.waitForPods("the end of two", (all) => all.size === 2 * PODS_OF_A_KIND - 2);
    assert.equal(node.runnerPids().length, PODS_OF_A_KIND - 1);
  });

  test("what a pod, and the agent, have written to disk is in the status, also of the next agent", async () => {
    const written = 8 * 1024 * 1024;
    await using node = nodeWith(containerd, { config: { budget: { flashBytesPerDay: "1Ki" } } });
    await node.start();
    const script = "dd if=/dev/zero of=/data/file bs=1M count=8 && touch /data/done && sleep 3600";
    const container = {
      ...{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script] },
      readinessProbe: { exec: { command: ["test", "-e", "/data/done"] }, periodSeconds: 1 },
      volumeMounts: [{ name: "data", mountPath: "/data" }],
    };
    const spec = { containers: [container], volumes: [{ name: "data", emptyDir: {} }] };
    node.writeManifest("writer.json", containerPod("writer", "", spec));
    await node.waitForPods("what is written", (pods) => isReady(pods.get("writer-node")));
    await node.stop();
    await node.start();
    const { flash, conditions } = await node.waitForStatus("pressure", (status) =>
      status.conditions.some((each) => each.type === "FlashWearPressure" && each.status === "True"),
    );
    const [writer] = flash.today.pods;
    assert.equal(writer?.name, "default/writer-node");
    assert.ok(writer.bytes >= written && writer.bytes < 3 * written, `${writer.bytes}`);
    assert.ok(flash.today.agentBytes > 0 && flash.today.agentBytes < written, `${flash.today.agentBytes}`);
    assert.ok(flash.disks.length > 0 && (flash.today.bytes ?? 0) > 1024, JSON.stringify(flash));
    const pressed = conditions.find(({ type }) => type === "FlashWearPressure");
    assert.equal(pressed?.reason, "FlashWearBudgetExceeded");
  });
});
