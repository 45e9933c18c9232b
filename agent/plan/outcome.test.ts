import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { wasAdmitted } from "./outcome.ts";

test("of pods that are known from before those count that run, and the node's own that may run again", () => {
  const own = desired(podOf());
  const api = { ...own, source: "api" } as const;
  const startTime = "2026-01-01T00:00:00Z";
  const table: readonly (readonly [string, PodStatus | undefined, boolean, boolean])[] = [
    ["new", undefined, false, false],
    ["waits for another of its name", { phase: "Pending" }, false, false],
    ["runs", { phase: "Running", startTime, containerStatuses: [] }, true, true],
    ["is being ended", { phase: "Running", reason: "Evicted", startTime, containerStatuses: [] }, true, true],
    ["was evicted", { phase: "Failed", reason: "Evicted", startTime, containerStatuses: [] }, true, false],
    ["has succeeded", { phase: "Succeeded", startTime, containerStatuses: [] }, true, false],
    ["was rejected", { phase: "Failed", reason: "OutOfcpu", startTime }, false, false],
  ];
  for (const [what, status, asOwn, asApi] of table) {
    assert.deepEqual([wasAdmitted(own, status), wasAdmitted(api, status)], [asOwn, asApi], what);
  }
});
