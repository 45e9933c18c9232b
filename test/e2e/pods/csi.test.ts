/** Volumes of a CSI driver on a real board of a real hub. The driver makes real mounts; the agent is killed in between. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { attachmentKey } from "@picolet/hub/bridge/remote-data.ts";
import {
  CSI_DRIVERS,
  CSI_NODES,
  type KubeObject,
  NODES,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  SECRETS,
  VOLUME_ATTACHMENTS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { BOARD, FleetBoard } from "../../support/agent/fleet-board.ts";
import { containerPod, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { mountsBelow, TestCsiDriver } from "../../support/unit/plugins/csi-driver.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const DRIVER = "disk.csi.example";
const ATTACHED = "attached.csi.example";
const STUCK = "stuck.csi.example";
const folder = new TempFolder();

let containerd: Containerd;
let board: FleetBoard;
let admin: FleetAdmin;
let driver: TestCsiDriver;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  board = await FleetBoard.start(containerd);
  admin = await FleetAdmin.of(board.fleet);
  driver = await TestCsiDriver.start({
    name: DRIVER,
    folder: folder.at("driver"),
    maxVolumes: 8,
    topology: { "disk.csi.example/shelf": "3" },
    capabilities: [1, 2, 3, 4],
  });
  await makeDriverObject(DRIVER, {
    attachRequired: false,
    podInfoOnMount: true,
    volumeLifecycleModes: ["Persistent", "Ephemeral"],
    tokenRequests: [{ audience: "vault" }],
  });
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, driver, board, admin]) if (each !== undefined) all.use(each);
  all.defer(() => admin?.clear());
  folder[Symbol.dispose]();
});

const registry = (): string => join(board.node.directory, "root", "plugins_registry");

async function makeDriverObject(name: string, spec: object): Promise<void> {
  await admin.create(CSI_DRIVERS, { metadata: { name }, spec });
}

/** A volume of the driver, and the claim of the same name that is bound to it. */
async function makeClaim(name: string, source: object = {}, spec: object = {}): Promise<void> {
  const accessModes = ["ReadWriteOnce"];
  const csi = { driver: DRIVER, volumeHandle: `handle-${name}`, fsType: "tmpfs", ...source };
  const claimRef = { namespace: "default", name };
  await admin.create(PERSISTENT_VOLUMES, {
    metadata: { name },
    spec: { accessModes, capacity: { storage: "1Mi" }, claimRef, csi, ...spec },
  });
  await admin.create(PERSISTENT_VOLUME_CLAIMS, {
    metadata: { name },
    spec: { accessModes, resources: { requests: { storage: "1Mi" } }, storageClassName: "", volumeName: name, ...spec },
  });
}

/** A pod that is ready when it has written its name to its volume. */
async function makePod(name: string, volume: object, isBlock = false): Promise<void> {
  const write = isBlock
    ? `test -b /dev/disk && echo ${name} | dd of=/dev/disk conv=fsync`
    : `echo ${name} >> /data/file`;
  const script = `${write} && touch /written; ${SLEEP_SCRIPT}`;
  const uses = isBlock
    ? { volumeDevices: [{ name: "data", devicePath: "/dev/disk" }] }
    : { volumeMounts: [{ name: "data", mountPath: "/data" }] };
  const readinessProbe = { exec: { command: ["test", "-e", "/written"] }, periodSeconds: 1, timeoutSeconds: 30 };
  const command = ["/bin/sh", "-c", script];
  const pod = containerPod(name, script, {
    nodeName: BOARD,
    containers: [{ name: "app", image: BUSYBOX_IMAGE, command, readinessProbe, ...uses }],
    volumes: [{ name: "data", ...volume }],
  });
  await admin.create(PODS, pod as Record<string, unknown>);
}

const ATTACHER = "attacher";

/** The rights of an external attacher. */
async function allowAttacher(): Promise<void> {
  const resources = ["volumeattachments.storage.k8s.io", "volumeattachments.storage.k8s.io/status"];
  const rules = ["--verb=get,list,watch,patch", `--resource=${resources.join(",")}`];
  await board.fleet.kubectl(["create", "serviceaccount", ATTACHER]);
  await board.fleet.kubectl(["create", "clusterrole", ATTACHER, ...rules]);
  const subject = [`--clusterrole=${ATTACHER}`, `--serviceaccount=default:${ATTACHER}`];
  await board.fleet.kubectl(["create", "clusterrolebinding", ATTACHER, ...subject]);
}

