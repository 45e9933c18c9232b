/** With a driver over gRPC's own library that makes real mounts. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { MAX_CSI_REPORT_LENGTH, parseCsiReport } from "@picolet/protocol/tunnel/csi-report.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { MountFolder } from "@picolet/test/support/unit/machine/mount-folder.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { isMounted, mountsBelow, TestCsiDriver } from "@picolet/test/support/unit/plugins/csi-driver.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { countedTimes, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { NodeCounts } from "../../core/node/node-counts.ts";
import { SystemMounter } from "../files/mounter.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { CsiDrivers } from "./csi-drivers.ts";
import { attachmentName, type CsiVolume, inlineVolume, persistentVolume } from "./csi-source.ts";
import { CsiVolumes } from "./csi-volumes.ts";
import { parseVolumeData } from "./volume-data.ts";

const NEVER = new AbortController().signal;
const mounter = new SystemMounter();
const skip = mounter.allowed && process.geteuid?.() === 0 ? false : "needs root and the right to mount";
const DRIVER = "disk.csi.example";
const OTHER = "other.csi.example";
const HANDLE = "volume-1";

class Bench implements AsyncDisposable {
  readonly folder = new MountFolder();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly counts = new NodeCounts();
  readonly log = new RecordedLog();
  tokenPrefix = "token";
  drivers = new CsiDrivers(this);
  readonly driver: TestCsiDriver;
  volumes: CsiVolumes;

  private constructor(driver: TestCsiDriver, folder: MountFolder) {
    this.driver = driver;
    this.folder = folder;
    this.volumes = this.#agent();
    this.spec({ attachRequired: false });
  }

  static async start(init: { readonly capabilities?: readonly number[] } = {}): Promise<Bench> {
    const folder = new MountFolder();
    const driver = await TestCsiDriver.start({ name: DRIVER, folder: folder.at("driver"), ...init });
    const bench = new Bench(driver, folder);
    await bench.register();
    return bench;
  }

  spec(spec: object): void {
    this.objects.set(`CSIDriver//${DRIVER}`, { spec });
  }

  async register(): Promise<void> {
    const { endpoint } = this.driver;
    await this.drivers.register({ name: DRIVER, endpoint, versions: ["1.0.0"], registration: "socket" }, NEVER);
  }

  /** The next agent knows what is on disk alone. */
  async restart(): Promise<void> {
    this.drivers = new CsiDrivers(this);
    this.volumes = this.#agent();
    await this.register();
  }

  async publish(volume: CsiVolume, pod = podNamed("pod-1")): Promise<string> {
    mkdirSync(this.paths.volumes(pod.uid), { recursive: true });
    return (await this.volumes.publish(pod, volume, NEVER)).path;
  }

  async takeBack(uid = "pod-1"): Promise<void> {
    await this.volumes.unpublish(uid, NEVER);
    rmSync(this.paths.pod(uid), { recursive: true, force: true });
    await this.volumes.collect(NEVER);
  }

  async problem(work: Promise<unknown>): Promise<string> {
    const error = await work.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.ok(isPicoletError(error, "unavailable") && error.retryable, "it did not fail");
    return error.message;
  }

  /** Nothing is left: neither mounts, nor folders of volumes. */
  assertClean(): void {
    assert.deepEqual(mountsBelow(this.folder.path), []);
    const left = existsSync(this.paths.csiPlugins)
      ? readdirSync(this.paths.csiPlugins, { recursive: true, encoding: "utf8" }).filter(
          (path) => !/^volumeDevices(\/(staging|publish)(\/[^/]+)?)?$/.test(path),
        )
      : [];
    assert.deepEqual(left, []);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.driver[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }

  #agent(): CsiVolumes {
    const { drivers, paths, objects, clock, counts, log } = this;
    const tokenOf = async (
      _pod: DesiredPod,
      _name: string,
      _index: number,
      request: { readonly audience: string },
    ) => ({
      token: `${this.tokenPrefix}-for-${request.audience}`,
      expirationTimestamp: "2026-01-01T00:00:00Z",
    });
    return new CsiVolumes({ drivers, paths, mounter, objects, tokenOf, clock, counts, log }, { nodeName: "board" });
  }
}

