import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { isApparmorEnabled } from "./apparmor.ts";
import { type Machine, podCapacity } from "./machine.ts";
import { nodeLabelsAndTaints } from "./node-labels.ts";

const MACHINE = { architecture: "arm64", cpus: 4 } as Machine;
const INIT = {
  nodeName: "board",
  machine: MACHINE,
  labels: { zone: "shed" },
  taints: [{ key: "dry", effect: "NoExecute" }],
};

test("a node that no API server knows has the labels and taints of its configuration", () => {
  const { name, labels, taints } = nodeLabelsAndTaints(INIT, undefined);
  assert.deepEqual([name, labels["kubernetes.io/arch"], labels.zone, taints], ["board", "arm64", "shed", INIT.taints]);
});

test("the API server's labels and taints of the node count, and values of another type are skipped", () => {
  const { labels, taints } = nodeLabelsAndTaints(INIT, {
    metadata: { labels: { zone: "barn", rack: "1", odd: 7 } },
    spec: { taints: [{ key: "wet", value: "very", effect: "NoSchedule" }, { key: "x" }, null, 1] },
  });
  assert.deepEqual([labels.zone, labels.rack, labels.odd], ["barn", "1", undefined]);
  assert.deepEqual(taints, [{ key: "wet", value: "very", effect: "NoSchedule" }]);
  for (const strange of [{}, { metadata: 1, spec: null }, { metadata: { labels: [] }, spec: { taints: {} } }]) {
    assert.deepEqual(nodeLabelsAndTaints(INIT, strange).taints, []);
    assert.equal(nodeLabelsAndTaints(INIT, strange).labels.zone, "shed");
  }
});

test("podsPerCore allows no more than maxPods", () => {
  const capacity = (maxPods: number, podsPerCore: number): number => podCapacity({ maxPods, podsPerCore }, MACHINE);
  assert.deepEqual([capacity(110, 0), capacity(110, 10), capacity(30, 10)], [110, 40, 30]);
});

test("AppArmor is enforced where the kernel says so and has its file system", () => {
  using root = new TempFolder();
  assert.equal(isApparmorEnabled(root.path), false);
  mkdirSync(root.at("sys/module/apparmor/parameters"), { recursive: true });
  writeFileSync(root.at("sys/module/apparmor/parameters/enabled"), "Y\n");
  assert.equal(isApparmorEnabled(root.path), false);
  mkdirSync(root.at("sys/kernel/security/apparmor"), { recursive: true });
  assert.equal(isApparmorEnabled(root.path), true);
  writeFileSync(root.at("sys/module/apparmor/parameters/enabled"), "N\n");
  assert.equal(isApparmorEnabled(root.path), false);
});
