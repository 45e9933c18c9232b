/** Device plugins on a real board: a plugin written with grpc-js against the published protocol, on a real containerd. */
import assert from "node:assert/strict";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
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
  plugin.stop();
  await node.start();
  await untilCameras(node, "3", "0");
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
});

test("a pod names nodes itself, where the configuration allows them", { skip }, async (context) => {
  await using node = nodeWith(containerd, { config: { allowedDevices: ["/dev/fu*"] } });
  await node.start();
  const naming = (name: string, devices: string): unknown => {
    const pod = containerPod(name, SLEEP_SCRIPT) as { readonly metadata: object };
    return { ...pod, metadata: { ...pod.metadata, annotations: { "picolet.io/devices": devices } } };
  };
  const link = `/dev/picolet-test-${process.pid}`;
  context.after(() => rmSync(link, { force: true }));
  node.writeManifest("full.json", naming("full", "/dev/full:r"));
  node.writeManifest("mem.json", naming("mem", "/dev/kmsg"));
  node.writeManifest("late.json", naming("late", link));
  await node.waitForPods("a ready pod", (pods) => isReady(pods.get("full-node")));
  const script = "ls -l /dev/full; head -c 1 /dev/full | wc -c; echo x 2>&1 > /dev/full || echo refused";
  assert.match(inside(node, "full-node", script), /^c.*\n1\n(.*\n)?refused$/);
  const waitingFor = (pods: ReadonlyMap<string, Pod>, name: string): string =>
    pods.get(name)?.status?.containerStatuses?.[0]?.state?.waiting?.message ?? "";
  await node.waitForPods("two refusals", (pods) => {
    const denied = waitingFor(pods, "mem-node").includes("this node gives no pod /dev/kmsg: name it in allowedDevices");
    return denied && waitingFor(pods, "late-node").includes(`there is no device ${link} here`);
  });
  symlinkSync("/dev/full", link);
  await node.waitForPods("the late pod", (pods) => isReady(pods.get("late-node")));
});