function podNamed(uid: string, securityContext: { fsGroup?: number } = {}): DesiredPod {
  const pod = podOf({ containers: [{ name: "app", image: "app" }], securityContext }, { uid });
  return { uid: podUid(uid), source: "api", origin: "", pod };
}

const persistent = (source: object = {}, spec: object = {}, readOnly = false): CsiVolume =>
  persistentVolume(
    "pv",
    { csi: { driver: DRIVER, volumeHandle: HANDLE, ...source }, accessModes: ["ReadWriteOnce"], ...spec },
    readOnly,
  );

test("a volume is staged once, published for each pod, and taken back in reverse", { skip }, async () => {
  await using bench = await Bench.start();
  const volume = persistent({ fsType: "ext4", volumeAttributes: { pool: "a" } }, { mountOptions: ["noatime"] });
  const first = await bench.publish(volume);
  const second = await bench.publish(volume, podNamed("pod-2"));
  await bench.publish(volume);
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish", "Publish"]);
  assert.equal(first, join(bench.paths.pod("pod-1"), "volumes/kubernetes.io~csi/pv/mount"));
  writeFileSync(join(first, "file"), "written");
  assert.equal(readFileSync(join(second, "file"), "utf8"), "written");
  const [stage] = bench.driver.requests("NodeStageVolume");
  assert.ok(String(stage?.staging_target_path).startsWith(join(bench.paths.csiPlugins, DRIVER)));
  assert.deepEqual(stage?.volume_context, { pool: "a" });
  assert.deepEqual(stage?.volume_capability, {
    access_mode: { mode: 1 },
    mount: { fs_type: "ext4", mount_flags: ["noatime"], volume_mount_group: "" },
  });
  const data = JSON.parse(readFileSync(join(first, "../vol_data.json"), "utf8")) as object;
  assert.deepEqual(data, {
    specVolID: "pv",
    volumeHandle: HANDLE,
    driverName: DRIVER,
    nodeName: "board",
    attachmentID: attachmentName(DRIVER, HANDLE, "board"),
    volumeLifecycleMode: "Persistent",
  });
  await bench.takeBack();
  assert.ok(isMounted(second));
  await bench.takeBack("pod-2");
  assert.deepEqual(bench.driver.changes.slice(3), ["Unpublish", "Unpublish", "Unstage"]);
  bench.assertClean();
});

test("calls of a driver and the operations that they are part of count by their results", { skip }, async () => {
  await using bench = await Bench.start();
  await bench.publish(persistent());
  await bench.publish(persistent());
  await bench.takeBack();
  await bench.publish(persistent({ volumeHandle: "block" }, { volumeMode: "Block" }));
  await bench.takeBack();
  bench.driver.before = ({ method }) => {
    if (method === "NodeStageVolume") throw new Error("broken");
  };
  await bench.problem(bench.publish(persistent()));
  const plugin = `kubernetes.io/csi:${DRIVER}`;
  assert.deepEqual(countedTimes(bench.counts, "storage_operation_duration_seconds"), {
    [`false volume_mount success ${plugin}`]: 1,
    [`false volume_unmount success ${plugin}`]: 1,
    [`false unmount_device success ${plugin}`]: 1,
    [`false map_volume success ${plugin}`]: 1,
    [`false unmap_volume success ${plugin}`]: 1,
    [`false unmap_device success ${plugin}`]: 1,
    [`false volume_mount fail-unknown ${plugin}`]: 1,
  });
  assert.deepEqual(countedTimes(bench.counts, "csi_operations_seconds"), {
    [`${DRIVER} OK /csi.v1.Node/NodeGetInfo false`]: 1,
    [`${DRIVER} OK /csi.v1.Node/NodeGetCapabilities false`]: 1,
    [`${DRIVER} OK /csi.v1.Node/NodeStageVolume false`]: 2,
    [`${DRIVER} OK /csi.v1.Node/NodePublishVolume false`]: 2,
    [`${DRIVER} OK /csi.v1.Node/NodeUnpublishVolume false`]: 2,
    [`${DRIVER} OK /csi.v1.Node/NodeUnstageVolume false`]: 2,
    [`${DRIVER} Internal /csi.v1.Node/NodeStageVolume false`]: 1,
  });
});

