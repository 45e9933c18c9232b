/** Device plugins on a real board: a plugin written with grpc-js against the published protocol, on a real containerd. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { DeviceList } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, edgectl, nodeWith, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { type TestDevice, TestDevicePlugin } from "../../support/unit/plugins/test-device-plugin.ts";

const skip = containerdMissing() ?? false;
const RESOURCE = "example.com/camera";
const healthy = (...ids: readonly string[]): readonly TestDevice[] =>
  ids.map((ID) => ({ ID, health: "Healthy", topology: { nodes: [{ ID: 0 }] } }));

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  await containerd?.[Symbol.asyncDispose]();
});

const withCameras = (name: string, count: number, resource = RESOURCE): unknown => {
  const resources = { limits: { [resource]: String(count) } };
  const container = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", SLEEP_SCRIPT], resources };
  return containerPod(name, SLEEP_SCRIPT, { containers: [container] });
};

const folderOf = (node: AgentNode): string => join(node.directory, "root", "device-plugins");
const inside = (node: AgentNode, pod: string, script: string): string =>
  edgectl(node, "exec", pod, "--", "/bin/sh", "-c", script).trim();

async function untilCameras(node: AgentNode, capacity: string, allocatable: string): Promise<void> {
  await node.waitForStatus(`${capacity} cameras, ${allocatable} of them healthy`, ({ resources }) => {
    return resources.capacity[RESOURCE] === capacity && resources.allocatable[RESOURCE] === allocatable;
  });
}

test("a pod gets the devices of a plugin, keeps them over restarts, and fails where there are none", {
  skip,
}, async (context) => {
  await using node = nodeWith(containerd);
  await node.start();
  const plugin = new TestDevicePlugin({
    folder: folderOf(node),
    resource: RESOURCE,
    devices: healthy("a", "b", "c"),
    preStart: true,
    preferred: (available, size) => [...available].sort().reverse().slice(0, size),
    allocate: (ids) => ({
      envs: { CAMERAS: ids.join(",") },
      devices: ids.map((id) => ({ container_path: `/dev/camera-${id}`, host_path: "/dev/full", permissions: "rw" })),
      mounts: [{ container_path: "/firmware", host_path: node.directory, read_only: true }],
      annotations: { "example.com/cameras": ids.join(",") },
    }),
  });
  context.after(() => plugin.stop());
  await plugin.start();
  await untilCameras(node, "3", "3");
  node.writeManifest("two.json", withCameras("two", 2));
  const first = await node.waitForPods("a ready pod", (pods) => isReady(pods.get("two-node")));
  assert.deepEqual(plugin.calls, ["GetPreferredAllocation a,b,c", "Allocate c,b", "PreStartContainer c,b"]);
  assert.equal(inside(node, "two-node", "echo $CAMERAS; ls /dev | grep camera"), "c,b\ncamera-b\ncamera-c");
  assert.match(inside(node, "two-node", "echo x > /dev/camera-b; touch /firmware/x 2>&1 || true"), /Read-only file/);
  assert.deepEqual(healthOf(first.get("two-node")), { c: "Healthy", b: "Healthy" });

  plugin.devices = [...healthy("a", "c"), { ID: "b", health: "Unhealthy" }];
  await node.waitForPods("an unhealthy device", (pods) => healthOf(pods.get("two-node")).b === "Unhealthy");
  await untilCameras(node, "3", "2");
  node.writeManifest("more.json", withCameras("more", 2));
  const refused = await node.waitForPods("a failed pod", (pods) => pods.get("more-node")?.status?.phase === "Failed");
  assert.equal(refused.get("more-node")?.status?.reason, "UnexpectedAdmissionError");
  assert.match(
    refused.get("more-node")?.status?.message ?? "",
    /requested number of devices unavailable for example.com\/camera. Requested: 2, Available: 1, which is unexpected/,
  );

  await node.stop();
  await node.start();
  await untilCameras(node, "3", "0");
  // Its socket is removed, so that plugins that watch it start again.
  await assert.rejects(plugin.register(), /camera.sock/);
  plugin.stop();
  await plugin.start();
  await untilCameras(node, "3", "2");
  node.writeManifest("one.json", withCameras("one", 1));
  const last = await node.waitForPods("the last device", (pods) => isReady(pods.get("one-node")));
  assert.deepEqual(Object.keys(healthOf(last.get("one-node"))), ["a"]);
  assert.equal(last.get("two-node")?.status?.containerStatuses?.[0]?.restartCount, 0);
});

const healthOf = (pod: Pod | undefined): Record<string, string> => {
  const [status] = pod?.status?.containerStatuses?.[0]?.allocatedResourcesStatus ?? [];
  return Object.fromEntries((status?.resources ?? []).map(({ resourceID, health }) => [resourceID, health ?? ""]));
};

test("a plugin that refuses fails the pod with its words, and a wrong registration is refused", {
  skip,
}, async (context) => {
  await using node = nodeWith(containerd);
  await node.start();
  const init = { folder: folderOf(node), resource: RESOURCE, devices: healthy("a") };
  const plugin = new TestDevicePlugin({ ...init, allocate: () => new Error("no film in it") });
  context.after(() => plugin.stop());
  await plugin.serve();
  await assert.rejects(plugin.register({ version: "v1" }), /API version "v1" is not supported by kubelet/);
  await assert.rejects(plugin.register({ endpoint: "../x.sock" }), /it must be a name in/);
  await assert.rejects(plugin.register({ resource_name: "camera" }), /it must be like example.com\/camera/);
  await plugin.register();
  await untilCameras(node, "1", "1");
  node.writeManifest("one.json", withCameras("one", 1));
  const pods = await node.waitForPods("a failed pod", (all) => all.get("one-node")?.status?.phase === "Failed");
  const { reason, message } = pods.get("one-node")?.status ?? {};
  assert.equal(reason, "UnexpectedAdmissionError");
  assert.match(message ?? "", /Allocate failed due to no film in it, which is unexpected/);
});

test("rules of the configuration offer device nodes and CDI devices without a plugin", { skip }, async (context) => {
  const plugged = `/dev/picolet-rule${process.pid}`;
  context.after(() => rmSync(plugged, { force: true }));
  const folder = "/var/run/cdi";
  const spec = join(folder, `picolet-test-${process.pid}.json`);
  mkdirSync(folder, { recursive: true });
  context.after(() => rmSync(spec, { force: true }));
  const deviceNodes = [{ path: "/dev/accelerator", hostPath: "/dev/full", permissions: "rw" }];
  const devices = [{ name: "0", containerEdits: { deviceNodes, env: ["ACCELERATOR=0"] } }];
  writeFileSync(spec, JSON.stringify({ cdiVersion: "0.6.0", kind: `picolet.test/a${process.pid}`, devices }));
  const rules = [
    { name: "example.com/full", match: "/dev/full" },
    { name: "example.com/accelerator", match: [`cdi:picolet.test/a${process.pid}`] },
    { name: "example.com/plugged", match: plugged },
  ];
  await using node = nodeWith(containerd, { config: { devices: rules } });
  await node.start();
  node.writeManifest("full.json", withCameras("full", 1, "example.com/full"));
  node.writeManifest("cdi.json", withCameras("cdi", 1, "example.com/accelerator"));
  await node.waitForPods("two ready pods", (pods) =>
    ["full-node", "cdi-node"].every((name) => isReady(pods.get(name))),
  );
  assert.match(inside(node, "full-node", "ls -l /dev/full; echo x > /dev/full || true"), /^c/);
  assert.equal(inside(node, "cdi-node", "ls /dev/accelerator; echo $ACCELERATOR"), "/dev/accelerator\n0");
  const listed = edgectl(node, "devices", "-o", "json");
  assert.deepEqual(
    (JSON.parse(listed) as DeviceList).items.map(({ device, usedBy }) => [device, usedBy?.pod]),
    [
      [`picolet.test/a${process.pid}=0`, "cdi-node"],
      ["/dev/full", "full-node"],
    ],
  );
  node.writeManifest("late.json", withCameras("late", 1, "example.com/full"));
  const pods = await node.waitForPods("a failed pod", (all) => all.get("late-node")?.status?.phase === "Failed");
  assert.equal(pods.get("late-node")?.status?.reason, "UnexpectedAdmissionError");

  node.writeManifest("plugged.json", withCameras("plugged", 1, "example.com/plugged"));
  await node.waitForPods("a pod without its device", (all) => all.get("plugged-node")?.status?.phase === "Failed");
  mknod(plugged, 5);
  await node.waitForPods("a pod whose device is plugged in", (all) => isReady(all.get("plugged-node")));
  assert.match(inside(node, "plugged-node", `ls -l ${plugged}`), /^c/);
});

/** A number that no driver has: opening a node of it says whether the cgroup allows it. */
const mknod = (path: string, minor: number): void => void execFileSync("mknod", [path, "c", "240", String(minor)]);
const ALLOWED = /No such device/;
const FORBIDDEN = /Operation not permitted/;

