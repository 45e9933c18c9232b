/** Volumes as a real container sees them: made by the agent's environment of a pod, mounted by a real containerd. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { ImageManager } from "@picolet/agent/core/pods/pod-ports.ts";
import { SystemMounter } from "@picolet/agent/volumes/files/mounter.ts";
import { PodEnvironmentOnDisk } from "@picolet/agent/volumes/pod-environment.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { BUSYBOX_PROGRAMS, CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { TestClusterObjects } from "../support/unit/agent/memory-cluster-objects.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { firstContainer, podOf } from "../support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";

const skip = containerdMissing() ?? false;
const { signal } = new AbortController();
const system = new SystemMounter();

type Spec = NonNullable<Parameters<typeof podOf>[0]>;
type ContainerSpec = NonNullable<Spec["containers"]>[number];

describe("volumes in containers", { skip }, () => {
  let containerd: Containerd;
  let fixture: CriFixture;
  let folder: TempFolder;
  let objects: TestClusterObjects;
  let pods = 0;
  const events = new RecordedEvents();

  before(async () => {
    containerd = await Containerd.start();
    fixture = new CriFixture(containerd);
    folder = new TempFolder();
    objects = new TestClusterObjects(systemClock);
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
    if (folder !== undefined) for (const mounted of system.mountPointsWithin(folder.path)) system.unmountNow(mounted);
    folder?.[Symbol.dispose]();
  });

  /** The state of one agent: another agent knows nothing of it. */
  function agent(): { environment: PodEnvironmentOnDisk; images: ImageManager } {
    const environment = new PodEnvironmentOnDisk(
      {
        cgroups: { pathOf: () => "", ensure: async () => undefined, remove: async () => undefined },
        mounter: system,
        events,
        clock: systemClock,
        log: new RecordedLog(),
        objects,
        objectsChanged: objects.changed,
        hostIPs: () => ["192.0.2.1"],
        nodeLabels: () => ({ "kubernetes.io/hostname": "board" }),
      },
      {
        rootDir: folder.at("lib"),
        podLogsDir: folder.at("logs"),
        nodeName: "board",
        resolvConf: "",
        clusterDNS: { servers: [], domain: "cluster.local" },
        allocatable: { cpu: "2", memory: "1Gi" },
        memoryBytes: 2 ** 30,
      },
    );
    const present: ImageManager = {
      ensure: async (_, { image }, adapter) => {
        const found = await adapter.images.status(image, signal);
        if (found === undefined) throw new Error(`${image} is not there: import it before a test asks for it`);
        return { requested: image, id: found.id };
      },
    };
    return { environment, images: environment.withImages(present, [fixture.adapter]) };
  }

  function podWith(volumes: NonNullable<Spec["volumes"]>, own: Partial<ContainerSpec>, spec: Spec = {}): DesiredPod {
    pods += 1;
    const name = `volumes-${pods}`;
    const { command, args } = BUSYBOX_PROGRAMS.runForever;
    const container = { name: "main", image: BUSYBOX_IMAGE, command: [...command], args: [...args], ...own };
    const pod = podOf({ ...spec, volumes: [...volumes], containers: [container] }, { name });
    return { uid: podUid(name), source: "api", origin: "", pod };
  }

  async function start(pod: DesiredPod): Promise<string> {
    const { environment, images } = agent();
    const { adapter } = fixture;
    await environment.prepare(pod, signal);
    const sandbox = { ...environment.sandbox(pod, 0), ...(await fixture.preparePod(pod)) };
    await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
    const container = firstContainer(pod);
    const image = await images.ensure(pod, container, adapter, signal);
    const observed = await adapter.inspect(pod.uid, signal);
    const launch = environment.container(pod, container, { attempt: 0, backoff: millis(0), image }, observed);
    await adapter.apply(pod, { kind: "startContainer", container: launch }, signal);
    return (await adapter.inspect(pod.uid, signal)).containers[0]?.id ?? "";
  }

  async function inside(pod: DesiredPod, id: string, script: string): Promise<string> {
    const command = ["/bin/sh", "-c", script];
    const { stdout, stderr } = await fixture.adapter.execSync(pod.uid, id, command, millis(20_000), signal);
    return Buffer.concat([stdout, stderr]).toString().trim();
  }

  async function remove(pod: DesiredPod): Promise<void> {
    const { sandboxes } = await fixture.adapter.inspect(pod.uid, signal);
    for (const { id } of sandboxes) await fixture.adapter.apply(pod, { kind: "removeSandbox", sandboxId: id }, signal);
    await agent().environment.cleanup(pod, signal);
    assert.equal(existsSync(folder.at("lib/pods", pod.uid)), false);
    assert.deepEqual(system.mountPointsWithin(folder.path), []);
  }

  const snapshots = (): string[] => containerd.ctr("--namespace", "k8s.io", "snapshots", "ls").split("\n");

  test("an image is a read-only volume, whole or a part of it, and nothing is left of it", async () => {
    const pod = podWith([{ name: "image", image: { reference: BUSYBOX_IMAGE } }], {
      volumeMounts: [
        { name: "image", mountPath: "/image" },
        { name: "image", mountPath: "/part", subPath: "bin" },
      ],
    });
    const id = await start(pod);
    assert.match(await inside(pod, id, "ls /part/sh; touch /part/x"), /\/part\/sh\n.*Read-only file system/);
    assert.match(
      await inside(pod, id, "ls /image/bin/sh; touch /image/x"),
      /\/image\/bin\/sh\n.*Read-only file system/,
    );
    const target = folder.at("lib/pods", pod.uid, "volumes/kubernetes.io~image/image");
    assert.ok(snapshots().some((line) => line.startsWith(target)));
    // The image is in use: containerd keeps its layers, even without its name.
    containerd.ctr("--namespace", "k8s.io", "leases", "rm", "--sync", target);
    assert.ok(snapshots().some((line) => line.startsWith(target)));
    assert.equal(await inside(pod, id, "ls /image/bin/sh"), "/image/bin/sh");
    await remove(pod);
    assert.equal(
      snapshots().some((line) => line.startsWith(target)),
      false,
    );
  });

  test("what an agent that died has left of an image's mount is taken away by the next one's sweep", async () => {
    const pod = podWith([{ name: "image", image: { reference: BUSYBOX_IMAGE } }], {
      volumeMounts: [{ name: "image", mountPath: "/image" }],
    });
    const { environment, images } = agent();
    await environment.prepare(pod, signal);
    await images.ensure(pod, firstContainer(pod), fixture.adapter, signal);
    const target = folder.at("lib/pods", pod.uid, "volumes/kubernetes.io~image/image");
    // It died between the unmount and the removal of the snapshot.
    system.unmountNow(target);
    await agent().environment.prepare(pod, signal);
    await agent().images.ensure(pod, firstContainer(pod), fixture.adapter, signal);
    assert.ok(existsSync(`${target}/bin/sh`));
    assert.deepEqual(await agent().environment.sweep(new Set(), signal), [pod.uid]);
    assert.equal(
      snapshots().some((line) => line.startsWith(target)),
      false,
    );
    assert.deepEqual(system.mountPointsWithin(folder.path), []);
  });

  test("a mount made in a container comes out where it is Bidirectional, and goes with the pod", async () => {
    const own: Partial<ContainerSpec> = {
      securityContext: { privileged: true },
      volumeMounts: [{ name: "data", mountPath: "/data", mountPropagation: "Bidirectional" }],
    };
    const pod = podWith([{ name: "data", emptyDir: {} }], own);
    const id = await start(pod);
    const path = folder.at("lib/pods", pod.uid, "volumes/kubernetes.io~empty-dir/data");
    assert.equal(await inside(pod, id, "mkdir /data/in && mount -t tmpfs tmpfs /data/in && touch /data/in/x"), "");
    assert.ok(existsSync(`${path}/in/x`));
    assert.equal(await inside(pod, id, "ls /data/in"), "x");
    await remove(pod);
  });

  test("a mount made on the node shows in a container that asks for it, and in no other", async () => {
    const own: Partial<ContainerSpec> = {
      volumeMounts: [
        { name: "data", mountPath: "/slave", mountPropagation: "HostToContainer" },
        { name: "data", mountPath: "/private" },
      ],
    };
    const pod = podWith([{ name: "data", emptyDir: {} }], own);
    const id = await start(pod);
    const path = folder.at("lib/pods", pod.uid, "volumes/kubernetes.io~empty-dir/data");
    mkdirSync(`${path}/in`);
    await system.mountTmpfs(`${path}/in`, 2 ** 16, signal);
    writeFileSync(`${path}/in/x`, "");
    assert.equal(await inside(pod, id, "ls /slave/in; ls /private/in"), "x");
    await remove(pod);
  });

  test("volumes lie in one another, also in those that are read-only", async () => {
    objects.set("ConfigMap/default/cm", { data: { key: "value" } });
    const pod = podWith(
      [
        { name: "outer", configMap: { name: "cm" } },
        { name: "inner", emptyDir: {} },
      ],
      {
        volumeMounts: [
          { name: "outer", mountPath: "/etc/config" },
          { name: "inner", mountPath: "/etc/config/deep/inner" },
        ],
      },
    );
    const id = await start(pod);
    const script =
      "cat /etc/config/key; touch /etc/config/deep/inner/x && ls /etc/config/deep/inner; touch /etc/config/y";
    assert.match(await inside(pod, id, script), /^valuex\n.*Read-only file system/);
    await remove(pod);
  });

  function persistentVolume(name: string, spec: object): void {
    objects.set(`PersistentVolumeClaim/default/${name}`, {
      metadata: { uid: `uid-of-${name}` },
      spec: { volumeName: `pv-${name}` },
      status: { phase: "Bound" },
    });
    objects.set(`PersistentVolume//pv-${name}`, { spec: { claimRef: { uid: `uid-of-${name}` }, ...spec } });
  }

  test("a block device of a claim is a device in the container, read-only where the claim says so", async () => {
    persistentVolume("block", { volumeMode: "Block", local: { path: "/dev/loop7" } });
    const pod = podWith([{ name: "raw", persistentVolumeClaim: { claimName: "block" } }], {
      volumeDevices: [{ name: "raw", devicePath: "/dev/xvda" }],
    });
    const id = await start(pod);
    assert.equal(await inside(pod, id, "test -b /dev/xvda && stat -c %t:%T /dev/xvda"), "7:7");
    await remove(pod);
    assert.ok(statSync("/dev/loop7").isBlockDevice());
  });

  test("a local volume is seen by two pods and stays when they are gone", async () => {
    mkdirSync(folder.at("disk"));
    writeFileSync(folder.at("disk/before"), "kept");
    persistentVolume("disk", { local: { path: folder.at("disk") } });
    const podOn = (readOnly: boolean): DesiredPod =>
      podWith([{ name: "data", persistentVolumeClaim: { claimName: "disk", readOnly } }], {
        volumeMounts: [{ name: "data", mountPath: "/data" }],
      });
    const [writer, reader] = [podOn(false), podOn(true)];
    const [first, second] = [await start(writer), await start(reader)];
    assert.equal(await inside(writer, first, "cat /data/before; echo new >/data/file"), "kept");
    assert.match(await inside(reader, second, "cat /data/file; touch /data/x"), /^new\n.*Read-only file system/);
    for (const pod of [writer, reader]) {
      const { sandboxes } = await fixture.adapter.inspect(pod.uid, signal);
      for (const { id } of sandboxes)
        await fixture.adapter.apply(pod, { kind: "removeSandbox", sandboxId: id }, signal);
      await agent().environment.cleanup(pod, signal);
    }
    assert.deepEqual(readdirSync(folder.at("disk")).sort(), ["before", "file"]);
    assert.deepEqual(system.mountPointsWithin(folder.path), []);
  });

  test("a local volume on a device without a file system gets one, for all pods the same, until the last is gone", async () => {
    const image = folder.at("disk.img");
    execFileSync("truncate", ["-s", "16M", image]);
    const device = execFileSync("losetup", ["--find", "--show", image], { encoding: "utf8" }).trim();
    try {
      persistentVolume("device", { local: { path: device } });
      const podOn = (): DesiredPod =>
        podWith([{ name: "data", persistentVolumeClaim: { claimName: "device" } }], {
          volumeMounts: [{ name: "data", mountPath: "/data" }],
        });
      const [one, other] = [podOn(), podOn()];
      const [first, second] = [await start(one), await start(other)];
      await inside(one, first, "echo from-one >/data/file");
      assert.equal(await inside(other, second, "cat /data/file"), "from-one");
      const mounts = folder.at("lib/plugins/kubernetes.io/local-volume/mounts/pv-device");
      for (const [index, pod] of [one, other].entries()) {
        const { sandboxes } = await fixture.adapter.inspect(pod.uid, signal);
        for (const { id } of sandboxes)
          await fixture.adapter.apply(pod, { kind: "removeSandbox", sandboxId: id }, signal);
        await agent().environment.cleanup(pod, signal);
        assert.equal(system.mountPointsWithin(mounts).length, index === 0 ? 1 : 0);
      }
      assert.deepEqual(system.mountPointsWithin(folder.path), []);
      // What is on it is not touched a second time.
      const third = podOn();
      const id = await start(third);
      assert.equal(await inside(third, id, "cat /data/file"), "from-one");
      await remove(third);
    } finally {
      execFileSync("losetup", ["--detach", device]);
    }
  });

  test("the subPath of a file, and of a key of a ConfigMap, is that very file", async () => {
    objects.set("ConfigMap/default/keys", { data: { one: "1", two: "2" } });
    const pod = podWith(
      [
        { name: "keys", configMap: { name: "keys" } },
        { name: "data", emptyDir: {} },
      ],
      {
        env: [{ name: "WHO", value: "me" }],
        volumeMounts: [
          { name: "keys", mountPath: "/etc/one", subPath: "one" },
          { name: "data", mountPath: "/own", subPathExpr: "$(WHO)/deep" },
        ],
      },
      { securityContext: { fsGroup: 2345 } },
    );
    const id = await start(pod);
    assert.equal(await inside(pod, id, "cat /etc/one; stat -c ' %a %g' /own"), "1 2777 2345");
    await remove(pod);
  });

  test("where its images are is told, and what they take there", async () => {
    const { images, containers } = await fixture.adapter.images.filesystems(signal);
    assert.ok(existsSync(images.mountPoint), images.mountPoint);
    assert.ok(images.inodesUsed >= 0 && images.usedBytes >= 0);
    assert.equal(containers.mountPoint, images.mountPoint);
  });

  test("what a container writes to its own file system is told", async () => {
    const pod = podWith([], {});
    const id = await start(pod);
    await inside(pod, id, "dd if=/dev/zero of=/file bs=1M count=4 2>/dev/null");
    for (;;) {
      // containerd measures it every ten seconds.
      const { bytes = 0, inodes = 0 } = (await fixture.adapter.writtenLayers(signal)).get(id) ?? {};
      if (bytes >= 4 * 2 ** 20 && inodes > 0) break;
      await fixture.settle();
    }
    await remove(pod);
  });

  test("a runtime that knows no recursive read-only mounts makes none, and refuses to where they are insisted on", async () => {
    const mountOf = (recursiveReadOnly: "IfPossible" | "Enabled"): DesiredPod =>
      podWith([{ name: "data", emptyDir: {} }], {
        volumeMounts: [{ name: "data", mountPath: "/data", readOnly: true, recursiveReadOnly }],
      });
    const possible = mountOf("IfPossible");
    await start(possible);
    await remove(possible);
    const insisting = mountOf("Enabled");
    await assert.rejects(start(insisting), (error) => {
      assert.ok(isPicoletError(error));
      assert.equal(error.reason, "CreateContainerConfigError");
      assert.equal(
        error.message,
        'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, but it is not supported by the runtime',
      );
      return true;
    });
    await remove(insisting);
    assert.equal(readFileSync("/proc/self/mountinfo", "utf8").includes(insisting.uid), false);
  });
});