const labels = (count: number, length: number): Readonly<Record<string, string>> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${"a".repeat(length)}.example/k${index}`, "v"]));

for (const [what, init, expected] of [
  [
    "a name that no CSINode may have",
    { name: "disk..example" },
    /^cannot register .*"disk\.\.example": it is no driver/,
  ],
  ["a node ID that is too long", { nodeId: "ü".repeat(97) }, /its node ID has 194 bytes, not 1 to 192/],
  ["no node ID", { nodeId: "" }, /its node ID has 0 bytes/],
  [
    "a topology that is no label",
    { topology: { "disk.example/zone": "a b" } },
    /zone" is no label: a valid label must/,
  ],
  ["a topology whose key is no label's", { topology: { "a zone": "a" } }, /topology "a zone" is no label: name part/],
  ["a topology without a value", { topology: { "disk.example/zone": "" } }, /zone" has no value/],
  ["too large a topology", { topology: labels(17, 1) }, /its topology has 17 keys, more than 16/],
  ["more than its share of the report", { topology: labels(16, 200) }, /have 3\d+ characters, more than 2046/],
] as const) {
  test(`a driver with ${what} is refused, because a Node with it would be`, async () => {
    using folder = new TempFolder();
    await using driver = await TestCsiDriver.start({ name: DRIVER, folder: folder.path, ...init });
    const drivers = new CsiDrivers({ clock: new VirtualClock() });
    const { name = DRIVER } = init as { readonly name?: string };
    const registration = { name, endpoint: driver.endpoint, versions: ["1.0.0"], registration: "socket" };
    await assert.rejects(drivers.register(registration, NEVER), { code: "invalid", message: expected });
    assert.equal(drivers.report(), undefined);
  });
}

test("of a driver that claims too much the node reports what a CSINode may have", async () => {
  using folder = new TempFolder();
  const given = { maxVolumes: 2 ** 40, capabilities: [1, 99], topology: labels(16, 40) };
  await using driver = await TestCsiDriver.start({ name: DRIVER, folder: folder.path, ...given });
  const drivers = new CsiDrivers({ clock: new VirtualClock() });
  const { endpoint } = driver;
  await drivers.register({ name: DRIVER, endpoint, versions: ["1.0.0"], registration: "socket" }, NEVER);
  assert.deepEqual([...(drivers.get(DRIVER)?.capabilities ?? [])], [1]);
  const report = drivers.report() ?? "";
  assert.deepEqual(parseCsiReport(report), [
    { name: DRIVER, nodeID: "node-of-test", topology: given.topology, count: 2_147_483_647 },
  ]);
  // 64 drivers fit.
  assert.ok(64 * 2046 + 65 <= MAX_CSI_REPORT_LENGTH);
});

test("a driver that takes more volumes than before is reported so, and one that has gone is not", async () => {
  using folder = new TempFolder();
  const given = { maxVolumes: 3 };
  await using driver = await TestCsiDriver.start({
    ...{ name: DRIVER, folder: folder.path },
    get maxVolumes() {
      return given.maxVolumes;
    },
  });
  const drivers = new CsiDrivers({ clock: new VirtualClock() });
  const countOf = (): number | undefined => parseCsiReport(drivers.report() ?? "")?.[0]?.count;
  const { endpoint } = driver;
  await drivers.register({ name: DRIVER, endpoint, versions: ["1.0.0"], registration: "socket" }, NEVER);
  const registered = drivers.changed.current;
  await drivers.refreshLimit(DRIVER, NEVER);
  assert.deepEqual([countOf(), drivers.changed.current], [3, registered]);
  given.maxVolumes = 5;
  await drivers.refreshLimit(DRIVER, NEVER);
  assert.deepEqual([countOf(), drivers.changed.current], [5, registered + 1]);
  driver.before = () => drivers.deregister(DRIVER, "socket");
  given.maxVolumes = 7;
  await drivers.refreshLimit(DRIVER, NEVER);
  assert.equal(drivers.get(DRIVER), undefined);
  await drivers.refreshLimit(DRIVER, NEVER);
});

test("an agent that was killed during any call leaves nothing behind", { skip }, async () => {
  const calls = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"] as const;
  const volumes = [persistent(), persistent({}, { volumeMode: "Block" })];
  for (const [volume, method] of volumes.flatMap((each) => calls.map((call) => [each, call] as const))) {
    for (const moment of ["before", "after"] as const) {
      await using bench = await Bench.start();
      const killed = Promise.withResolvers<void>();
      // The old agent never hears of the end.
      bench.driver[moment] = async (call) => {
        if (call.method !== method) return;
        killed.resolve();
        bench.driver[moment] = () => undefined;
        await new Promise<never>(() => undefined);
      };
      const old = bench.publish(volume).then(() => bench.takeBack());
      old.catch(() => undefined);
      await killed.promise;
      await bench.restart();
      // The pod is still wanted, as far as the next agent knows.
      if (!method.includes("Un")) await bench.publish(volume);
      await bench.takeBack();
      bench.assertClean();
    }
  }
});

test("a pod that is gone after a kill needs no publish to be taken back", { skip }, async () => {
  await using bench = await Bench.start();
  await bench.publish(persistent());
  await bench.restart();
  await bench.takeBack();
  assert.deepEqual(bench.driver.changes.slice(2), ["Unpublish", "Unstage"]);
  bench.assertClean();
});

test("after a loss of power a volume is staged and published again", { skip }, async () => {
  await using bench = await Bench.start();
  const path = await bench.publish(persistent());
  for (const mounted of [...mountsBelow(bench.folder.path)].reverse()) mounter.unmountNow(mounted);
  await bench.restart();
  await bench.publish(persistent());
  assert.ok(isMounted(path));
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish", "Stage", "Publish"]);
  await bench.takeBack();
  bench.assertClean();
});

test("without its driver a pod keeps its volume, and says which driver is missing", { skip }, async () => {
  await using bench = await Bench.start();
  const path = await bench.publish(persistent());
  bench.drivers.deregister(DRIVER, "socket");
  const missing = `driver name ${DRIVER} not found in the list of registered CSI drivers`;
  assert.equal(
    await bench.problem(bench.publish(persistent(), podNamed("pod-2"))),
    `MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: ${missing}`,
  );
  assert.equal(
    await bench.problem(bench.takeBack()),
    `UnmountVolume.TearDown failed for volume "pv" : kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: ${missing}`,
  );
  assert.ok(isMounted(path));
  await bench.register();
  await bench.takeBack();
  bench.assertClean();
});

test("a driver's refusal is the pod's event, and leaves no folders", { skip }, async () => {
  await using bench = await Bench.start();
  bench.driver.before = ({ method }) => {
    if (method === "NodePublishVolume") throw new Error("no such disk");
  };
  assert.equal(
    await bench.problem(bench.publish(persistent())),
    'MountVolume.SetUp failed for volume "pv" : kubernetes.io/csi: mounter.SetUpAt failed: rpc error: code = Internal desc = no such disk',
  );
  assert.deepEqual(readdirSync(join(bench.paths.volumes("pod-1"), "kubernetes.io~csi")), []);
  bench.driver.before = ({ method }) => {
    if (method === "NodeStageVolume") throw new Error("broken");
  };
  assert.equal(
    await bench.problem(bench.publish(persistent({ volumeHandle: "other" }))),
    'MountVolume.MountDevice failed for volume "pv" : rpc error: code = Internal desc = broken',
  );
  await bench.takeBack();
  bench.assertClean();
});

test("a driver that confirms an end without unmounting loses no file", { skip }, async () => {
  await using bench = await Bench.start();
  const path = await bench.publish(persistent());
  writeFileSync(join(path, "file"), "kept");
  bench.driver.ignores.add("NodeUnpublishVolume");
  assert.match(await bench.problem(bench.takeBack()), /left .*\/mount mounted, although it confirmed the end$/);
  assert.equal(readFileSync(join(path, "file"), "utf8"), "kept");
  bench.driver.ignores.clear();
  await bench.takeBack();
  bench.assertClean();
});

test("an inline volume needs a driver that allows it, and gets the pod's identity, Secret and tokens", {
  skip,
}, async () => {
  await using bench = await Bench.start();
  const pod = podNamed("pod-1");
  const source = { driver: DRIVER, nodePublishSecretRef: { name: "key" }, volumeAttributes: { a: "b" } };
  const volume = inlineVolume(pod.pod, pod.uid, { name: "inline", csi: source });
  const about = 'MountVolume.SetUp failed for volume "inline" : kubernetes.io/csi: mounter.SetUpAt failed: ';
  const mode = `${about}volume mode "Ephemeral" not supported by driver ${DRIVER}`;
  assert.equal(await bench.problem(bench.publish(volume)), `${mode} (only supports ["Persistent"])`);
  bench.objects.delete(`CSIDriver//${DRIVER}`);
  assert.equal(await bench.problem(bench.publish(volume)), `${mode} (no CSIDriver object)`);
  const tokenRequests = [{ audience: "vault" }];
  bench.spec({ volumeLifecycleModes: ["Ephemeral"], podInfoOnMount: true, tokenRequests });
  assert.equal(
    await bench.problem(bench.publish(volume)),
    `${about}fetching NodePublishSecretRef default/key failed: secrets "key" not found`,
  );
  bench.objects.set("Secret/default/key", { data: { pass: Buffer.from("word").toString("base64") } });
  await bench.publish(volume);
  assert.deepEqual(bench.driver.changes, ["Publish"]);
  const [request] = bench.driver.requests("NodePublishVolume");
  assert.equal(request?.volume_id, volume.handle);
  assert.deepEqual(request?.secrets, { pass: "word" });
  assert.deepEqual(request?.volume_context, {
    a: "b",
    "csi.storage.k8s.io/pod.name": pod.pod.metadata.name,
    "csi.storage.k8s.io/pod.namespace": "default",
    "csi.storage.k8s.io/pod.uid": "pod-1",
    "csi.storage.k8s.io/serviceAccount.name": pod.pod.spec.serviceAccountName ?? "",
    "csi.storage.k8s.io/ephemeral": "true",
    "csi.storage.k8s.io/serviceAccount.tokens":
      '{"vault":{"token":"token-for-vault","expirationTimestamp":"2026-01-01T00:00:00Z"}}',
  });
  await bench.takeBack();
  bench.assertClean();
});

