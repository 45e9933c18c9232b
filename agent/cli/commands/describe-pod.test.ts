import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { describePod } from "./describe-pod.ts";

const both = (cpu: string, memory: string): ResourceRequirements => ({
  requests: { cpu, memory },
  limits: { cpu, memory },
});

function shown(resources: ResourceRequirements): string {
  const granted = podOf({ containers: [{ name: "app", image: "example/app:1", resources: both("200m", "64Mi") }] });
  const status: Pod["status"] = {
    phase: "Running",
    conditions: [
      { type: "Ready", status: "True" },
      { type: "PodResizePending", status: "True", reason: "Deferred", message: "there is no room" },
      { type: "PodResizeInProgress", status: "True" },
    ],
    containerStatuses: [
      {
        ...{ name: "app", ready: true, restartCount: 0, image: "example/app:1", imageID: "", resources },
        ...{ state: { running: { startedAt: "2026-01-01T00:00:00Z" } }, lastState: {} },
      },
    ],
  };
  return describePod({ ...granted, status }, { events: [], isolation: [] }, 100, Date.parse("2026-01-01T00:01:00Z"));
}

test("a resize that waits says why, and one that is under way what there still is", () => {
  const page = shown(both("100m", "32Mi"));
  assert.match(page, /PodResizePending +True Deferred there is no room\n/);
  assert.match(page, /PodResizeInProgress +True\n/);
  assert.match(page, /Ready +True\n/);
  assert.match(page, / {4}Limits: +cpu 200m, memory 64Mi\n/);
  assert.match(page, / {4}Actual Limits: +cpu 100m, memory 32Mi\n {4}Actual Requests: +cpu 100m, memory 32Mi\n/);
});

test("what is as it was granted is said once", () => {
  assert.doesNotMatch(shown(both("200m", "64Mi")), /Actual/);
});

test("that a component shares its process is said as long as it does", () => {
  const spec = { containers: [{ name: "app", image: "example/app:1" }] };
  const page = (runtimeClassName: string | undefined, mode: string): string => {
    const pod = podOf(runtimeClassName === undefined ? spec : { ...spec, runtimeClassName });
    const annotations = { "wasm.picolet.io/mode": mode };
    return describePod({ ...pod, metadata: { ...pod.metadata, annotations } }, { events: [], isolation: [] }, 120, 0);
  };
  assert.match(page("wasm", "dense"), /^Isolation: +dense: shares one process/m);
  assert.doesNotMatch(page("wasm", "isolated"), /Isolation/);
  assert.doesNotMatch(page(undefined, "dense"), /Isolation/, "it is run as a container");
});

test("how a component that runs is isolated is said with it, and what is missing", () => {
  const pod = podOf({ containers: [{ name: "app", image: "example/app:1" }], runtimeClassName: "wasm" });
  const page = (missing: readonly string[]): string => {
    const isolation = [{ container: "app", measures: ["own IPC", "seccomp filter"], missing }];
    return describePod(pod, { events: [], isolation }, 100, 0);
  };
  assert.match(page([]), / {4}Isolation: +own IPC, seccomp filter\n/);
  assert.doesNotMatch(page([]), /Not Isolated/);
  assert.match(
    page(["no_new_privs", "own file system tree"]),
    / {4}Not Isolated: +without no_new_privs, own file system tree\n/,
  );
});