async function patchAsAttacher(name: string, patch: object, ...more: readonly string[]): Promise<void> {
  const who = `--as=system:serviceaccount:default:${ATTACHER}`;
  const what = ["patch", "volumeattachment", name, "--type=merge", "-p", JSON.stringify(patch)];
  await board.fleet.kubectl([who, ...what, ...more]);
}

const claimed = (claimName: string) => ({ persistentVolumeClaim: { claimName } });

const untilReady = (name: string) => admin.untilPod(name, "is ready", isReady);

/** Kills the agent while the driver carries out that method, and starts the next one. */
async function killDuring(method: string, cause: () => Promise<void>): Promise<void> {
  const reached = Promise.withResolvers<void>();
  driver.after = async (call) => {
    if (call.method !== method) return;
    reached.resolve();
    driver.after = () => undefined;
    await new Promise<never>(() => undefined);
  };
  await cause();
  await reached.promise;
  await board.node.kill();
  await board.node.start();
}

const csiMounts = (): readonly string[] =>
  mountsBelow(board.node.directory).filter((path) => path.includes("kubernetes.io/csi") || path.includes("~csi"));

test("a pod waits for its driver; then the cluster knows the driver, and the pod has its volume", {
  skip,
}, async () => {
  const data = (text: string) => ({ data: { key: Buffer.from(text).toString("base64") } });
  await admin.create(SECRETS, { metadata: { name: "stage" }, ...data("of-stage") });
  await admin.create(SECRETS, { metadata: { name: "publish" }, ...data("of-publish") });
  await makeClaim("shared", {
    nodeStageSecretRef: { namespace: "default", name: "stage" },
    nodePublishSecretRef: { namespace: "default", name: "publish" },
    volumeAttributes: { pool: "a" },
  });
  driver.abnormal = "bad blocks";
  await makePod("first", claimed("shared"));
  // Before it the pod may have waited for its claim's volume, which the hub sends by itself.
  const isOfDriver = ({ message: text }: { readonly message: string }): boolean => text.includes("MountDevice");
  const { message } = await admin.untilEvent("first", "waits for its driver", isOfDriver);
  assert.equal(
    message,
    `MountVolume.MountDevice failed for volume "shared" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name ${DRIVER} not found in the list of registered CSI drivers`,
  );
  await driver.register(registry());
  const node = await admin.until(CSI_NODES, "the CSINode", ({ spec }) => JSON.stringify(spec).includes(DRIVER));
  const topologyKeys = ["disk.csi.example/shelf"];
  assert.deepEqual((node.spec as { drivers: unknown }).drivers, [
    { name: DRIVER, nodeID: "node-of-test", topologyKeys, allocatable: { count: 8 } },
  ]);
  const owner = node.metadata.ownerReferences?.[0] as { kind: string; name: string } | undefined;
  assert.deepEqual([owner?.kind, owner?.name], ["Node", BOARD]);
  await admin.until(NODES, "the label", ({ metadata }) => metadata.labels?.["disk.csi.example/shelf"] === "3");
  const pod = await untilReady("first");
  await makePod("second", claimed("shared"));
  await untilReady("second");
  const [stage] = driver.requests("NodeStageVolume");
  assert.deepEqual(stage?.secrets, { key: "of-stage" });
  const [publish, other] = driver.requests("NodePublishVolume");
  assert.deepEqual(publish?.secrets, { key: "of-publish" });
  const context = publish?.volume_context as Readonly<Record<string, string>>;
  assert.equal(context.pool, "a");
  assert.equal(context["csi.storage.k8s.io/pod.uid"], pod.metadata.uid);
  const tokens = JSON.parse(context["csi.storage.k8s.io/serviceAccount.tokens"] ?? "") as Record<
    string,
    { token: string }
  >;
  assert.match(tokens.vault?.token ?? "", /^ey.+\..+\./);
  assert.equal(readFileSync(join(String(other?.target_path), "file"), "utf8"), "first\nsecond\n");
  assert.deepEqual(driver.changes, ["Stage", "Publish", "Publish"]);
  const summary = await board.fleet.kubectl(["get", "--raw", `/api/v1/nodes/${BOARD}/proxy/stats/summary`]);
  const { pods } = JSON.parse(summary) as {
    pods: readonly { readonly podRef: { name: string }; readonly volume?: readonly { readonly name: string }[] }[];
  };
  const volume = pods.find(({ podRef }) => podRef.name === "first")?.volume?.find(({ name }) => name === "data");
  const { time: _, ...figures } = (volume ?? {}) as Record<string, unknown>;
  assert.deepEqual(figures, {
    name: "data",
    pvcRef: { name: "shared", namespace: "default" },
    volumeHealthStats: { abnormal: true },
    ...{ availableBytes: 8_384_512, capacityBytes: 8_388_608, usedBytes: 4096 },
    ...{ inodes: 1000, inodesFree: 997, inodesUsed: 3 },
  });
  const metrics = await board.fleet.kubectl(["get", "--raw", `/api/v1/nodes/${BOARD}/proxy/metrics`]);
  const labels = '{namespace="default",persistentvolumeclaim="shared"}';
  assert.ok(metrics.includes(`kubelet_volume_stats_health_status_abnormal${labels} 1`));
  assert.ok(metrics.includes(`kubelet_volume_stats_used_bytes${labels} 4096`));
  driver.abnormal = "";
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  assert.deepEqual(driver.changes.slice(3), ["Unpublish", "Unpublish", "Unstage"]);
});