test("a volume that must be attached waits for its attachment, and is reported as in use meanwhile", {
  skip,
}, async () => {
  await using bench = await Bench.start();
  bench.spec({});
  const name = `kubernetes.io/csi/${DRIVER}^${HANDLE}`;
  const about = 'MountVolume.WaitForAttach failed for volume "pv" : ';
  const volume = persistent();
  const node = (status: object): void => bench.objects.set("Node//board", { status });
  const waits = async (why: string): Promise<void> =>
    assert.equal(await bench.problem(bench.publish(volume)), `${about}${why}`);
  await waits(`volume has not been added to the list of VolumesInUse in the node's volume status`);
  assert.deepEqual(bench.volumes.inUse.current, [name]);
  node({ volumesInUse: [name] });
  await waits(`volume not attached according to node status for volume "pv" (UniqueName: "${name}")`);
  node({ volumesInUse: [name], volumesAttached: [{ name, devicePath: "" }] });
  const attachment = attachmentName(DRIVER, HANDLE, "board");
  await waits(`volumeattachments.storage.k8s.io "${attachment}" not found`);
  const set = (status: object): void => bench.objects.set(`VolumeAttachment//${attachment}`, { metadata: {}, status });
  set({ attached: false, attachError: { message: "no slot" } });
  await waits(`volume attachment ${attachment} is not attached: no slot`);
  set({ attached: true, attachmentMetadata: { device: "/dev/sdx" } });
  await bench.publish(volume);
  assert.deepEqual(bench.driver.requests("NodeStageVolume")[0]?.publish_context, { device: "/dev/sdx" });
  assert.deepEqual(bench.driver.requests("NodePublishVolume")[0]?.publish_context, { device: "/dev/sdx" });
  await bench.restart();
  await bench.volumes.collect(NEVER);
  assert.deepEqual(bench.volumes.inUse.current, [name]);
  await bench.takeBack();
  assert.deepEqual(bench.volumes.inUse.current, []);
  bench.assertClean();
});

