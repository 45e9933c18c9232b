/** Volumes from kubectl's end: what an API server's pods see of them, and what a user is told, on a real board. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { AgentNode } from "../support/agent-process.ts";
import { Containerd, containerdMissing } from "../support/containerd.ts";
import { Fleet, kubectlMissing } from "../support/fleet.ts";
import { BUSYBOX_IMAGE } from "../support/image-archive.ts";
import { containerPod, nodeWith } from "../support/node-fixtures.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);

let containerd: Containerd;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  fleet = await Fleet.start();
  node = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  await fleet.untilNodeReady("node-a");
});

after(async () => {
  if (skip !== false) return;
  await fleet?.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, fleet, node]) if (each !== undefined) all.use(each);
});

const SLEEP = 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done';

function podWith(
  name: string,
  script: string,
  volumes: readonly object[],
  spec: Record<string, unknown> = {},
): unknown {
  const volumeMounts = volumes.map((volume) => {
    const own = (volume as { name: string }).name;
    return { name: own, mountPath: `/${own}` };
  });
  const command = ["/bin/sh", "-c", script];
  const container = { name: "app", image: BUSYBOX_IMAGE, imagePullPolicy: "IfNotPresent", command, volumeMounts };
  return containerPod(name, script, { nodeName: "node-a", containers: [container], volumes, ...spec });
}

const uidOf = (pod: string): Promise<string> => fleet.kubectl(["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);

const eventsOf = (pod: string, reason: string): readonly string[] => [
  ...["get", "events", "--watch", `--field-selector=involvedObject.name=${pod},reason=${reason}`],
  ...["-o", 'jsonpath={.message}{"\\n"}'],
];

test("a pod whose emptyDir outgrows its limit is evicted, and kubectl says why", { skip }, async () => {
  const volumes = [{ name: "data", emptyDir: { sizeLimit: "1Mi" } }];
  await fleet.apply(podWith("greedy", `dd if=/dev/zero of=/data/file bs=1M count=3; ${SLEEP}`, volumes));
  const message = 'Usage of EmptyDir volume "data" exceeds the limit "1Mi". ';
  await fleet.seen(
    [
      ...["get", "pod", "greedy", "--watch", "-o"],
      'jsonpath={.status.phase}|{.status.reason}|{.status.message}|{"\\n"}',
    ],
    (text) => text.includes(`Failed|Evicted|${message}|`),
  );
  await fleet.seen(eventsOf("greedy", "Evicted"), (text) => text.includes(message));
});

test("a ConfigMap that is missing holds a pod up, says so, and lets it go on when it comes; updates arrive", {
  skip,
}, async () => {
  const script = `while :; do cat /config/key; echo; sleep 1; done`;
  await fleet.apply(podWith("waiting", script, [{ name: "config", configMap: { name: "late" } }]));
  await fleet.seen(eventsOf("waiting", "FailedMount"), (text) =>
    text.includes('MountVolume.SetUp failed for volume "config" : configmap "late" not found'),
  );
  await fleet.kubectl(["create", "configmap", "late", "--from-literal=key=first"]);
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/waiting", "--timeout=90s"]);
  const config = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "late" }, data: { key: "second" } };
  await fleet.apply(config);
  await fleet.seen(["logs", "-f", "waiting"], (text) => text.includes("first") && text.includes("second"));
});

test("the volumes of a pod that has completed are gone, its log is not", { skip }, async () => {
  const volumes = [
    { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
    { name: "image", image: { reference: BUSYBOX_IMAGE } },
  ];
  const script = "echo done >/memory/file; cat /memory/file; ls /image/bin/sh";
  await fleet.apply(podWith("once", script, volumes, { restartPolicy: "Never" }));
  await fleet.seen(["get", "pod", "once", "--watch", "-o", 'jsonpath={.status.phase}{"\\n"}'], (text) =>
    text.includes("Succeeded"),
  );
  const folder = join(node.directory, "root", "pods", await uidOf("once"));
  await node.waitForFile(folder, () => !readdirSync(folder).includes("volumes"));
  assert.equal(readFileSync("/proc/self/mountinfo", "utf8").includes(folder), false);
  assert.equal(await fleet.kubectl(["logs", "once"]), "done\n/image/bin/sh\n");
});

test("an image that nobody has holds up the container that mounts it, with the pull's reason", { skip }, async () => {
  const volumes = [{ name: "image", image: { reference: "localhost/none:1", pullPolicy: "Never" } }];
  await fleet.apply(podWith("imageless", SLEEP, volumes));
  await fleet.seen(
    [
      ...["get", "pod", "imageless", "--watch", "-o"],
      'jsonpath={.status.containerStatuses[0].state.waiting.reason}{"\\n"}',
    ],
    (text) => text.includes("ErrImageNeverPull"),
  );
});

test("a driver that the board has not got is named", { skip }, async () => {
  await fleet.apply(podWith("driverless", SLEEP, [{ name: "data", csi: { driver: "disk.example" } }]));
  await fleet.seen(eventsOf("driverless", "FailedMount"), (text) =>
    text.includes("driver name disk.example not found in the list of registered CSI drivers"),
  );
});
