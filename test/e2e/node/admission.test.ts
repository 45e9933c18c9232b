/** Pods that a node refuses, and pods that it ends to admit others: a real agent, real containers. */
import assert from "node:assert/strict";
import { cpus } from "node:os";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { allReady, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";

const skip = containerdMissing() ?? false;
const REST = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

const podWith = (name: string, container: object, spec: Record<string, unknown> = {}): unknown =>
  containerPod(name, REST, {
    containers: [{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", REST], ...container }],
    ...spec,
  });

const requesting = (name: string, cpu: number, priority: number): unknown =>
  podWith(name, { resources: { requests: { cpu: `${cpu}m` } } }, { priority });

const isOver = (pod: Pod | undefined): boolean => pod?.status?.phase === "Failed";

test("what the node cannot run is refused with the kubelet's words, and the others run", { skip }, async () => {
  await using node = nodeWith(containerd, { config: { nodeLabels: { zone: "shed" } } });
  await node.start();
  const port = { ports: [{ containerPort: 80, hostPort: 18_080 }] };
  node.writeManifest("good.json", podWith("good", port, { nodeSelector: { zone: "shed" } }));
  await node.waitForPods("a ready pod", (pods) => isReady(pods.get("good-node")));
  const refused: Readonly<Record<string, readonly [manifest: unknown, reason: string, message: string]>> = {
    port: [
      podWith("port", port),
      "NodePorts",
      "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    ],
    place: [
      podWith("place", {}, { nodeSelector: { zone: "barn" } }),
      "NodeAffinity",
      "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ],
    sysctl: [
      podWith("sysctl", {}, { securityContext: { sysctls: [{ name: "kernel.msgmax", value: "1" }] } }),
      "SysctlForbidden",
      'forbidden sysctl: "kernel.msgmax" not allowlisted',
    ],
  };
  for (const [name, [manifest]] of Object.entries(refused)) node.writeManifest(`${name}.json`, manifest);
  const pods = await node.waitForPods("three refused pods", (all) =>
    Object.keys(refused).every((name) => isOver(all.get(`${name}-node`))),
  );
  for (const [name, [, reason, message]] of Object.entries(refused)) {
    const status = pods.get(`${name}-node`)?.status;
    assert.deepEqual([status?.reason, status?.message], [reason, `Pod was rejected: ${message}`]);
    const event = await node.waitForEvent(name, (each) => each.involvedObject.name === `${name}-node`);
    assert.deepEqual([event.type, event.reason, event.message], ["Warning", reason, message]);
  }
  assert.ok(isReady(pods.get("good-node")));
  await node.drain();
});

test("a critical pod gets its room from one of lower priority", { skip }, async () => {
  await using node = nodeWith(containerd);
  await node.start();
  const all = cpus().length * 1000;
  node.writeManifest("low.json", requesting("low", all - 100, 1));
  node.writeManifest("small.json", requesting("small", 50, 1));
  await node.waitForPods("two ready pods", allReady(2));
  node.writeManifest("high.json", requesting("high", all - 200, 10));
  const pods = await node.waitForPods(
    "one for the other",
    (each) => isReady(each.get("high-node")) && isOver(each.get("low-node")),
  );
  const status = pods.get("low-node")?.status;
  const target = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
  assert.deepEqual(
    [status?.reason, status?.message, target?.reason, target?.message],
    [
      "Preempting",
      "Preempted in order to admit critical pod",
      "TerminationByKubelet",
      "Pod was preempted by Kubelet to accommodate a critical pod.",
    ],
  );
  assert.ok(isReady(pods.get("small-node")));
  node.writeManifest("more.json", requesting("more", all, 5));
  const refused = await node.waitForPods("a refused pod", (each) => isOver(each.get("more-node")));
  assert.equal(refused.get("more-node")?.status?.reason, "UnexpectedAdmissionError");
  await node.drain();
});
