import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import { type NodeCondition, NodeConditions, readyCondition } from "./node-conditions.ts";
import type { ShutdownState } from "./node-shutdown.ts";

const NOW = new Date("2026-01-01T00:00:00.999Z");
const up = (name: string): RuntimeHealth => ({ name, healthy: true, reason: "", message: "", sinceMs: 0 });
/** The current condition Ready. */
const readyOf = (node: NodeConditions): NodeCondition | undefined =>
  node.conditions.current.find(({ type }) => type === "Ready");
const down = (name: string, reason = "RuntimeNotReady", message = "no socket"): RuntimeHealth => ({
  name,
  healthy: false,
  reason,
  message,
  sinceMs: 0,
});

const WELL_AT_START = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"].map(
  (reason) => `Normal ${reason}: Node board status is now: ${reason}`,
);

test("a node is ready when every runtime is, with the kubelet's words", () => {
  assert.deepEqual(readyCondition([up("cri"), up("wasm")], undefined, NOW), {
    type: "Ready",
    status: "True",
    reason: "KubeletReady",
    message: "kubelet is posting ready status",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  });
});

test("what is wrong is in the message, by kind of trouble", () => {
  const cases: readonly (readonly [readonly RuntimeHealth[], string])[] = [
    [[], "container runtime status check may not have completed yet"],
    [[up("wasm"), down("cri")], "RuntimeNotReady: cri: no socket"],
    [[down("cri", "ListFailed", "deadline")], "container runtime is down: cri: deadline"],
    [[down("cri", "PLEGNotHealthy", "last relist 4m0s ago")], "PLEG is not healthy: cri: last relist 4m0s ago"],
    [[down("cri"), down("wasm")], "[RuntimeNotReady: cri: no socket, RuntimeNotReady: wasm: no socket]"],
  ];
  for (const [health, message] of cases) {
    const condition = readyCondition(health, undefined, NOW);
    assert.equal(condition.status, "False");
    assert.equal(condition.reason, "KubeletNotReady");
    assert.equal(condition.message, message);
  }
});

test("the transition time is that of the status, not of the message", () => {
  const first = readyCondition([down("cri")], undefined, NOW);
  const later = new Date("2026-01-02T00:00:00Z");
  const second = readyCondition([down("cri", "RuntimeNotReady", "other")], first, later);
  assert.equal(second.lastTransitionTime, "2026-01-01T00:00:00Z");
  assert.equal(readyCondition([up("cri")], second, later).lastTransitionTime, "2026-01-02T00:00:00Z");
});

test("each transition is one event and one line, and the condition follows", async () => {
  const health = new WatchSource<readonly RuntimeHealth[]>([]);
  const events = new RecordedEvents();
  const log = new RecordedLog();
  const clock = new VirtualClock();
  const shutdown = new WatchSource<ShutdownState>({ kind: "running" });
  const node = new NodeConditions({ health, shutdown, pressures: () => [], events, clock, log }, { nodeName: "board" });
  const stop = new AbortController();
  const done = endOfRun(node.run(stop.signal));
  await clock.settle();
  assert.equal(readyOf(node)?.status, "False");
  for (const next of [
    [down("cri")],
    [down("cri", "RuntimeNotReady", "still")],
    [up("cri")],
    [up("cri")],
    [down("cri")],
  ]) {
    health.set(next);
    await clock.settle();
  }
  stop.abort();
  await done;
  assert.deepEqual(events.lines, [
    "Normal Starting: Starting picolet.",
    ...WELL_AT_START,
    "Normal NodeNotReady: Node board status is now: NodeNotReady: RuntimeNotReady: cri: no socket",
    "Normal NodeReady: Node board status is now: NodeReady",
    "Normal NodeNotReady: Node board status is now: NodeNotReady: RuntimeNotReady: cri: no socket",
  ]);
  assert.deepEqual(
    log.entries.map((entry) => entry.message),
    ["node is not ready", "node is ready", "node is not ready"],
  );
  assert.equal(readyOf(node)?.message, "RuntimeNotReady: cri: no socket");
});

