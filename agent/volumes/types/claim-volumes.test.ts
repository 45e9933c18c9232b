/** On a real file system, with real mounts where the process may mount. */
import assert from "node:assert/strict";
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { MountFolder } from "@picolet/test/support/unit/machine/mount-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { SystemMounter } from "../files/mounter.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { claimedVolume } from "./claimed-volume.ts";
import { PodVolumes } from "./pod-volumes.ts";

const NEVER = new AbortController().signal;
const system = new SystemMounter();
const isRoot = process.geteuid?.() === 0;
const skip = system.allowed && isRoot ? false : "needs root and the right to mount";
type Spec = NonNullable<Parameters<typeof podOf>[0]>;
type VolumeSpec = NonNullable<Spec["volumes"]>[number];

class Bench implements Disposable {
  readonly folder = new MountFolder();
  readonly events = new RecordedEvents();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  readonly objects: TestClusterObjects;
  readonly volumes: PodVolumes;

  constructor() {
    const clock = new VirtualClock();
    const log = new RecordedLog();
    this.objects = new TestClusterObjects(clock);
    const { objects, paths, events } = this;
    const shared = { mounter: system, log, clock, events, paths, objects, objectsChanged: objects.changed };
    const nodeLabels = (): Record<string, string> => ({ "kubernetes.io/hostname": "board" });
    const init = { nodeName: "board", allocatable: {}, memoryBytes: 2 ** 28 };
    this.volumes = new PodVolumes({ ...shared, nodeLabels, imageVolumes: () => undefined }, init);
  }

  claim(spec: object = {}, claim: object = {}): void {
    this.objects.set("PersistentVolumeClaim/default/data", {
      metadata: { uid: "claim-uid" },
      spec: { volumeName: "pv" },
      status: { phase: "Bound" },
      ...claim,
    });
    this.objects.set("PersistentVolume//pv", { spec: { claimRef: { uid: "claim-uid" }, ...spec } });
  }

  async setUp(pod: DesiredPod): Promise<void> {
    mkdirSync(this.paths.volumes(pod.uid), { recursive: true });
    await this.volumes.setUp(pod, NEVER);
  }

  async problem(pod: DesiredPod): Promise<string> {
    const error = await this.setUp(pod).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.ok(isPicoletError(error), "it did not fail");
    assert.equal(error.reason, "FailedMount");
    return error.message;
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

const CLAIM: VolumeSpec = { name: "v", persistentVolumeClaim: { claimName: "data" } };

function podWith(volume: VolumeSpec = CLAIM, spec: Spec = {}, uid = "pod-1", asDevice = false): DesiredPod {
  const use = asDevice
    ? { volumeDevices: [{ name: "v", devicePath: "/dev/x" }] }
    : { volumeMounts: [{ name: "v", mountPath: "/v" }] };
  const containers = [{ name: "app", image: "app", ...use }];
  const pod = podOf({ containers, volumes: [volume], ...spec }, { uid });
  return { uid: podUid(uid), source: "api", origin: "", pod };
}

const unprocessed = (cause: string): string =>
  `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ${cause}`;

test("a claim that leads nowhere yet is said in the kubelet's words", async () => {
  using bench = new Bench();
  const about = "error processing PVC default/data: ";
  const pod = podWith();
  const says = async (cause: string): Promise<void> => assert.equal(await bench.problem(pod), unprocessed(cause));
  await says(`${about}failed to fetch PVC from API server: persistentvolumeclaims "data" not found`);
  bench.claim({}, { status: { phase: "Pending" } });
  await says(`${about}PVC is not bound`);
  bench.claim({}, { spec: {} });
  await says(`${about}PVC has empty pvc.Spec.VolumeName`);
  bench.claim({}, { metadata: { uid: "claim-uid", deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: ["other"] } });
  await says(`${about}PVC is being deleted`);
  bench.claim({ claimRef: { uid: "another" } });
  await says(`${about}found PV object pv but its pv.Spec.ClaimRef.UID another does not point to claim.UID claim-uid`);
  bench.claim({ claimRef: undefined });
  await says(
    `${about}found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim`,
  );
  bench.objects.delete("PersistentVolume//pv");
  await says(`${about}failed to fetch PV pv from API server: persistentvolumes "pv" not found`);
});

test("a claim that is protected while it is deleted goes on being used", { skip }, async () => {
  using bench = new Bench();
  mkdirSync(bench.folder.at("disk"));
  const deletionTimestamp = "2026-01-01T00:00:00Z";
  const finalizers = ["kubernetes.io/pvc-protection"];
  const local = { local: { path: bench.folder.at("disk") } };
  bench.claim(local, { metadata: { uid: "claim-uid", deletionTimestamp, finalizers } });
  await bench.setUp(podWith());
});

test("a volume of the wrong mode, place, kind or path is refused in the kubelet's words", async () => {
  using bench = new Bench();
  const local = (path: string): object => ({ local: { path } });
  bench.claim({ ...local("/x"), volumeMode: "Block" });
  assert.equal(
    await bench.problem(podWith()),
    unprocessed("volume v has volumeMode Block, but is specified in volumeMounts"),
  );
  bench.claim(local("/x"));
  assert.equal(
    await bench.problem(podWith(CLAIM, {}, "pod-1", true)),
    unprocessed("volume v has volumeMode Filesystem, but is specified in volumeDevices"),
  );
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.NewMounter initialization failed for volume "pv" : path "/x" does not exist',
  );
  bench.claim(local("/dev/null"));
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported',
  );
  const terms = (hostname: string): object => ({
    required: {
      nodeSelectorTerms: [
        { matchExpressions: [{ key: "kubernetes.io/hostname", operator: "In", values: [hostname] }] },
      ],
    },
  });
  bench.claim({ ...local(bench.folder.path), nodeAffinity: terms("other") });
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms',
  );
  bench.claim({ csi: { driver: "ebs.example" } });
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name ebs.example not found in the list of registered CSI drivers',
  );
  bench.claim({ iscsi: { targetPortal: "s" }, accessModes: ["ReadWriteMany"] });
  assert.match(await bench.problem(podWith()), /this node has none for volumes of type iscsi$/);
  bench.claim({ hostPath: { path: "/nowhere", type: "Directory" } });
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.SetUp failed for volume "pv" : hostPath type check failed: /nowhere is not a directory',
  );
  bench.claim({ hostPath: { path: "/" }, mountOptions: ["noexec"] });
  assert.equal(
    await bench.problem(podWith()),
    'MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not supported for this volume type',
  );
});