test("a pod that gives up waiting for an attachment no longer counts as using it", { skip }, async () => {
  await using bench = await Bench.start();
  bench.spec({});
  await bench.problem(bench.publish(persistent()));
  await bench.takeBack();
  assert.deepEqual(bench.volumes.inUse.current, []);
});

test("a staged volume waits for a pod that claims it, and goes with its claim", { skip }, async () => {
  await using bench = await Bench.start();
  bench.driver.before = ({ method }) => {
    if (method === "NodePublishVolume") throw new Error("not now");
  };
  const mark = bench.paths.claim("pod-1", "pv");
  mkdirSync(dirname(mark), { recursive: true });
  writeFileSync(mark, "");
  await bench.problem(bench.publish(persistent()));
  await bench.restart();
  await bench.volumes.collect(NEVER);
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish"]);
  await bench.takeBack();
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish", "Unstage"]);
  bench.assertClean();
});

test("a block volume is a device for its pod alone", { skip }, async () => {
  await using bench = await Bench.start();
  const volume = persistent({}, { volumeMode: "Block" });
  const pod = podNamed("pod-1");
  mkdirSync(bench.paths.pod("pod-1"), { recursive: true });
  const location = await bench.volumes.publish(pod, volume, NEVER);
  assert.ok(location.isDevice);
  assert.ok(statSync(location.path).isBlockDevice());
  assert.equal(location.path, join(bench.paths.csiPlugins, "volumeDevices/publish/pv/pod-1"));
  await bench.restart();
  await bench.volumes.collect(NEVER);
  assert.ok(statSync(location.path).isBlockDevice());
  await bench.takeBack();
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
  bench.assertClean();
});

