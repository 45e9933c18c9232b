/**
 * A few of the conformance tests, one of each area, against an emulated board with cgroup v2 alone. All of them:
 * `npm run conformance -- --board amd64 --runtime containerd-2-crun`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { guestMissing } from "../support/guest/guest.ts";
import { allTests } from "./all-tests.ts";
import { KubeApi } from "./framework/kube-api.ts";
import { ClusterStage, chosen, runTests } from "./framework/runner.ts";
import { GuestCluster } from "./guest-cluster.ts";
import { localClusterMissing } from "./local-cluster.ts";

const PART = new RegExp(
  [
    "Pods should get a host IP",
    "Container Runtime .* private registry with secret",
    "InitContainer should invoke init containers on a RestartNever pod",
    "Probing container should be ready immediately",
    "Pod InPlace Resize Container should (increase|decrease)",
    "Component pods and their life should run to completion",
    "HostPort should lead",
  ].join("|"),
);
const LEAST = 5;

test("crun and containerd 2 on cgroup v2 alone pass tests of each area", { skip: skipped() }, async () => {
  await using cluster = await GuestCluster.start({ architecture: "amd64", runtime: "containerd-2-crun" });
  using api = await KubeApi.open(cluster.target.kubeconfig);
  const { slowness } = cluster.target;
  const init = { parallel: 2, slowness, say: () => undefined };
  const report = await runTests(chosen(allTests, PART), new ClusterStage(api, cluster.target), init);
  const failed = report.tests.filter(({ result }) => result === "failed");
  assert.deepEqual(failed, [], `${inspect(failed)}\n${await cluster.log()}`);
  assert.ok(report.passed > LEAST, `only ${report.passed} passed: the choice is out of date`);
});

function skipped(): string | false {
  return guestMissing() ?? localClusterMissing() ?? false;
}