test("a hostPath volume of a claim is the path itself, made where its type says so", async () => {
  using bench = new Bench();
  bench.claim({ hostPath: { path: bench.folder.at("made"), type: "DirectoryOrCreate" } });
  const pod = podWith({ name: "v", persistentVolumeClaim: { claimName: "data", readOnly: true } });
  await bench.setUp(pod);
  assert.deepEqual(bench.volumes.locate(pod, "v"), {
    path: bench.folder.at("made"),
    readOnly: true,
    isDevice: false,
  });
  assert.ok(statSync(bench.folder.at("made")).isDirectory());
});

test("annotations of a volume give its pod a group, and options in the place of the field's", async () => {
  using bench = new Bench();
  const annotate = (annotations: object, spec: object = {}): void => {
    bench.claim({ hostPath: { path: "/" }, ...spec });
    bench.objects.set("PersistentVolume//pv", {
      ...bench.objects.object("PersistentVolume//pv"),
      metadata: { annotations },
    });
  };
  const groupsOf = async (pod: DesiredPod): Promise<readonly number[]> => {
    await bench.setUp(pod);
    return bench.volumes.extraGroups(pod);
  };
  annotate({ "pv.beta.kubernetes.io/gid": "1234" });
  assert.deepEqual(await groupsOf(podWith()), [1234]);
  const member = podWith(CLAIM, { securityContext: { supplementalGroups: [1234] } }, "pod-2");
  assert.deepEqual(await groupsOf(member), [], "it is in the group anyway");
  annotate({ "pv.beta.kubernetes.io/gid": "staff" });
  assert.deepEqual(await groupsOf(podWith()), [], "as in the kubelet, what is no number does not count");
  annotate({ "volume.beta.kubernetes.io/mount-options": "noexec,nodev" });
  assert.match(await bench.problem(podWith()), /^MountVolume\.MountOptionSupport check failed /);
  const { pod } = podWith();
  const [volume] = pod.spec.volumes ?? [];
  assert.ok(volume);
  const { mountOptions } = claimedVolume(pod, volume, { mounted: true, asDevice: false }, bench.objects);
  assert.deepEqual(mountOptions, ["noexec", "nodev"]);
});

