/** Volumes from kubectl's end: the files that an API server's pods see, and the messages for users, on a real board. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { CONFIG_MAPS, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, nodeWith, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { endProcess, Fleet, kubectlMissing, untilPrinted } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);

let containerd: Containerd;
let fleet: Fleet;
let admin: FleetAdmin;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  fleet = await Fleet.start();
  node = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  admin = await FleetAdmin.of(fleet);
  await admin.untilCondition("node-a", "Ready", "True");
  await makeGreedyPods();
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, fleet, node, admin]) if (each !== undefined) all.use(each);
  all.defer(() => admin?.clear());
});

function podWith(
  name: string,
  script: string,
  volumes: readonly object[],
  spec: Record<string, unknown> = {},
  more: Record<string, unknown> = {},
): unknown {
  const volumeMounts = volumes.map((volume) => {
    const own = (volume as { name: string }).name;
    return { name: own, mountPath: `/${own}` };
  });
  const command = ["/bin/sh", "-c", script];
  const container = {
    name: "app",
    image: BUSYBOX_IMAGE,
    imagePullPolicy: "IfNotPresent",
    command,
    volumeMounts,
    ...more,
  };
  return containerPod(name, script, { nodeName: "node-a", containers: [container], volumes, ...spec });
}

/** The disk usage of pods is sampled every ten seconds; other tests run meanwhile. */
async function makeGreedyPods(): Promise<void> {
  const volumes = [{ name: "data", emptyDir: { sizeLimit: "1Mi" } }];
  await run(podWith("greedy", `dd if=/dev/zero of=/data/file bs=1M count=3; ${SLEEP_SCRIPT}`, volumes));
  const limits = { "ephemeral-storage": "8Mi" };
  await run(podWith("quiet", SLEEP_SCRIPT, [], {}, { resources: { limits } }));
  await run(podWith("talks", `seq 1 250000; ${SLEEP_SCRIPT}`, [], {}, { resources: { limits } }));
}

const run = (pod: unknown): Promise<unknown> => admin.create(PODS, pod as Readonly<Record<string, unknown>>);

const waitingReason = ({ status }: Pod): string | undefined => status?.containerStatuses?.[0]?.state.waiting?.reason;

/** Most of the time goes by in waiting. */
describe("volumes from kubectl's end", { skip, concurrency: 3 }, () => {
  test("a ConfigMap that is missing holds a pod up, says so, and lets it go on when it comes; updates arrive", async () => {
    const script = `trap 'exit 0' TERM; while :; do cat /config/key; echo; sleep 0.5; done`;
    await run(podWith("waiting", script, [{ name: "config", configMap: { name: "late" } }]));
    await fleet.seen(
      [
        ...["get", "events", "--watch", "--field-selector=involvedObject.name=waiting,reason=FailedMount"],
        ...["-o", 'jsonpath={.message}{"\\n"}'],
      ],
      (text) => text.includes('MountVolume.SetUp failed for volume "config" : configmap "late" not found'),
    );
    await admin.create(CONFIG_MAPS, { metadata: { name: "late" }, data: { key: "first" } });
    await admin.untilPod("waiting", "ready", isReady);
    const follower = fleet.spawnKubectl(["logs", "-f", "waiting"]);
    await untilPrinted(follower, (text) => text.includes("first"));
    await admin.patch(CONFIG_MAPS, "late", { data: { key: "second" } });
    await untilPrinted(follower, (text) => text.includes("second"));
    await endProcess(follower);
  });

  test("the volumes of a pod that has completed are gone, its log is not", async () => {
    const volumes = [
      { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
      { name: "image", image: { reference: BUSYBOX_IMAGE } },
    ];
    const script = "echo done >/memory/file; cat /memory/file; ls /image/bin/sh";
    await run(podWith("once", script, volumes, { restartPolicy: "Never" }));
    const { metadata } = await admin.untilPod("once", "its end", ({ status }) => status?.phase === "Succeeded");
    const folder = join(node.directory, "root", "pods", metadata.uid ?? "");
    await node.waitForFile(folder, () => !readdirSync(folder).includes("volumes"));
    assert.equal(readFileSync("/proc/self/mountinfo", "utf8").includes(folder), false);
    assert.equal(await fleet.kubectl(["logs", "once"]), "done\n/image/bin/sh\n");
  });

  test("an image that nobody has holds up the container that mounts it, with the pull's reason", async () => {
    const volumes = [{ name: "image", image: { reference: "localhost/none:1", pullPolicy: "Never" } }];
    await run(podWith("imageless", SLEEP_SCRIPT, volumes));
    await admin.untilPod("imageless", "to wait", (pod) => waitingReason(pod) === "ErrImageNeverPull");
  });

  test("a driver that the board has not got is named", async () => {
    await run(podWith("driverless", SLEEP_SCRIPT, [{ name: "data", csi: { driver: "disk.example" } }]));
    await admin.untilEvent(
      "driverless",
      "an event",
      ({ reason, message }) =>
        reason === "FailedMount" &&
        message.includes("driver name disk.example not found in the list of registered CSI drivers"),
    );
  });

  test("a pod whose emptyDir outgrows its limit is evicted, and kubectl says why", async () => {
    const message = 'Usage of EmptyDir volume "data" exceeds the limit "1Mi". ';
    const { status } = await admin.untilPod("greedy", "its end", (pod) => pod.status?.phase === "Failed");
    assert.deepEqual([status?.reason, status?.message], ["Evicted", message]);
    await admin.untilEvent("greedy", "an event", (event) => event.reason === "Evicted" && event.message === message);
    assert.match(await fleet.kubectl(["describe", "pod", "greedy"]), /^Reason: +Evicted$.*Usage of EmptyDir volume/ms);
  });

  test("a pod whose log is larger than its limit of ephemeral storage goes, with the kubelet's words", async () => {
    const { status } = await admin.untilPod("talks", "its end", (pod) => pod.status?.phase === "Failed");
    const message = "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ";
    assert.deepEqual([status?.reason, status?.message], ["Evicted", message]);
    await admin.toldOnce("talks", "Evicted");
    const [quiet] = (await admin.pod("quiet")).status?.containerStatuses ?? [];
    assert.ok(quiet?.state.running !== undefined && quiet.restartCount === 0);
  });
});
