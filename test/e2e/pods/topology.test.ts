/** CPUs for one container alone on a real board, and what its neighbours run on meanwhile. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";

const skip = containerdMissing() ?? (cpus().length < 2 ? "it takes two CPUs" : false);
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
const ALL = `0-${cpus().length - 1}`;
const WITHOUT_ONE = cpus().length === 2 ? "0" : `0,2-${cpus().length - 1}`;
/** The kernel sends no event when a cpuset changes. */
const LOOK_MS = 20;
const PATIENCE_MS = 30_000;

const STATIC = { cpuManagerPolicy: "static", reservedSystemCPUs: "0" };

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  await containerd?.[Symbol.asyncDispose]();
});

const exclusive = (name: string, cpu = "1"): unknown => {
  const limits = { cpu, memory: "32Mi" };
  const resources = { limits, requests: limits };
  const container = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", SLEEP], resources };
  return containerPod(name, SLEEP, { containers: [container] });
};

const cgroupValue = (pod: Pod | undefined, controller: string, file: string): string => {
  const folder = containerd.cgroupsOf(containerIdOf(pod)).get(controller) ?? "";
  return readFileSync(join(folder, file), "utf8").trim();
};
const cpusOf = (pod: Pod | undefined): string => cgroupValue(pod, "cpuset", "cpuset.cpus");

async function untilOn(pod: Pod | undefined, wanted: string): Promise<void> {
  const limit = Date.now() + PATIENCE_MS;
  while (cpusOf(pod) !== wanted && Date.now() < limit) await pause(LOOK_MS);
  assert.equal(cpusOf(pod), wanted);
}

const stateOf = (node: AgentNode): { defaultCpuSet: string; entries?: Record<string, Record<string, string>> } =>
  JSON.parse(readFileSync(join(node.directory, "root", "cpu_manager_state"), "utf8"));

test("a guaranteed container has its CPU alone, across restarts, and its neighbours have it back after it", {
  skip,
}, async () => {
  await using node = nodeWith(containerd, { config: STATIC });
  await node.start();
  node.writeManifest("shared.json", containerPod("shared"));
  const before = await node.waitForPods("a ready pod", (pods) => isReady(pods.get("shared-node")));
  const shared = before.get("shared-node");
  assert.equal(cpusOf(shared), ALL);
  node.writeManifest("alone.json", exclusive("alone"));
  const both = await node.waitForPods("two ready pods", (pods) => isReady(pods.get("alone-node")));
  const alone = both.get("alone-node");
  assert.equal(cpusOf(alone), "1");
  assert.equal(cgroupValue(alone, "cpu", "cpu.cfs_quota_us"), "-1");
  assert.equal(
    readFileSync(join(containerd.cgroupsOf(containerIdOf(alone)).get("cpu") ?? "", "../cpu.cfs_quota_us"), "utf8"),
    "-1\n",
  );
  await untilOn(shared, WITHOUT_ONE);
  assert.equal(stateOf(node).defaultCpuSet, WITHOUT_ONE);

  await node.kill();
  await node.start();
  node.writeManifest("more.json", exclusive("more", String(cpus().length - 1)));
  const refused = await node.waitForPods("a refused pod", (pods) => pods.get("more-node")?.status?.phase === "Failed");
  // A static pod is critical: it looks for others that it could displace, and there are none.
  assert.equal(refused.get("more-node")?.status?.reason, "UnexpectedAdmissionError");
  assert.equal(cpusOf(refused.get("alone-node")), "1");
  assert.equal(containerIdOf(refused.get("alone-node")), containerIdOf(alone));
  assert.equal(cpusOf(shared), WITHOUT_ONE);

  node.removeManifest("alone.json");
  await node.waitForPods("one pod less", (pods) => !pods.has("alone-node"));
  await untilOn(shared, ALL);
  assert.equal(stateOf(node).entries, undefined);
  await node.drain();
});

test("another policy and a damaged state file are refused as the kubelet refuses them", { skip }, async () => {
  await using node = nodeWith(containerd, { config: STATIC });
  await node.start();
  await node.stop();
  const file = join(node.directory, "root", "cpu_manager_state");
  const config = JSON.parse(readFileSync(node.configPath, "utf8")) as Record<string, unknown>;
  const told = "please drain this node and delete the CPU manager checkpoint file";
  writeFileSync(node.configPath, JSON.stringify({ ...config, cpuManagerPolicy: "none" }));
  await assert.rejects(node.start(), (error: Error) =>
    error.message.includes(
      String.raw`configured policy \"none\" differs from state checkpoint policy \"static\", ${told}`,
    ),
  );
  writeFileSync(node.configPath, JSON.stringify(config));
  writeFileSync(file, readFileSync(file, "utf8").replace(/"defaultCpuSet":"[^"]*"/, '"defaultCpuSet":"1"'));
  await assert.rejects(node.start(), (error: Error) => error.message.includes(`checkpoint is corrupted, ${told}`));
});

test("memory of NUMA nodes is given out and written down, with CPUs that lie there", { skip }, async () => {
  const config = {
    ...STATIC,
    memoryManagerPolicy: "Static",
    topologyManagerPolicy: "single-numa-node",
    topologyManagerScope: "pod",
    systemReserved: { memory: "100Mi" },
    evictionHard: { "memory.available": "28Mi" },
    reservedMemory: [{ numaNode: 0, limits: { memory: "128Mi" } }],
  };
  await using node = nodeWith(containerd, { config });
  await node.start();
  node.writeManifest("alone.json", exclusive("alone"));
  const pods = await node.waitForPods("a ready pod", (all) => isReady(all.get("alone-node")));
  const alone = pods.get("alone-node");
  assert.deepEqual([cpusOf(alone), cgroupValue(alone, "cpuset", "cpuset.mems")], ["1", "0"]);
  const file = join(node.directory, "root", "memory_manager_state");
  const uid = alone?.metadata.uid ?? "";
  const blocks = [{ numaAffinity: [0], type: "memory", size: 32 * 1024 * 1024 }];
  const written = readFileSync(file, "utf8");
  assert.deepEqual((JSON.parse(written) as { entries: unknown }).entries, { [uid]: { app: blocks } });
  await node.kill();
  await node.start();
  assert.equal(readFileSync(file, "utf8"), written);
  node.writeManifest("big.json", exclusive("big", "2"));
  await node.waitForPods("a refused pod", (all) => all.get("big-node")?.status?.phase === "Failed");
  await node.drain();
  assert.equal((JSON.parse(readFileSync(file, "utf8")) as { entries?: unknown }).entries, undefined);
});