test("the pod's group gets the files, unless the driver does it", { skip }, async () => {
  for (const [policy, fsType, capabilities, gid, accessMode = "ReadWriteOnce"] of [
    ["File", "", [1], 4711],
    ["None", "ext4", [1], 0],
    ["ReadWriteOnceWithFSType", "ext4", [1], 4711],
    ["ReadWriteOnceWithFSType", "ext4", [1], 4711, "ReadWriteOncePod"],
    ["ReadWriteOnceWithFSType", "ext4", [1], 0, "ReadWriteMany"],
    ["ReadWriteOnceWithFSType", "", [1], 0],
    ["File", "ext4", [1, 6], 0],
  ] as const) {
    await using bench = await Bench.start({ capabilities });
    bench.spec({ attachRequired: false, fsGroupPolicy: policy });
    const volume = persistent({ fsType }, { accessModes: [accessMode] });
    const path = await bench.publish(volume, podNamed("pod-1", { fsGroup: 4711 }));
    assert.equal(statSync(path).gid, gid, `${policy} ${fsType} ${accessMode}`);
    const [request] = bench.driver.requests("NodePublishVolume");
    const { mount } = (request?.volume_capability ?? {}) as { mount?: object };
    const volume_mount_group = capabilities.length > 1 ? "4711" : "";
    assert.deepEqual(mount, { fs_type: fsType, mount_flags: [], volume_mount_group });
    await bench.takeBack();
  }
});

