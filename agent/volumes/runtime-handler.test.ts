import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { findRuntimeHandler, runtimeHandler } from "./runtime-handler.ts";

const objects = new TestClusterObjects(new VirtualClock());
objects.set("RuntimeClass//gvisor", { handler: "runsc" });
const fromCluster = (runtimeClassName?: string) => ({
  ...desired(podOf(runtimeClassName === undefined ? {} : { runtimeClassName })),
  source: "api" as const,
});

test("a RuntimeClass names the runtime's handler", () => {
  assert.equal(runtimeHandler(fromCluster("gvisor"), objects), "runsc");
  assert.equal(runtimeHandler(fromCluster(), objects), "");
  assert.equal(runtimeHandler(fromCluster("wasm"), objects), "wasm", "which every node has");
});

test("a class that the cluster does not have is said as the kubelet says it, and asked for again", () => {
  assert.throws(
    () => runtimeHandler(fromCluster("kata"), objects),
    (error) =>
      isPicoletError(error, "not_found") &&
      error.retryable &&
      error.reason === "FailedCreatePodSandBox" &&
      error.message === 'runtimeclass.node.k8s.io "kata" not found',
  );
  assert.equal(findRuntimeHandler(fromCluster("kata"), objects), undefined, "that of a pod that runs may be deleted");
});

test("a pod that comes from no cluster names the handler itself", () => {
  assert.equal(runtimeHandler({ ...fromCluster("kata"), source: "file" }, objects), "kata");
  assert.equal(runtimeHandler({ ...fromCluster("gvisor"), source: "file" }, objects), "runsc");
});