test("a claim that grows is expanded while its pod runs, and shows its new size", { skip }, async () => {
  driver.forget();
  await makeClaim("growing");
  await makePod("growing", claimed("growing"));
  await untilReady("growing");
  // The part of the driver's controller, the external resizer.
  const conditions = [{ type: "FileSystemResizePending", status: "True" }];
  await admin.patch(PERSISTENT_VOLUME_CLAIMS, "growing", { status: { conditions } }, "status");
  await admin.patch(PERSISTENT_VOLUMES, "growing", { spec: { capacity: { storage: "2Mi" } } });
  const { status } = await admin.until(
    PERSISTENT_VOLUME_CLAIMS,
    "the new size",
    (claim) => JSON.stringify(claim.status).includes('"2Mi"') && claim.metadata.name === "growing",
  );
  assert.deepEqual((status as { conditions?: readonly unknown[] }).conditions ?? [], []);
  const [request] = driver.requests("NodeExpandVolume");
  assert.equal(Number((request?.capacity_range as { required_bytes: unknown } | undefined)?.required_bytes), 2_097_152);
  await admin.untilEvent("growing", "is expanded", ({ reason }) => reason === "FileSystemResizeSuccessful");
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  assert.deepEqual(driver.changes, ["Stage", "Publish", "Expand", "Unpublish", "Unstage"]);
});

test("an agent that is killed while a volume comes or goes leaves no mount behind", { skip }, async () => {
  await makeClaim("crash");
  driver.forget();
  await killDuring("NodeStageVolume", () => makePod("crash", claimed("crash")));
  await untilReady("crash");
  await killDuring("NodeUnpublishVolume", () => admin.delete(PODS, "crash", 1));
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  assert.deepEqual(csiMounts(), []);
  assert.deepEqual(driver.changes, ["Stage", "Stage", "Publish", "Unpublish", "Unpublish", "Unstage"]);
});

test("an agent that is killed while a volume is published or unstaged leaves no mount behind", { skip }, async () => {
  await makeClaim("late");
  driver.forget();
  await killDuring("NodePublishVolume", () => makePod("late", claimed("late")));
  await untilReady("late");
  assert.equal(csiMounts().length, 2);
  await killDuring("NodeUnstageVolume", () => admin.delete(PODS, "late", 1));
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  assert.deepEqual(csiMounts(), []);
  assert.deepEqual(driver.changes, ["Stage", "Publish", "Stage", "Publish", "Unpublish", "Unstage", "Unstage"]);
});

