/** A board whose processes run short: the pods that are ended, and those that are not admitted meanwhile. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { containerdMissing } from "../../support/containerd/containerd.ts";
import { kubectlMissing } from "../../support/hub/test-fleet.ts";
import { PressedNode } from "../../support/pressure/pressed-node.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
/**
 * Bounds the machine's processes above the present ones: more than the number of others varies by, and a small part of
 * the machine's tens of thousands.
 */
const SPARE = 600;
const FEW = 100;
const MANY = 1000;

const numberIn = (file: string): number => Number(readFileSync(`/proc/sys/kernel/${file}`, "utf8"));
/** `running/all`, of threads, in the fourth field. */
const threads = (): number => Number(readFileSync("/proc/loadavg", "utf8").split(" ")[3]?.split("/")[1]);

let pressed: PressedNode;
let threshold = 0;

before(async () => {
  if (skip !== false) return;
  threshold = Math.min(numberIn("pid_max"), numberIn("threads-max")) - threads() - SPARE;
  pressed = await PressedNode.start(1024 * MEBIBYTE, {
    evictionHard: { "pid.available": String(threshold) },
    evictionPressureTransitionPeriod: "8s",
  });
});

after(async () => {
  if (skip === false) await pressed?.[Symbol.asyncDispose]();
});

/** So many at once, when the gate is open. */
const fork = (count: number): string => `i=0; while [ $i -lt ${count} ]; do sleep 3600 & i=$((i+1)); done; wait`;

test("the pod with the most processes goes, the node says what it is short of, and takes no other until it is not", {
  skip,
}, async () => {
  const others = [
    await pressed.run(pressed.pod("quiet", "sleep 3600")),
    await pressed.run(pressed.pod("some", fork(FEW), { requests: { memory: "8Mi" } })),
  ];
  await pressed.run(pressed.pod("bomb", fork(MANY), {}, "fork"));
  const pressure = pressed.condition("PIDPressure", "True");
  pressed.open("fork");
  await pressure;
  await pressed.make(pressed.pod("late", "sleep 3600"));
  assert.match(await pressed.taints(), /node\.kubernetes\.io\/pid-pressure/);
  assert.match(
    (await pressed.evicted("bomb")).status?.message ?? "",
    new RegExp(`^The node was low on resource: pids\\. Threshold quantity: ${threshold}, available: \\d+\\. $`),
  );
  const { status } = await pressed.failed("late");
  assert.equal(status?.reason, "Evicted");
  assert.match(status?.message ?? "", /The node had condition: \[PIDPressure\]\. $/);
  await pressed.condition("PIDPressure", "False");
  assert.doesNotMatch(await pressed.taints(), /pid-pressure/);
  await pressed.runOn(...others);
  await pressed.runOn(await pressed.run(pressed.pod("after", "sleep 3600")));
  await pressed.admin.toldOnce("bomb", "Evicted");
});
