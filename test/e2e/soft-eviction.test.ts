/** A soft threshold: who goes has the time for it that is promised, and nobody goes for what has passed. */
import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { after, before, test } from "node:test";
import { MemoryGauge } from "../../agent/stats/memory-gauge.ts";
import type { Pod } from "../../protocol/pod.ts";
import { containerdMissing } from "../support/containerd.ts";
import { kubectlMissing } from "../support/fleet.ts";
import { hold, MIB, PressedNode } from "../support/pressed-node.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const GRACE_SECONDS = 8;
const MAX_POD_SECONDS = 4;
/** Of times that the API has in whole seconds. */
const ROUNDING_MS = 1000;
/** What a pod holds; half of it crosses the threshold, so that the rest of the machine may come and go with as much. */
const HELD_MIB = 2 * Math.floor(totalmem() / MIB / 20);
const LOW = /^The node was low on resource: memory\. Threshold quantity: \d+\S*, available: \d+\S*\. /;

let pressed: PressedNode;

before(async () => {
  if (skip !== false) return;
  // A soft threshold is held against the node's memory alone, not against what pods may have of it.
  const gauge = new MemoryGauge({ kind: "v1", folder: () => undefined }, { allPodsCgroup: "" });
  const available = gauge.read(0).node?.available ?? 0;
  pressed = await PressedNode.start(totalmem(), {
    evictionHard: { "memory.available": "100Mi" },
    evictionSoft: { "memory.available": `${Math.floor(available / MIB) - HELD_MIB / 2}Mi` },
    evictionSoftGracePeriod: { "memory.available": `${GRACE_SECONDS}s` },
    evictionMaxPodGracePeriod: MAX_POD_SECONDS,
    evictionPressureTransitionPeriod: "1s",
  });
});

after(async () => {
  if (skip === false) await pressed?.[Symbol.asyncDispose]();
});

/** Half a minute of its own, which is more than pods get here. */
const spec = { terminationGracePeriodSeconds: 30 };
/** What is held goes with the shell, not with a signal to it. */
const holding = (onTerm: string): string => `trap '${onTerm}' TERM; ${hold(HELD_MIB)} & while :; do wait; done`;

const endOf = ({ status }: Pod) => {
  const { exitCode, finishedAt = "" } = status?.containerStatuses?.[0]?.state.terminated ?? {};
  return { exitCode, finishedMs: Date.parse(finishedAt) };
};

/** When the node began to be short of memory. */
async function pressureBegan(): Promise<number> {
  await pressed.condition("MemoryPressure", "True");
  const path = '{.status.conditions[?(@.type=="MemoryPressure")].lastTransitionTime}';
  return Date.parse(await pressed.fleet.kubectl(["get", "node", "node-a", "-o", `jsonpath=${path}`]));
}

test("pressure that passes within the grace period costs no pod", { skip }, async () => {
  const script = `${hold(HELD_MIB)} & sleep 3; kill $!; sleep 3600`;
  const brief = await pressed.run(pressed.pod("brief", script, {}, "brief"));
  pressed.open("brief");
  await pressureBegan();
  await pressed.condition("MemoryPressure", "False");
  // Longer than the grace period would have been.
  const later = await pressed.run(pressed.pod("later", `sleep ${GRACE_SECONDS}; touch /done; sleep 3600`));
  await pressed.fleet.kubectl(["exec", "later", "--", "sh", "-c", "while [ ! -e /done ]; do sleep 0.1; done"]);
  await pressed.runOn(brief, later);
  assert.equal(await pressed.events("Evicted", "brief"), 0);
  await pressed.clear();
});

test("a pod goes only after the grace period, and ends as it does by itself", { skip }, async () => {
  const small = await pressed.run(pressed.pod("small", "sleep 3600"));
  await pressed.fleet.apply(pressed.pod("polite", holding("sleep 2; exit 7"), { spec }));
  const began = await pressureBegan();
  assert.match(await pressed.evicted("polite"), LOW);
  const { exitCode, finishedMs } = endOf(await pressed.get("polite"));
  assert.equal(exitCode, 7, "it was asked to end, and was let");
  assert.ok(finishedMs - began >= (GRACE_SECONDS + 2) * 1000 - ROUNDING_MS, `${finishedMs - began} ms`);
  await pressed.runOn(small);
  await pressed.clear();
});

test("one that does not end in evictionMaxPodGracePeriod is killed then, whatever time of its own it has", {
  skip,
}, async () => {
  const small = await pressed.run(pressed.pod("small", "sleep 3600"));
  await pressed.fleet.apply(pressed.pod("stubborn", holding(":"), { spec }));
  const began = await pressureBegan();
  assert.match(await pressed.evicted("stubborn"), LOW);
  const { exitCode, finishedMs } = endOf(await pressed.get("stubborn"));
  assert.equal(exitCode, 137);
  const took = finishedMs - began;
  const least = (GRACE_SECONDS + MAX_POD_SECONDS) * 1000 - ROUNDING_MS;
  assert.ok(took >= least && took < (GRACE_SECONDS + 25) * 1000, `${took} ms`);
  await pressed.runOn(small);
  await pressed.clear();
});

test("an agent that is killed while an evicted pod ends goes on ending it after its restart, for the same reason", {
  skip,
}, async () => {
  const { node, fleet } = pressed;
  const small = await pressed.run(pressed.pod("small", "sleep 3600"));
  await fleet.apply(pressed.pod("stubborn", holding(":"), { spec }));
  const line = '{.status.phase} {.status.conditions[?(@.type=="DisruptionTarget")].message}{"\\n"}';
  const watched = await fleet.seen(["get", "pod", "stubborn", "--watch", "-o", `jsonpath=${line}`], (text) =>
    /Running The node was low/.test(text),
  );
  await node.kill();
  const told = /Running (The node was low.*)$/m.exec(watched)?.[1];
  await node.start();
  assert.equal((await pressed.evicted("stubborn")).trim(), told?.trim());
  const { status } = await pressed.get("stubborn");
  assert.equal(status?.containerStatuses?.[0]?.restartCount, 0);
  await pressed.runOn(small);
  await pressed.condition("MemoryPressure", "False");
});
