/** A board that runs out of memory, on real containers and cgroups, from kubectl's end. */
import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { after, before, test } from "node:test";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { FleetBoard } from "../../support/agent/fleet-board.ts";
import { containerIdOf, containerPod } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { type Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
/** The limit of all pods together, and how much of it must stay free. */
const PODS_BYTES = 400 * MEBIBYTE;
const THRESHOLD = "100Mi";
/** A megabyte at a time, some 50 MB/s. */
const LEAK = `awk 'BEGIN { block = sprintf("%1048576s", ""); while (1) { kept[i++] = block i; system("usleep 10000") } }'`;
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

let containerd: Containerd;
let board: FleetBoard;
let fleet: Fleet;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  board = await FleetBoard.start(containerd, {
    systemReserved: { memory: String(totalmem() - PODS_BYTES) },
    evictionHard: { "memory.available": THRESHOLD },
    evictionPressureTransitionPeriod: "5s",
  });
  ({ fleet } = board);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, board]) if (each !== undefined) all.use(each);
});

const pressure = (status: "True" | "False"): Promise<string> =>
  fleet.seen(
    [
      "get",
      "node",
      "node-a",
      "--watch",
      "-o",
      `jsonpath=<{.status.conditions[?(@.type=="MemoryPressure")].status}>{"\\n"}`,
    ],
    (text) => text.includes(`<${status}>\n`),
  );

const app = (script: string, requests: Record<string, string>) => ({
  containers: [{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script], resources: { requests } }],
});

test("the pod that leaks is evicted with the figures, the others run on, and the node says what it is short of", {
  skip,
}, async () => {
  const others = { good: { memory: "32Mi" }, plain: {} };
  for (const [name, requests] of Object.entries(others)) {
    await fleet.apply(containerPod(name, SLEEP, { nodeName: "node-a", ...app(SLEEP, requests) }));
    await fleet.kubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s"]);
  }
  const before = await Promise.all(Object.keys(others).map((name) => fleet.get<Pod>("pod", name)));
  const leak = containerPod("leak", LEAK, { nodeName: "node-a", ...app(LEAK, { memory: "16Mi" }) });
  // Waited for from before it begins: what is short is so for seconds.
  await Promise.all([pressure("True"), fleet.apply(leak)]);
  await using admin = await FleetAdmin.of(fleet);
  const { status } = await admin.untilPod(
    "leak",
    "its end",
    (pod) => pod.status?.phase === "Failed" && pod.status.containerStatuses?.[0]?.state.terminated !== undefined,
  );
  assert.equal(status?.reason, "Evicted");
  assert.match(
    status?.message ?? "",
    /^The node was low on resource: memory\. Threshold quantity: 100Mi, available: \d+\S*\. Container app was using \d+\S*, request is 16Mi, has larger consumption of memory\. $/,
  );
  const disruption = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
  assert.deepEqual([disruption?.status, disruption?.reason], ["True", "TerminationByKubelet"]);
  assert.equal(status?.containerStatuses?.[0]?.restartCount, 0);
  const told = JSON.parse(await fleet.kubectl(["get", "--raw", "/api/v1/nodes/node-a/proxy/why/default/leak"]));
  const { decisions } = told as WhyAnswer;
  assert.match(
    decisions.find(({ decision }) => decision.kind === "evicted")?.sentence ?? "",
    /^The node evicted the pod: \S+ was .*, below the hard threshold of 100 MiB; it used .* of a request of 16 MiB/,
  );
  assert.ok(
    decisions.some(({ decision }) => decision.kind === "accepted"),
    "with the story before",
  );
  await pressure("False");
  const now = await Promise.all(Object.keys(others).map((name) => fleet.get<Pod>("pod", name)));
  assert.deepEqual(now.map(containerIdOf), before.map(containerIdOf), "the others ran on");
  assert.ok(now.every((pod) => pod.status?.containerStatuses?.[0]?.restartCount === 0));
  const events = await fleet.kubectl([
    "get",
    "events",
    "-o",
    "jsonpath={range .items[*]}{.reason}:{.involvedObject.name} {end}",
  ]);
  for (const wanted of ["Evicted:leak", "EvictionThresholdMet:node-a", "NodeHasInsufficientMemory:node-a"])
    assert.ok(events.includes(wanted), `${wanted} among ${events}`);
});
