/** The annotation `picolet.io/why`: stock kubectl, a hub, a board with containers. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const version = "1.32";
const skip = containerdMissing() ?? kubectlMissing(version);

let containerd: Containerd;
let fleet: Fleet;
let admin: FleetAdmin;
let node: AgentNode;

const annotationOf = (pod: KubeObject): string => pod.metadata.annotations?.["picolet.io/why"] ?? "";

async function askAndRead(): Promise<KubeObject> {
  await fleet.kubectl(["annotate", "--overwrite", "pod", "web", "picolet.io/why=?"], { version });
  const isAnswered = (pod: KubeObject): boolean => pod.metadata.name === "web" && annotationOf(pod) !== "?";
  return await admin.until(PODS, "an answer", isAnswered);
}

describe("kubectl annotate asks why", { skip }, () => {
  before(async () => {
    containerd = await Containerd.start();
    fleet = await Fleet.start();
    node = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
    await node.start();
    admin = await FleetAdmin.of(fleet);
    await admin.untilCondition("node-a", "Ready", "True");
    await admin.create(PODS, containerPod("web") as Readonly<Record<string, unknown>>);
    await admin.untilPod("web", "ready", isReady);
  });

  after(async () => {
    await using all = new AsyncDisposableStack();
    for (const each of [containerd, fleet, node, admin]) if (each !== undefined) all.use(each);
    all.defer(() => admin?.clear());
  });

  test("kubectl describe shows the board's sentences, and the pod runs on as it was", async () => {
    const read = async (): Promise<string[]> => {
      const paths = ["uid", "generation"].map((field) => `{.metadata.${field}} `).join("");
      const container = "{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}";
      return (await fleet.kubectl(["get", "pod", "web", "-o", `jsonpath=${paths}${container}`], { version })).split(
        " ",
      );
    };
    const before = await read();
    assert.match(annotationOf(await askAndRead()), /^[-0-9]+ [:0-9]+ UTC {2}default\/web on node-a: .*ready/i);
    const described = await fleet.kubectl(["describe", "pod", "web"], { version });
    assert.match(described, /picolet\.io\/why:\s[\s\S]*the hub wants here[\s\S]*Container app was started\./);
    assert.deepEqual(await read(), before);
  });

  test("a board that is away is said to be so, and answers when it is back and asked again", async () => {
    await node.stop();
    await admin.untilCondition("node-a", "Ready", "Unknown");
    assert.match(annotationOf(await askAndRead()), /node-a is away/);
    await node.start();
    await admin.untilCondition("node-a", "Ready", "True");
    assert.match(annotationOf(await askAndRead()), /default\/web on node-a[\s\S]*The agent .* started/);
  });
});
