/** A soft threshold: the evicted pod gets its promised time, and pressure that has passed evicts no pod. */
import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { after, before, beforeEach, test } from "node:test";
import { MemoryGauge } from "@picolet/agent/stats/memory-gauge.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { containerdMissing } from "../../support/containerd/containerd.ts";
import { kubectlMissing } from "../../support/hub/test-fleet.ts";
import { hold, PressedNode } from "../../support/pressure/pressed-node.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const GRACE_SECONDS = 5;
const MAX_POD_SECONDS = 3;
/** The API's times are in whole seconds. */
const ROUNDING_MS = 1000;
/**
 * Memory of a pod, in MiB. Half of it crosses the threshold, so that the rest of the machine may vary by as much.
 * `hold` can hold that much on any machine.
 */
const HELD_MIB = 2 * Math.floor(Math.min(totalmem() / MEBIBYTE / 20, 1000));
const LOW = /^The node was low on resource: memory\. Threshold quantity: \d+\S*, available: \d+\S*\. /;

let pressed: PressedNode;
/** Holds next to nothing, and runs throughout. */
let small: Pod;

/** A soft threshold is held against the node's memory alone, not against what pods may have of it. */
const gauge = new MemoryGauge({ kind: "v1", folder: () => undefined }, { allPodsCgroup: "" });
/** In MiB: crossed by half of what a pod holds, as things are. */
const thresholdNow = (): number =>
  Math.floor((gauge.read({ near: 0, short: Infinity }).node?.available ?? 0) / MEBIBYTE) - HELD_MIB / 2;
let threshold = 0;
const softly = () => ({ evictionSoft: { "memory.available": `${threshold}Mi` } });

before(async () => {
  if (skip !== false) return;
  threshold = thresholdNow();
  pressed = await PressedNode.start(totalmem(), {
    ...softly(),
    evictionHard: { "memory.available": "100Mi" },
    evictionSoftGracePeriod: { "memory.available": `${GRACE_SECONDS}s` },
    evictionMaxPodGracePeriod: MAX_POD_SECONDS,
    evictionPressureTransitionPeriod: "1s",
  });
  small = await pressed.run(pressed.pod("small", SLEEP_SCRIPT, { requests: { memory: "16Mi" } }));
});

/** Sets the threshold again when the rest of the machine has taken or freed memory between two tests. */
beforeEach(async () => {
  if (skip !== false || Math.abs(thresholdNow() - threshold) < HELD_MIB / 8) return;
  const { node } = pressed;
  await node.stop();
  threshold = thresholdNow();
  node.configure(softly());
  await node.start();
  await pressed.condition("MemoryPressure", "False");
});

after(async () => {
  if (skip === false) await pressed?.[Symbol.asyncDispose]();
});

/** The pods' own grace period: more than an eviction grants here, and more than any machine takes to end one. */
const OWN_SECONDS = 600;
const TOO_LATE_MS = 300_000;
const spec = { terminationGracePeriodSeconds: OWN_SECONDS };
/** What is held goes with the shell, not with a signal to it. */
const holding = (onTerm: string): string => `trap '${onTerm}' TERM; ${hold(HELD_MIB)} & while :; do wait; done`;

const endOf = ({ status }: Pod) => {
  const { exitCode, finishedAt = "" } = status?.containerStatuses?.[0]?.state.terminated ?? {};
  return { exitCode, finishedMs: Date.parse(finishedAt) };
};

/** When the node began to be short of memory. */
const pressureBegan = async (): Promise<number> =>
  Date.parse((await pressed.condition("MemoryPressure", "True")).lastTransitionTime);

test("pressure that passes within the grace period costs no pod", { skip }, async () => {
  const isOver = "while [ ! -e /gate/over ]; do sleep 0.05; done";
  // It goes on for longer than the grace period would have been.
  const script = `${hold(HELD_MIB)} & ${isOver}; kill -9 -1; sleep ${GRACE_SECONDS + 1}; touch /done; ${SLEEP_SCRIPT}`;
  const brief = await pressed.run(pressed.pod("brief", script, {}, "brief"));
  pressed.open("brief");
  await pressureBegan();
  pressed.open("over");
  await pressed.condition("MemoryPressure", "False");
  await pressed.fleet.kubectl(["exec", "brief", "--", "sh", "-c", "while [ ! -e /done ]; do sleep 0.1; done"]);
  await pressed.runOn(brief, small);
  assert.equal(await pressed.admin.eventsOf("brief", "Evicted"), 0);
  await pressed.clear("brief");
});

test("a pod goes only after the grace period, and ends as it does by itself", { skip }, async () => {
  await pressed.make(pressed.pod("polite", holding("sleep 1; exit 7"), { spec }));
  const began = await pressureBegan();
  const polite = await pressed.evicted("polite");
  assert.match(polite.status?.message ?? "", LOW);
  const { exitCode, finishedMs } = endOf(polite);
  assert.equal(exitCode, 7, "it was asked to end, and was let");
  assert.ok(finishedMs - began >= (GRACE_SECONDS + 1) * 1000 - ROUNDING_MS, `${finishedMs - began} ms`);
  await pressed.runOn(small);
  await pressed.clear("polite");
});

test("one that does not end in evictionMaxPodGracePeriod is killed then, whatever time of its own it has", {
  skip,
}, async () => {
  await pressed.make(pressed.pod("stubborn", holding(":"), { spec }));
  const began = await pressureBegan();
  const stubborn = await pressed.evicted("stubborn");
  assert.match(stubborn.status?.message ?? "", LOW);
  const { exitCode, finishedMs } = endOf(stubborn);
  assert.equal(exitCode, 137);
  const took = finishedMs - began;
  const least = (GRACE_SECONDS + MAX_POD_SECONDS) * 1000 - ROUNDING_MS;
  assert.ok(took >= least && took < TOO_LATE_MS, `${took} ms`);
  await pressed.runOn(small);
  await pressed.clear("stubborn");
});

test("an agent that is killed while an evicted pod ends goes on ending it after its restart, for the same reason", {
  skip,
}, async () => {
  const { node, admin } = pressed;
  await pressed.make(pressed.pod("orphaned", holding(":"), { spec }));
  const whyOf = ({ status }: Pod): string | undefined =>
    status?.conditions?.find(({ type }) => type === "DisruptionTarget")?.message;
  const ending = await admin.untilPod("orphaned", "to end", (pod) => whyOf(pod) !== undefined);
  await node.kill();
  assert.equal(ending.status?.phase, "Running", "why is told before it ends");
  assert.match(whyOf(ending) ?? "", LOW);
  await node.start();
  const { status } = await pressed.evicted("orphaned");
  assert.equal(status?.message?.trim(), whyOf(ending)?.trim());
  assert.equal(status?.containerStatuses?.[0]?.restartCount, 0);
  await pressed.runOn(small);
  await pressed.condition("MemoryPressure", "False");
});