test("a static pod may name no claim", async () => {
  using bench = new Bench();
  bench.claim({ hostPath: { path: "/" } });
  const pod: DesiredPod = { ...podWith(), source: "file" };
  assert.equal(await bench.problem(pod), unprocessed("static pods may not reference persistentvolumeclaims"));
});

test("a generic ephemeral volume is the claim that was made for this very pod", async () => {
  using bench = new Bench();
  const pod = podWith({ name: "v", ephemeral: { volumeClaimTemplate: { spec: {} } } });
  assert.equal(
    await bench.problem(pod),
    unprocessed(
      'error processing PVC default/web-v: failed to fetch PVC from API server: persistentvolumeclaims "web-v" not found',
    ),
  );
  const claim = (uid: string): void => {
    bench.claim({ hostPath: { path: "/" } });
    const object = bench.objects.object("PersistentVolumeClaim/default/data");
    bench.objects.set("PersistentVolumeClaim/default/web-v", {
      ...object,
      metadata: { uid: "claim-uid", ownerReferences: [{ uid, controller: true }] },
    });
  };
  claim("another-pod");
  assert.equal(
    await bench.problem(pod),
    unprocessed("PVC default/web-v was not created for pod default/web (pod is not owner)"),
  );
  claim("pod-1");
  await bench.setUp(pod);
});

