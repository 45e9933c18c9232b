/** Other resources for pods that run, from kubectl's end: on a real board, through deaths of its agent. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Pod, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { FleetBoard } from "../../support/agent/fleet-board.ts";
import { containerIdOf, containerPod, edgectl } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { type Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

let containerd: Containerd;
let board: FleetBoard;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  board = await FleetBoard.start(containerd);
  ({ fleet, node } = board);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, board]) if (each !== undefined) all.use(each);
});

/** Until the first container has this limit, with what is said of a resize. */
const told = (pod: string, memoryLimit: string, pending: "" | "Deferred"): Promise<string> =>
  fleet.seen(
    [
      ...["get", "pod", pod, "--watch", "-o"],
      "jsonpath=<{.status.containerStatuses[0].resources.limits.memory}|" +
        '{.status.conditions[?(@.type=="PodResizePending")].reason}|' +
        '{.status.conditions[?(@.type=="PodResizeInProgress")].type}>{"\\n"}',
    ],
    (text) => text.includes(`<${memoryLimit}|${pending}|>`),
  );

async function started(name: string, resources: ResourceRequirements): Promise<Pod> {
  const container = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", SLEEP], resources };
  await fleet.apply(containerPod(name, SLEEP, { nodeName: "node-a", containers: [container] }));
  await fleet.kubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s"]);
  return await fleet.get<Pod>("pod", name);
}

const resize = (name: string, resources: ResourceRequirements): Promise<string> =>
  fleet.kubectl([
    ...["patch", "pod", name, "--subresource=resize", "-p"],
    JSON.stringify({ spec: { containers: [{ name: "app", resources }] } }),
  ]);

const both = (cpu: string, memory: string): ResourceRequirements => ({
  requests: { cpu, memory },
  limits: { cpu, memory },
});

const memoryLimitOf = (containerId: string): string => {
  const folder = containerd.cgroupsOf(containerId).get("memory") ?? "";
  return readFileSync(join(folder, "memory.limit_in_bytes"), "utf8").trim();
};

test("what is wanted while the agent is dead is done by the next one, and the container runs on", {
  skip,
}, async () => {
  const pod = await started("web", both("50m", "32Mi"));
  await node.kill();
  await resize("web", both("60m", "48Mi"));
  await node.start();
  await told("web", "48Mi", "");
  const after = await fleet.get<Pod>("pod", "web");
  assert.equal(containerIdOf(after), containerIdOf(pod));
  assert.equal(after.status?.containerStatuses?.[0]?.restartCount, 0);
  assert.equal(memoryLimitOf(containerIdOf(pod)), String(48 * MEBIBYTE));
  // A pod that was resized is taken up as it is.
  await node.kill();
  await node.start();
  await resize("web", both("60m", "40Mi"));
  await told("web", "40Mi", "");
  assert.equal(containerIdOf(await fleet.get<Pod>("pod", "web")), containerIdOf(pod));
  assert.equal(memoryLimitOf(containerIdOf(pod)), String(40 * MEBIBYTE));
});

test("what does not fit is deferred, told of, kept through a death, and done when there is room", {
  skip,
}, async () => {
  const all = cpus().length * 1000;
  const request = (milliCpu: number): ResourceRequirements => ({
    requests: { cpu: `${milliCpu}m` },
    limits: { memory: "32Mi" },
  });
  await started("big", request(all - 400));
  const pod = await started("small", request(50));
  await resize("small", { ...request(500), limits: { memory: "48Mi" } });
  await told("small", "32Mi", "Deferred");
  const figures = new RegExp(`Node didn't have enough resource: cpu, requested: 500, used: \\d+, capacity: ${all}`);
  const { status } = await fleet.get<Pod>("pod", "small");
  assert.match(status?.conditions?.find(({ type }) => type === "PodResizePending")?.message ?? "", figures);
  assert.match(edgectl(node, "describe", "pod", "small"), /PodResizePending\s+True Deferred Node didn't have/);
  await node.kill();
  await node.start();
  await told("small", "32Mi", "Deferred");
  await fleet.kubectl(["delete", "pod", "big", "--wait=true", "--timeout=60s"]);
  await told("small", "48Mi", "");
  const after = await fleet.get<Pod>("pod", "small");
  assert.equal(containerIdOf(after), containerIdOf(pod));
  assert.equal(memoryLimitOf(containerIdOf(pod)), String(48 * MEBIBYTE));
});