test("a driver's figures are kept for a minute, and a driver that has none is not asked", { skip }, async () => {
  await using bench = await Bench.start();
  await bench.publish(persistent());
  const stats = (name = "pv") => bench.volumes.stats("pod-1", name, NEVER);
  const bytes = { capacityBytes: 8_388_608, availableBytes: 8_384_512, usedBytes: 4096 };
  const usage = { ...bytes, inodes: 1000, inodesFree: 997, inodesUsed: 3 };
  assert.deepEqual(await stats(), { usage, condition: undefined });
  await stats();
  assert.equal(bench.driver.requests("NodeGetVolumeStats").length, 1);
  await bench.clock.advance(millis(60_000));
  await stats();
  assert.equal(bench.driver.requests("NodeGetVolumeStats").length, 2);
  assert.equal(await stats("other"), undefined);
  await bench.takeBack();
  await using plain = await Bench.start({ capabilities: [1] });
  await plain.publish(persistent());
  assert.equal(await plain.volumes.stats("pod-1", "pv", NEVER), undefined);
  await plain.takeBack();
});

test("a driver that does not answer for figures delays one caller, and the others not at all", { skip }, async () => {
  await using bench = await Bench.start();
  await bench.publish(persistent());
  const stats = () => bench.volumes.stats("pod-1", "pv", NEVER);
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  bench.driver.before = async ({ method }) => {
    if (method !== "NodeGetVolumeStats") return;
    asked.resolve();
    await answer.promise;
  };
  const first = stats();
  await asked.promise;
  await bench.clock.advance(millis(5_000));
  assert.equal(await first, undefined);
  await bench.clock.advance(millis(60_000));
  assert.equal(await stats(), undefined);
  assert.equal(await stats(), undefined);
  answer.resolve();
  bench.driver.before = () => undefined;
  await bench.takeBack();
});

test("the health of a volume is its driver's, where the driver reports health", { skip }, async () => {
  await using bench = await Bench.start({ capabilities: [1, 2, 4] });
  const volume = persistent();
  await bench.publish(volume);
  assert.ok(bench.volumes.reportsHealth(volume));
  const condition = async () => (await bench.volumes.stats("pod-1", "pv", NEVER))?.condition;
  assert.deepEqual(await condition(), { isAbnormal: false, message: "" });
  bench.driver.abnormal = "bad blocks";
  await bench.clock.advance(millis(60_000));
  assert.deepEqual(await condition(), { isAbnormal: true, message: "bad blocks" });
  await bench.takeBack();
  await using plain = await Bench.start();
  assert.ok(!plain.volumes.reportsHealth(volume));
});

test("a driver that never answers keeps no volume of another driver, also in the same pod", { skip }, async () => {
  await using bench = await Bench.start();
  await using other = await TestCsiDriver.start({ name: OTHER, folder: bench.folder.at("other") });
  const { endpoint } = other;
  await bench.drivers.register({ name: OTHER, endpoint, versions: ["1.0.0"], registration: "other" }, NEVER);
  bench.objects.set(`CSIDriver//${OTHER}`, { spec: { attachRequired: false } });
  const spec = { csi: { driver: OTHER, volumeHandle: "other" }, accessModes: ["ReadWriteOnce"] };
  const elsewhere = persistentVolume("pv-2", spec, false);
  const pods = [podNamed("pod-1"), podNamed("pod-2")] as const;
  await bench.publish(persistent(), pods[0]);
  await bench.publish(elsewhere, pods[0]);
  await bench.publish(persistent({ volumeHandle: "volume-3" }), pods[1]);
  const ended = (method: string): Promise<void> =>
    new Promise((resolve) => {
      other.after = (call) => {
        if (call.method === method) resolve();
      };
    });
  const answer = Promise.withResolvers<void>();
  bench.driver.before = () => answer.promise;
  const unpublished = ended("NodeUnpublishVolume");
  const first = bench.volumes.unpublish("pod-1", NEVER);
  await unpublished;
  const unstaged = ended("NodeUnstageVolume");
  // Its mark on the volume went with the first pod's folder.
  const collected = bench.volumes.collect(NEVER);
  await unstaged;
  answer.resolve();
  await first;
  await collected;
  for (const { uid } of pods) await bench.takeBack(uid);
  bench.assertClean();
});