test("a node that is shutting down is not ready, until the shutdown is cancelled", async () => {
  const health = new WatchSource<readonly RuntimeHealth[]>([up("cri")]);
  const shutdown = new WatchSource<ShutdownState>({ kind: "running" });
  const events = new RecordedEvents();
  const clock = new VirtualClock();
  const node = new NodeConditions(
    { health, shutdown, pressures: () => [], events, clock, log: new RecordedLog() },
    { nodeName: "board" },
  );
  const stop = new AbortController();
  const done = endOfRun(node.run(stop.signal));
  for (const kind of ["ending", "ended", "running"] as const) {
    shutdown.set({ kind });
    await clock.settle();
    const ready = readyOf(node);
    assert.equal(ready?.message, kind === "running" ? "kubelet is posting ready status" : "node is shutting down");
    assert.equal(ready?.reason, kind === "running" ? "KubeletReady" : "KubeletNotReady");
  }
  health.set([down("cri")]);
  shutdown.set({ kind: "ending" });
  await clock.settle();
  assert.equal(readyOf(node)?.message, "[RuntimeNotReady: cri: no socket, node is shutting down]");
  stop.abort();
  await done;
  assert.deepEqual(events.lines.slice(4, 6), [
    "Normal NodeNotReady: Node board status is now: NodeNotReady: node is shutting down",
    "Normal NodeReady: Node board status is now: NodeReady",
  ]);
});

test("pressures come before Ready, each change is one event, and transitions are dated", async () => {
  const health = new WatchSource<readonly RuntimeHealth[]>([up("cri")]);
  const shutdown = new WatchSource<ShutdownState>({ kind: "running" });
  const eviction = new WatchSource<readonly PressureCondition[]>([]);
  const wear = new WatchSource<readonly PressureCondition[]>([]);
  const events = new RecordedEvents();
  const clock = new VirtualClock();
  const node = new NodeConditions(
    { health, shutdown, pressures: () => [eviction, wear], events, clock, log: new RecordedLog() },
    { nodeName: "board" },
  );
  const shown = (): string[] =>
    node.conditions.current.map(({ type, status, reason }) => `${type}=${status} ${reason}`);
  const well = ["MemoryPressure=False KubeletHasSufficientMemory", "DiskPressure=False KubeletHasNoDiskPressure"];
  // All conditions are there from the first report on.
  assert.deepEqual(shown(), [...well, "PIDPressure=False KubeletHasSufficientPID", "Ready=False KubeletNotReady"]);
  const stop = new AbortController();
  const done = endOfRun(node.run(stop.signal));
  await clock.settle();
  const began = node.conditions.current[0]?.lastTransitionTime;
  await clock.advance(seconds(60));
  const short = (message: string): PressureCondition => {
    return { type: "MemoryPressure", status: "True", reason: "KubeletHasInsufficientMemory", message };
  };
  eviction.set([short("one")]);
  await clock.settle();
  const under = node.conditions.current[0];
  assert.notEqual(under?.lastTransitionTime, began);
  assert.equal(node.conditions.current[1]?.lastTransitionTime, began);
  await clock.advance(seconds(60));
  eviction.set([short("two")]);
  wear.set([{ type: "FlashWearPressure", status: "False", reason: "WithinBudget", message: "" }]);
  await clock.settle();
  assert.deepEqual(shown(), [
    "MemoryPressure=True KubeletHasInsufficientMemory",
    well[1],
    "PIDPressure=False KubeletHasSufficientPID",
    "FlashWearPressure=False WithinBudget",
    "Ready=True KubeletReady",
  ]);
  assert.equal(node.conditions.current[0]?.message, "two");
  assert.equal(node.conditions.current[0]?.lastTransitionTime, under?.lastTransitionTime);
  eviction.set([]);
  await clock.settle();
  assert.equal(shown()[0], well[0]);
  stop.abort();
  await done;
  assert.deepEqual(events.lines.slice(4), [
    "Normal NodeReady: Node board status is now: NodeReady",
    "Normal NodeHasInsufficientMemory: Node board status is now: NodeHasInsufficientMemory",
    "Normal NodeHasNoFlashWearPressure: Node board status is now: NodeHasNoFlashWearPressure",
    "Normal NodeHasSufficientMemory: Node board status is now: NodeHasSufficientMemory",
  ]);
});
