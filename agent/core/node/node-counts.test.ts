import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { countedTimes } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { NodeCounts, timed } from "./node-counts.ts";

test("counts and times are kept by name and labels", () => {
  const counts = new NodeCounts();
  counts.add("kubelet_evictions", "memory.available");
  counts.add("kubelet_evictions", "memory.available");
  counts.add("kubelet_started_containers_errors_total", "Error", "container");
  counts.add("kubelet_started_pods_total");
  assert.deepEqual([...counts.counts("kubelet_evictions")], [{ labels: ["memory.available"], value: 2 }]);
  const errors = [...counts.counts("kubelet_started_containers_errors_total")];
  assert.deepEqual(errors, [{ labels: ["Error", "container"], value: 1 }]);
  assert.equal([...counts.counts("kubelet_started_pods_total")][0]?.value, 1);
  assert.deepEqual([...counts.counts("kubelet_preemptions")], []);
});

test("durations are given in milliseconds, and counted in seconds by the kubelet's bounds", () => {
  const counts = new NodeCounts();
  for (const ms of [4, 5, 6, 20_000]) counts.observe("kubelet_pleg_relist_duration_seconds", ms);
  const [found] = counts.times("kubelet_pleg_relist_duration_seconds");
  assert.deepEqual([...(found?.value.counts ?? [])], [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
  assert.equal(found?.value.sum.toFixed(3), "20.015");
  counts.observe("kubelet_image_pull_duration_seconds", 1);
  counts.observe("kubelet_runtime_operations_duration_seconds", 1, "version");
  const [pulls] = counts.times("kubelet_image_pull_duration_seconds");
  const [calls] = counts.times("kubelet_runtime_operations_duration_seconds");
  const bounds = [1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600];
  assert.deepEqual(pulls?.value.bounds, bounds);
  assert.deepEqual([calls?.value.bounds.at(1), calls?.value.bounds.length], [0.0125, 14]);
});

test("a caller that makes up labels does not grow it without limit", () => {
  const counts = new NodeCounts();
  for (let index = 0; index < 1000; index += 1) {
    counts.add("kubelet_evictions", `signal ${index}`);
    counts.observe("kubelet_pod_worker_duration_seconds", 1, `operation ${index}`);
  }
  counts.add("kubelet_evictions", "signal 3");
  const found = [...counts.counts("kubelet_evictions")];
  assert.deepEqual([found.length, found[3]?.value], [256, 2]);
  assert.equal([...counts.times("kubelet_pod_worker_duration_seconds")].length, 256);
});

test("work is timed when it succeeds or fails, and not when it is cancelled", async () => {
  const [clock, counts] = [new VirtualClock(), new NodeCounts()];
  const name = "dra_operations_duration_seconds";
  const run = async (end: () => void): Promise<string> => {
    const work = async (): Promise<string> => {
      await clock.advance(millis(150));
      end();
      return "done";
    };
    return await timed({ clock, counts }, name, (error) => [error === undefined ? "success" : "failure"], work);
  };
  const failing = (error: Error) => (): never => {
    throw error;
  };
  assert.equal(await run(() => undefined), "done");
  await assert.rejects(run(failing(new Error("broken"))), /broken/);
  await assert.rejects(run(failing(cancelled("the work"))), { code: "cancelled" });
  assert.deepEqual(countedTimes(counts, name), { success: 1, failure: 1 });
  const [{ value } = assert.fail()] = counts.times(name);
  // The kubelet's fourteen factors from 0.1 to 40.
  assert.deepEqual([value.sum, value.bounds.length, value.bounds[1]?.toFixed(4)], [0.15, 15, "0.1534"]);
  assert.equal(value.bounds.at(-1)?.toFixed(9), "40.000000000");
});