test("a driver that asks for it gets its volume published again with a current token, until the pod ends", {
  skip,
}, async () => {
  await using bench = await Bench.start();
  const pod = podNamed("pod-1");
  const tokenRequests = [{ audience: "vault" }];
  bench.spec({ attachRequired: false, tokenRequests });
  const path = await bench.publish(persistent(), pod);
  const republish = () => bench.volumes.republish(pod, persistent(), NEVER);
  await republish();
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish"]);
  bench.spec({ attachRequired: false, tokenRequests, requiresRepublish: true });
  bench.tokenPrefix = "newer";
  await republish();
  const [, again] = bench.driver.requests("NodePublishVolume");
  const context = again?.volume_context as Readonly<Record<string, string>>;
  assert.match(context["csi.storage.k8s.io/serviceAccount.tokens"] ?? "", /newer-for-vault/);
  bench.driver.before = ({ method }) => {
    if (method === "NodePublishVolume") throw new Error("no vault");
  };
  assert.match(await bench.problem(republish()), /SetUpAt failed: rpc error: code = Internal desc = no vault$/);
  assert.ok(isMounted(path), "a failure leaves the mount");
  await bench.takeBack();
  await republish();
  assert.deepEqual(bench.driver.changes, ["Stage", "Publish", "Publish", "Publish", "Unpublish", "Unstage"]);
  bench.assertClean();
});

test("an expansion goes to where the volume is staged, with its Secret, while a pod has it", { skip }, async () => {
  await using bench = await Bench.start();
  const nodeExpandSecretRef = { namespace: "default", name: "grow" };
  const volume = persistent({ nodeExpandSecretRef, fsType: "ext4" });
  const pod = podNamed("pod-1");
  const expand = () => bench.volumes.expand(pod, volume, 2_147_483_648, NEVER);
  assert.equal(await expand(), false);
  await bench.publish(volume, pod);
  assert.equal(
    await bench.problem(expand()),
    'NodeExpandVolume.NodeExpandVolume failed for volume "pv" : fetching NodeExpandSecretRef default/grow failed: secrets "grow" not found',
  );
  bench.objects.set("Secret/default/grow", { data: { pass: Buffer.from("word").toString("base64") } });
  assert.equal(await expand(), true);
  const [request] = bench.driver.requests("NodeExpandVolume");
  const [stage] = bench.driver.requests("NodeStageVolume");
  assert.equal(request?.staging_target_path, stage?.staging_target_path);
  assert.equal(request?.volume_path, stage?.staging_target_path);
  assert.deepEqual(request?.secrets, { pass: "word" });
  assert.equal(
    Number((request?.capacity_range as { required_bytes: unknown } | undefined)?.required_bytes),
    2_147_483_648,
  );
  await bench.takeBack();
  assert.equal(await expand(), false);
  await using plain = await Bench.start({ capabilities: [1] });
  await plain.publish(volume, pod);
  assert.equal(await plain.volumes.expand(pod, volume, 1, NEVER), false);
  await plain.takeBack();
});

test("a read-only claim is published read-only, and its files keep their group", { skip }, async () => {
  await using bench = await Bench.start();
  bench.spec({ attachRequired: false, fsGroupPolicy: "File" });
  const path = await bench.publish(persistent({}, {}, true), podNamed("pod-1", { fsGroup: 4711 }));
  assert.throws(() => writeFileSync(join(path, "file"), ""), { code: "EROFS" });
  await bench.takeBack();
});

test("a driver without staging is only asked to publish", { skip }, async () => {
  await using bench = await Bench.start({ capabilities: [] });
  await bench.publish(persistent());
  await bench.takeBack();
  assert.deepEqual(bench.driver.changes, ["Publish", "Unpublish"]);
  bench.assertClean();
});

test("a damaged vol_data.json is an error that names it, and nothing is unmounted for it", () => {
  for (const text of ["", "{", "null", "[]", '{"driverName":"a"}', '{"driverName":"","volumeHandle":"b"}'])
    assert.throws(() => parseVolumeData(text, "/x/vol_data.json"), /cannot read \/x\/vol_data.json: /);
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        const { driverName, volumeHandle } = parseVolumeData(text, "/x");
        assert.ok(driverName !== "" && volumeHandle !== "");
      } catch (error) {
        assert.ok(error instanceof PicoletError && error.code === "corrupt");
      }
    }),
  );
});
