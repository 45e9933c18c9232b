/**
 * A part of the conformance tests that takes little time and touches every area; `npm run conformance` runs them all.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { allTests } from "./all-tests.ts";
import { KubeApi } from "./framework/kube-api.ts";
import { ClusterStage, chosen, runTests } from "./framework/runner.ts";
import { LocalCluster, localClusterMissing } from "./local-cluster.ts";

const PART = new RegExp(
  [
    "ConfigMap should be consumable",
    "Secrets should be (consumable|several)",
    "Downward API should",
    "Containers should",
    "Variable Expansion should allow",
    "Pods should (get a host IP|be updated|contain environment)",
    "InitContainer should invoke",
    "Lifecycle Hook .* (exec|http) hook",
    "Probing container should be ready immediately",
    "Security Context should (run the container|allow|not allow)",
    "Sysctls should support",
    "Ephemeral Containers should start",
    "Granular Checks",
    "Node should report",
    "Kubelet (API|metrics) should",
    "Device Plugin should allocate",
    "CSI Volumes should (stage|publish an inline|mount)",
    "Dynamic Resource Allocation .* driver of v1$",
    "POD Resources API should list",
    "HostPort should lead",
    "EmptyDir volumes should support",
    "HostPath should support",
    "Subpath .* should support",
    "Projected .* should be consumable",
    "updates be reflected",
  ].join("|"),
);
const PARALLEL = 4;

test("the node passes a part of the conformance tests", { skip: localClusterMissing() ?? false }, async () => {
  await using cluster = await LocalCluster.start();
  using api = await KubeApi.open(cluster.target.kubeconfig);
  const lines: string[] = [];
  const init = { parallel: PARALLEL, say: (line: string) => void lines.push(line) };
  const report = await runTests(chosen(allTests, PART), new ClusterStage(api, cluster.target), init);
  const failed = report.tests.filter(({ result }) => result === "failed");
  assert.deepEqual(failed, [], `${inspect(failed)}\n${await cluster.log()}`);
  assert.ok(report.passed > 100, `only ${report.passed} passed: the choice is out of date`);
});

test("every conformance test has a name of its own", () => {
  const names = allTests.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length >= 120);
});