test("a pod gets the devices that it names, follows them, and is refused what the node does not allow", {
  skip,
}, async (context) => {
  const [first, second] = ["a", "b"].map((name) => `/dev/picolet${process.pid}${name}`) as [string, string];
  context.after(() => {
    for (const path of [first, second]) rmSync(path, { force: true });
  });
  mknod(first, 1);
  const allowedDevices = [{ match: `/dev/picolet${process.pid}*`, namespaces: "default" }];
  await using node = nodeWith(containerd, { config: { allowedDevices } });
  await node.start();
  const naming = (name: string, devices: string): void => {
    const made = containerPod(name, SLEEP_SCRIPT) as Pod;
    node.writeManifest(`${name}.json`, {
      ...made,
      metadata: { ...made.metadata, annotations: { "picolet.io/devices": devices } },
    });
  };
  naming("web", `${first}:r; ${second}`);
  naming("other", `${first}`);
  naming("greedy", "/dev/mem; /dev/loop0");
  const refused = await node.waitForPods(
    "a failed pod and one that waits",
    (pods) =>
      pods.get("greedy-node")?.status?.phase === "Failed" &&
      isReady(pods.get("other-node")) &&
      pods.get("web-node")?.status?.containerStatuses?.[0]?.state?.waiting?.reason === "CreateContainerConfigError",
  );
  const { reason, message } = refused.get("greedy-node")?.status ?? {};
  assert.equal(reason, "DevicesForbidden");
  assert.match(message ?? "", /\/dev\/mem gives the memory of the whole board/);
  const waiting = refused.get("web-node")?.status?.containerStatuses?.[0]?.state?.waiting;
  assert.match(waiting?.message ?? "", new RegExp(`${second} of the annotation .* is not plugged in`));

  mknod(second, 2);
  await node.waitForPods("a ready pod", (pods) => isReady(pods.get("web-node")));
  assert.equal(inside(node, "web-node", "ls /dev | grep picolet | wc -l"), "2");
  assert.equal(inside(node, "other-node", "ls /dev | grep picolet | wc -l"), "1");
  assert.match(inside(node, "web-node", `cat ${first} 2>&1 || true`), ALLOWED);
  assert.match(inside(node, "web-node", `(echo x > ${first}) 2>&1 || true`), FORBIDDEN);
  assert.match(inside(node, "web-node", `(echo x > ${second}) 2>&1 || true`), ALLOWED);
  assert.match(inside(node, "other-node", "mknod /dev/x c 240 2 2>&1; cat /dev/x 2>&1 || true"), FORBIDDEN);

  rmSync(second);
  mknod(second, 3);
  const again = await node.waitForPods("a restarted pod", (pods) => {
    return isReady(pods.get("web-node")) && pods.get("web-node")?.status?.containerStatuses?.[0]?.restartCount === 1;
  });
  assert.equal(again.get("other-node")?.status?.containerStatuses?.[0]?.restartCount, 0);
  assert.match(inside(node, "web-node", `stat -c %T ${second}`), /^3$/);
  assert.match(edgectl(node, "events").replaceAll(/\s+/g, " "), /DevicePlugged [^.]*\. Its containers restart/);

  await node.stop();
  rmSync(second);
  mknod(second, 4);
  await node.start();
  await node.waitForPods("a pod that restarted for what changed without an agent", (pods) => {
    return isReady(pods.get("web-node")) && pods.get("web-node")?.status?.containerStatuses?.[0]?.restartCount === 2;
  });
  assert.match(inside(node, "web-node", `stat -c %T ${second}`), /^4$/);
});