test("a ReadWriteOncePod volume is for one pod alone, also after a restart, until that pod is gone", {
  skip,
}, async () => {
  using bench = new Bench();
  mkdirSync(bench.folder.at("disk"));
  bench.claim({ hostPath: { path: bench.folder.at("disk") }, accessModes: ["ReadWriteOncePod"] });
  const [first, second] = [podWith(), podWith(CLAIM, {}, "pod-2")];
  const refusal =
    'MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod';
  // At the same moment: one of them.
  const outcomes = await Promise.allSettled([bench.setUp(first), bench.setUp(second)]);
  assert.deepEqual(outcomes.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  const [holder, other] = outcomes[0]?.status === "fulfilled" ? [first, second] : [second, first];
  await bench.setUp(holder);
  assert.equal(await bench.problem(other), refusal);
  rmSync(bench.paths.pod(holder.uid), { recursive: true });
  await bench.setUp(other);
});

test("a local volume is bound into its pod once, read-only where the claim says so", { skip }, async () => {
  using bench = new Bench();
  mkdirSync(bench.folder.at("disk"));
  writeFileSync(bench.folder.at("disk/file"), "");
  symlinkSync(bench.folder.at("disk"), bench.folder.at("link"));
  bench.claim({ local: { path: bench.folder.at("link") } });
  const pod = podWith({ name: "v", persistentVolumeClaim: { claimName: "data", readOnly: true } });
  await bench.setUp(pod);
  await bench.setUp(pod);
  const target = bench.paths.localVolume(pod.uid, "pv");
  assert.equal(bench.volumes.locate(pod, "v")?.path, target);
  assert.deepEqual(system.mountPointsWithin(target), [target]);
  assert.ok(existsSync(`${target}/file`));
  assert.throws(() => writeFileSync(`${target}/x`, ""), /EROFS/);
});

test("the first pod gives a local volume to its group, by its policy; a second one that wants another is told", {
  skip,
}, async () => {
  using bench = new Bench();
  const disk = bench.folder.at("disk");
  mkdirSync(`${disk}/deep`, { recursive: true });
  writeFileSync(`${disk}/deep/file`, "", { mode: 0o600 });
  writeFileSync(bench.folder.at("outside"), "", { mode: 0o600 });
  symlinkSync(bench.folder.at("outside"), `${disk}/link`);
  bench.claim({ local: { path: disk } });
  const grouped = (fsGroup: number, uid: string, fsGroupChangePolicy?: "OnRootMismatch"): DesiredPod =>
    podWith(CLAIM, { securityContext: { fsGroup, ...(fsGroupChangePolicy && { fsGroupChangePolicy }) } }, uid);
  await bench.setUp(grouped(2000, "pod-1"));
  const rights = (path: string): readonly number[] => {
    const { gid, mode } = lstatSync(path);
    return [gid, mode & 0o7777];
  };
  assert.deepEqual(rights(disk), [2000, 0o2775]);
  assert.deepEqual(rights(`${disk}/deep`), [2000, 0o2775]);
  assert.deepEqual(rights(`${disk}/deep/file`), [2000, 0o660]);
  assert.equal(lstatSync(`${disk}/link`).gid, 2000);
  assert.deepEqual(rights(bench.folder.at("outside")), [0, 0o600]);
  assert.deepEqual(bench.events.lines, []);

  await bench.setUp(grouped(3000, "pod-2"));
  assert.deepEqual(rights(disk), [2000, 0o2775]);
  assert.deepEqual(bench.events.lines, [
    "Warning AlreadyMountedVolume: The requested fsGroup is 3000, but the volume pv has GID 2000. The volume may not be shareable.",
  ]);

  for (const mounted of system.mountPointsWithin(bench.folder.path)) system.unmountNow(mounted);
  chownSync(`${disk}/deep/file`, 0, 0);
  await bench.setUp(grouped(2000, "pod-3", "OnRootMismatch"));
  assert.equal(lstatSync(`${disk}/deep/file`).gid, 0, "the folder is as it should be");
  for (const mounted of system.mountPointsWithin(bench.folder.path)) system.unmountNow(mounted);
  await bench.setUp(grouped(4000, "pod-4", "OnRootMismatch"));
  assert.deepEqual(rights(`${disk}/deep/file`), [4000, 0o660]);
});

test("a device of a claim is known by its own path and linked to where the kubelet links it", { skip }, async () => {
  using bench = new Bench();
  symlinkSync("/dev/loop7", bench.folder.at("by-id"));
  bench.claim({ local: { path: bench.folder.at("by-id") }, volumeMode: "Block" });
  const pod = podWith(CLAIM, {}, "pod-1", true);
  await bench.setUp(pod);
  await bench.setUp(pod);
  assert.deepEqual(bench.volumes.device(pod, "v"), { path: "/dev/loop7", readOnly: false, isDevice: true });
  assert.equal(bench.volumes.locate(pod, "v"), undefined);
  assert.equal(readlinkSync(bench.paths.volumeDevice(pod.uid, "pv")), bench.folder.at("by-id"));
  bench.claim({ local: { path: bench.folder.path }, volumeMode: "Block" });
  assert.equal(
    await bench.problem(pod),
    `MapVolume.MapBlockVolume failed for volume "pv" : ${bench.folder.path} is not a block device`,
  );
  bench.claim({ local: { path: "/nowhere" }, volumeMode: "Block" });
  assert.match(await bench.problem(pod), /^MapVolume\.NewBlockVolumeMapper initialization failed for volume "pv" : /);
});

test("a device that cannot be mounted is left without a mount and without a folder", { skip }, async () => {
  using bench = new Bench();
  bench.claim({ local: { path: "/dev/loop6", fsType: "nosuchfs" } });
  assert.match(
    await bench.problem(podWith()),
    /^MountVolume\.MountDevice failed for volume "pv" : local: failed to mount device \/dev\/loop6 at .*mounts\/pv \(fstype: nosuchfs\), error /,
  );
  assert.deepEqual(readdirSync(bench.paths.deviceMounts), []);
  await bench.volumes.collect(NEVER);
});

test("whatever the API server's objects hold, a claim is a volume or an error with words", () => {
  const json = fc.jsonValue({ maxDepth: 4 });
  const object = fc.oneof(
    fc.record(
      {
        metadata: fc.oneof(json, fc.constant({ uid: "u" })),
        spec: fc.oneof(
          json,
          fc.record({ volumeName: fc.constant("pv"), claimRef: fc.constant({ uid: "u" }), local: json }),
        ),
        status: fc.oneof(json, fc.constant({ phase: "Bound" })),
      },
      { requiredKeys: [] },
    ),
    fc.dictionary(fc.string(), json),
  );
  fc.assert(
    fc.property(object, object, fc.boolean(), (claim, volume, asDevice) => {
      const objects = { object: (key: string) => (key.startsWith("PersistentVolumeClaim/") ? claim : volume) };
      try {
        const { pod } = podWith();
        const [own] = pod.spec.volumes ?? [];
        assert.ok(own);
        const found = claimedVolume(pod, own, { mounted: !asDevice, asDevice }, objects);
        assert.equal(typeof found.name, "string");
        assert.ok(found.mountOptions.every((option) => typeof option === "string"));
      } catch (error) {
        assert.ok(isPicoletError(error), String(error));
      }
    }),
  );
});