test("an inline volume and a block volume live as long as their pods", { skip }, async () => {
  driver.forget();
  await makeClaim("raw", {}, { volumeMode: "Block" });
  await makePod("raw", claimed("raw"), true);
  await makePod("inline", { csi: { driver: DRIVER, volumeAttributes: { size: "1Mi" } } });
  const { metadata } = await untilReady("inline");
  await untilReady("raw");
  const pods = join(board.node.directory, "root", "pods");
  const path = join(pods, metadata.uid ?? "", "volumes/kubernetes.io~csi/data/mount/file");
  assert.equal(readFileSync(path, "utf8"), "inline\n");
  assert.equal(readFileSync(join(folder.at("driver"), "handle-raw.img"), "latin1").slice(0, 4), "raw\n");
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  assert.ok(!existsSync(join(pods, metadata.uid ?? "")));
  assert.deepEqual(csiMounts(), []);
});

test("a driver that never unstages delays the end of no other pod, and no other driver's volume", {
  skip,
}, async () => {
  driver.forget();
  await using stuck = await TestCsiDriver.start({ name: STUCK, folder: folder.at("stuck") });
  await stuck.register(registry());
  await makeDriverObject(STUCK, { attachRequired: false });
  await makeClaim("stuck", { driver: STUCK });
  await makeClaim("prompt");
  await makePod("stuck", claimed("stuck"));
  await makePod("prompt", claimed("prompt"));
  await Promise.all(["stuck", "prompt"].map((name) => untilReady(name)));
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  stuck.before = async ({ method }) => {
    if (method !== "NodeUnstageVolume") return;
    asked.resolve();
    await answer.promise;
  };
  await admin.clear(({ metadata }) => metadata.name === "stuck");
  await asked.promise;
  await admin.clear();
  await driver.untilDone("NodeUnstageVolume");
  answer.resolve();
  await stuck.untilDone("NodeUnstageVolume");
  assert.deepEqual(stuck.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
});

test("a volume that must be attached is used, and shown as used, between attachment and detachment", {
  skip,
}, async () => {
  await using other = await TestCsiDriver.start({ name: ATTACHED, folder: folder.at("attached") });
  await other.register(registry());
  await makeDriverObject(ATTACHED, { attachRequired: true });
  await makeClaim("far", { driver: ATTACHED });
  await makePod("far", claimed("far"));
  const name = `kubernetes.io/csi/${ATTACHED}^handle-far`;
  const isShown = (status: unknown): boolean =>
    ((status as { volumesInUse?: readonly string[] }).volumesInUse ?? []).includes(name);
  await admin.until(NODES, "the volume is in use", ({ status }) => isShown(status));
  assert.deepEqual(other.changes, []);
  // The part of the driver's attacher, with the rights that its manifests give it.
  await allowAttacher();
  const key = attachmentKey({ spec: { csi: { driver: ATTACHED, volumeHandle: "handle-far" } } }, BOARD) ?? "";
  const attachment = key.slice("VolumeAttachment//".length);
  const isIt = ({ metadata }: KubeObject): boolean => metadata.name === attachment;
  const { spec } = await admin.until(VOLUME_ATTACHMENTS, "its attachment", isIt);
  assert.deepEqual(spec, { attacher: ATTACHED, nodeName: BOARD, source: { persistentVolumeName: "far" } });
  const finalizers = ["external-attacher/attached-csi-example"];
  await patchAsAttacher(attachment, { metadata: { finalizers } });
  const status = { attached: true, attachmentMetadata: { device: "/dev/sdx" } };
  await patchAsAttacher(attachment, { status }, "--subresource=status");
  await untilReady("far");
  assert.deepEqual(other.requests("NodePublishVolume")[0]?.publish_context, { device: "/dev/sdx" });
  await admin.clear();
  const isEnding = (object: KubeObject): boolean => isIt(object) && object.metadata.deletionTimestamp !== undefined;
  await admin.until(VOLUME_ATTACHMENTS, "the end of its attachment", isEnding);
  assert.deepEqual(other.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
  const { status: ofNode } = await admin.until(NODES, "the Node", () => true);
  assert.ok(!isShown(ofNode));
  assert.deepEqual((ofNode as { volumesAttached?: readonly unknown[] }).volumesAttached ?? [], []);
  await patchAsAttacher(attachment, { metadata: { finalizers: null } });
  await assert.rejects(board.fleet.kubectl(["get", "volumeattachment", attachment]), /not found/);
});
