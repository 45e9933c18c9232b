/** On a real file system, with real mounts where the process may mount. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  Mount,
  ObservedContainer,
  ObservedPod,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { MountFolder } from "@picolet/test/support/unit/machine/mount-folder.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type Mounter, SystemMounter, supportsNoswap } from "./files/mounter.ts";
import { type PodCgroupPort, type PodEnvironmentInit, PodEnvironmentOnDisk } from "./pod-environment.ts";

const NEVER = new AbortController().signal;
const system = new SystemMounter();
const skip = system.allowed ? false : "needs the right to mount";

class FakeCgroups implements PodCgroupPort {
  readonly calls: string[] = [];
  failure: Error | undefined;
  /** Delays `ensure` until it resolves. */
  slowly: Promise<void> | undefined;

  pathOf(pod: DesiredPod): string {
    return `/kubepods/pod${pod.uid}`;
  }

  async ensure(pod: DesiredPod): Promise<void> {
    await this.slowly;
    this.calls.push(`ensure ${pod.uid}`);
  }

  async remove(pod: DesiredPod): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    this.calls.push(`remove ${pod.uid}`);
  }
}

function clusterParts() {
  const clock = new VirtualClock();
  const objects = new TestClusterObjects(clock);
  return { clock, objects, objectsChanged: objects.changed };
}

class Bench implements Disposable {
  readonly folder = new MountFolder();
  readonly cluster = clusterParts();
  readonly cgroups = new FakeCgroups();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  hostIPs: readonly string[] = ["192.0.2.1"];
  readonly mounter: Mounter;
  readonly environment: PodEnvironmentOnDisk;

  constructor(init: Partial<PodEnvironmentInit> = {}, mounter: Mounter = system) {
    this.mounter = mounter;
    writeFileSync(this.folder.at("resolv.conf"), "nameserver 192.0.2.53\nsearch lan\n");
    this.environment = new PodEnvironmentOnDisk(
      {
        ...this.cluster,
        cgroups: this.cgroups,
        mounter,
        events: this.events,
        log: this.log,
        hostIPs: () => this.hostIPs,
      },
      {
        rootDir: this.folder.at("lib"),
        podLogsDir: this.folder.at("logs"),
        nodeName: "board",
        resolvConf: this.folder.at("resolv.conf"),
        clusterDNS: { servers: ["10.96.0.10"], domain: "cluster.local" },
        allocatable: { cpu: "4", memory: "512Mi" },
        memoryBytes: 2 ** 29,
        ...init,
      },
    );
  }

  at(...names: readonly string[]): string {
    return this.folder.at("lib/pods", ...names);
  }

  launch(pod: DesiredPod, attempt = 0, observed: Partial<ObservedPod> = {}): ContainerLaunch {
    const image = { requested: "example/app:1", id: "sha256:1" };
    const sandboxes = [{ id: "s", attempt: 0, state: "ready" as const, createdAtMs: 0, ips: ["10.1.2.3"] }];
    return this.environment.container(
      pod,
      firstContainer(pod),
      { attempt, backoff: millis(10_000), image },
      { uid: pod.uid, sandboxes, containers: [], manifest: undefined, ...observed },
    );
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

type Spec = NonNullable<Parameters<typeof podOf>[0]>;
type ContainerSpec = NonNullable<Spec["containers"]>[number];
type VolumeSpec = NonNullable<Spec["volumes"]>[number];

/** A pod with these volumes, all mounted below /mnt, and more of the container. */
function podWith(volumes: readonly VolumeSpec[], own: Partial<ContainerSpec> = {}, spec: Spec = {}): DesiredPod {
  const volumeMounts = volumes.map(({ name = "" }) => ({ name, mountPath: `/mnt/${name}` }));
  const container = { name: "app", image: "example/app:1", volumeMounts, ...own };
  return desired(podOf({ ...spec, volumes: [...volumes], containers: [container] }), "uid-1");
}

const mountsOf = (...names: readonly string[]) => names.map((name) => ({ name, mountPath: `/mnt/${name}` }));

const mountAt = (launch: ContainerLaunch, path: string): Mount | undefined =>
  launch.mounts.find((mount) => mount.containerPath === path);

async function refusal(action: Promise<unknown>): Promise<string> {
  const error = await action.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(isPicoletError(error), "it did not fail");
  return `${error.reason}: ${error.message}`;
}

test("a pod's folders, cgroup and volumes are made, and made again with no harm", async () => {
  using bench = new Bench();
  const pod = podWith(
    [{ name: "data", emptyDir: {} }, { name: "bare" }, { name: "unused", nfs: { server: "s", path: "/" } }],
    {
      volumeMounts: [
        { name: "data", mountPath: "/data" },
        { name: "bare", mountPath: "/bare", readOnly: true },
      ],
    },
  );
  await bench.environment.prepare(pod, NEVER);
  writeFileSync(bench.at("uid-1/volumes/kubernetes.io~empty-dir/data/file"), "kept");
  await bench.environment.prepare(pod, NEVER);
  assert.equal(readFileSync(bench.at("uid-1/volumes/kubernetes.io~empty-dir/data/file"), "utf8"), "kept");
  assert.equal(statSync(bench.at("uid-1/volumes/kubernetes.io~empty-dir/data")).mode & 0o7777, 0o777);
  assert.equal(statSync(bench.at("uid-1")).mode & 0o007, 0);
  assert.ok(existsSync(bench.folder.at("logs/default_web_uid-1")));
  assert.deepEqual(bench.cgroups.calls, ["ensure uid-1", "ensure uid-1"]);
});

test("sandbox and containers have the groups of the pod's volumes", async () => {
  using bench = new Bench();
  const { objects } = bench.cluster;
  const annotations = { "pv.beta.kubernetes.io/gid": "1234" };
  const spec = { claimRef: { uid: "claim" }, hostPath: { path: "/" } };
  objects.set("PersistentVolumeClaim/default/data", {
    metadata: { uid: "claim" },
    spec: { volumeName: "pv" },
    status: { phase: "Bound" },
  });
  objects.set("PersistentVolume//pv", { metadata: { annotations }, spec });
  const volume = { name: "data", persistentVolumeClaim: { claimName: "data" } };
  const pod: DesiredPod = { ...podWith([volume]), source: "api" };
  await bench.environment.prepare(pod, NEVER);
  assert.deepEqual(bench.environment.sandbox(pod, 0).extraGroups, [1234]);
  assert.deepEqual(bench.launch(pod).extraGroups, [1234]);
});

test("the sandbox: its cgroup, its log folder, its name and its DNS", async () => {
  using bench = new Bench();
  const pod = podWith([], {}, { hostname: "custom" });
  assert.deepEqual(bench.environment.sandbox(pod, 3), {
    attempt: 3,
    logDirectory: bench.folder.at("logs/default_web_uid-1"),
    cgroupParent: "/kubepods/poduid-1",
    hostname: "custom",
    dns: {
      servers: ["10.96.0.10"],
      searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"],
      options: ["ndots:5"],
    },
    runtimeHandler: "",
  });
  assert.equal(bench.environment.sandbox(podWith([], {}, { hostNetwork: true }), 0).hostname, "");
  assert.deepEqual(bench.events.lines, []);
});

test("a resolver configuration that cannot be read, and a cluster's DNS nobody named, are said as events", () => {
  using bench = new Bench({ resolvConf: "/nowhere/resolv.conf", clusterDNS: { servers: [], domain: "cluster.local" } });
  assert.equal(bench.environment.sandbox(podWith([]), 0).dns, undefined);
  assert.match(bench.events.lines[0] ?? "", /^Warning DNSConfigForming: cannot read \/nowhere\/resolv\.conf: ENOENT/);
  assert.match(
    bench.events.lines[1] ?? "",
    /^Warning MissingClusterDNS: kubelet does not have ClusterDNS IP configured/,
  );
  assert.equal(bench.events.all[1]?.regarding.kind, "Node");
  bench.environment.sandbox(podWith([], {}, { runtimeClassName: "wasm" }), 0);
  assert.equal(bench.events.lines.filter((line) => line.includes("MissingClusterDNS")).length, 1, "not for components");
});

test("a container: command, environment, folders and files are concrete", async () => {
  using bench = new Bench();
  const pod = podWith([{ name: "data", emptyDir: {} }], {
    command: ["run", "$(WHO)", "$$(WHO)"],
    args: ["$(NODE)", "$(NONE)"],
    workingDir: "/work",
    env: [
      { name: "WHO", value: "me" },
      { name: "NODE", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } },
      { name: "IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } },
    ],
  });
  await bench.environment.prepare(pod, NEVER);
  const { mounts, hash, ...rest } = bench.launch(pod, 2);
  assert.deepEqual(rest, {
    name: "app",
    attempt: 2,
    backoff: 10_000,
    image: { requested: "example/app:1", id: "sha256:1" },
    command: ["run", "me", "$(WHO)"],
    args: ["board", "$(NONE)"],
    env: [
      { name: "WHO", value: "me" },
      { name: "NODE", value: "board" },
      { name: "IP", value: "10.1.2.3" },
    ],
    workingDir: "/work",
    logPath: "app/2.log",
  });
  assert.match(hash, /^[0-9a-f]{8}$/);
  const plain = { readOnly: false, propagation: "private" };
  assert.deepEqual(mounts, [
    { containerPath: "/mnt/data", hostPath: bench.at("uid-1/volumes/kubernetes.io~empty-dir/data"), ...plain },
    { containerPath: "/etc/hosts", hostPath: bench.at("uid-1/etc-hosts"), ...plain },
    { containerPath: "/dev/termination-log", hostPath: bench.at("uid-1/containers/app/00000002"), ...plain },
  ]);
  assert.match(readFileSync(bench.at("uid-1/etc-hosts"), "utf8"), /^10\.1\.2\.3\tweb$/m);
  assert.ok(existsSync(bench.folder.at("logs/default_web_uid-1/app")));
});

test("/etc/hosts is managed unless the pod has no address yet, or a volume is mounted there", async () => {
  using bench = new Bench();
  const hostsOf = (pod: DesiredPod, observed: Partial<ObservedPod> = {}): Mount | undefined =>
    mountAt(bench.launch(pod, 0, observed), "/etc/hosts");
  const hostAliases = [{ ip: "192.0.2.9", hostnames: ["gw"] }];
  await bench.environment.prepare(podWith([]), NEVER);
  assert.equal(hostsOf(podWith([]), { sandboxes: [] }), undefined, "no address yet");
  const content = (): string => readFileSync(bench.at("uid-1/etc-hosts"), "utf8");
  const header = "# Kubernetes-managed hosts file (host network).\n";
  const nodeHosts = readFileSync("/etc/hosts", "utf8");
  assert.ok(hostsOf(podWith([], {}, { hostNetwork: true }), { sandboxes: [] }));
  assert.equal(content(), `${header}${nodeHosts}`);
  bench.hostIPs = [];
  assert.ok(hostsOf(podWith([], {}, { hostNetwork: true, hostAliases })), "also while the node has no address");
  assert.equal(content(), `${header}${nodeHosts}\n# Entries added by HostAliases.\n192.0.2.9\tgw\n`);
  const own = podWith([{ name: "hosts", emptyDir: {} }], {
    volumeMounts: [{ name: "hosts", mountPath: "/etc/hosts" }],
  });
  assert.equal(hostsOf(own)?.hostPath, bench.at("uid-1/volumes/kubernetes.io~empty-dir/hosts"));
});

test("/etc/hosts is written in place, and not at all when it says so already", async () => {
  using bench = new Bench();
  const pod = podWith([]);
  await bench.environment.prepare(pod, NEVER);
  bench.launch(pod);
  const before = statSync(bench.at("uid-1/etc-hosts"), { bigint: true });
  bench.launch(pod, 1);
  assert.equal(statSync(bench.at("uid-1/etc-hosts"), { bigint: true }).mtimeNs, before.mtimeNs);
  const moved = { id: "s", attempt: 1, state: "ready" as const, createdAtMs: 0, ips: ["10.9.9.9"] };
  bench.launch(pod, 2, { sandboxes: [moved] });
  assert.equal(statSync(bench.at("uid-1/etc-hosts"), { bigint: true }).ino, before.ino);
  assert.match(readFileSync(bench.at("uid-1/etc-hosts"), "utf8"), /^10\.9\.9\.9\tweb$/m);
  // A container may write into it: three gigabytes that take no room are more than could be read.
  truncateSync(bench.at("uid-1/etc-hosts"), 3_000_000_000);
  bench.launch(pod, 3, { sandboxes: [moved] });
  assert.match(readFileSync(bench.at("uid-1/etc-hosts"), "utf8"), /^10\.9\.9\.9\tweb$/m);
});

test("last words are read back from the run that wrote them; without any, a failed run shows the end of its log", async () => {
  using bench = new Bench();
  const pod = podWith([], { terminationMessagePolicy: "FallbackToLogsOnError" });
  await bench.environment.prepare(pod, NEVER);
  mkdirSync(bench.folder.at("logs/default_web_uid-1/app"));
  writeFileSync(bench.folder.at("logs/default_web_uid-1/app/1.log"), "2026-01-01T00:00:00Z stderr F it broke\n");
  const read = (attempt: number, exitCode: number): string =>
    bench.environment.readTerminationMessage(pod, firstContainer(pod), attempt, exitCode);
  writeFileSync(mountAt(bench.launch(pod, 0), "/dev/termination-log")?.hostPath ?? "", "gave up");
  bench.launch(pod, 1);
  assert.equal(read(0, 0), "gave up");
  assert.equal(read(1, 1), "it broke\n");
  assert.equal(read(1, 0), "");
  const begun = { name: "app", attempt: 0 } as ObservedContainer;
  bench.launch(pod, 0, { containers: [begun] });
  assert.equal(read(0, 0), "gave up", "asked for twice");
  bench.launch(pod, 0);
  assert.equal(read(0, 0), "", "begun anew");
});

test("every type of hostPath is checked with the kubelet's words, and made where it says so", async () => {
  using bench = new Bench();
  const at = (name: string): string => bench.folder.at("host", name);
  mkdirSync(at("dir"), { recursive: true });
  writeFileSync(at("file"), "");
  const server = createServer().listen(at("socket"));
  await once(server, "listening");
  const types = ["Directory", "File", "Socket", "CharDevice", "BlockDevice"] as const;
  const wording = {
    Directory: "a directory",
    File: "a file",
    Socket: "a socket file",
    CharDevice: "a character device",
    BlockDevice: "a block device",
  };
  const fitting: Readonly<Record<string, string>> = { dir: "Directory", file: "File", socket: "Socket" };
  const podOn = (path: string, type: NonNullable<NonNullable<VolumeSpec["hostPath"]>["type"]>): DesiredPod =>
    podWith([{ name: "host", hostPath: { path, type } }]);
  try {
    for (const name of ["dir", "file", "socket", "missing"])
      for (const type of types) {
        const pod = podOn(at(name), type);
        if (fitting[name] === type) await bench.environment.prepare(pod, NEVER);
        else
          assert.equal(
            await refusal(bench.environment.prepare(pod, NEVER)),
            `FailedMount: MountVolume.SetUp failed for volume "host" : hostPath type check failed: ${at(name)} is not ${wording[type]}`,
          );
      }
    await bench.environment.prepare(podOn("/dev/null", "CharDevice"), NEVER);
    await bench.environment.prepare(podOn(at("missing"), ""), NEVER);
    assert.equal(existsSync(at("missing")), false);
    await bench.environment.prepare(podOn(at("made/deep"), "DirectoryOrCreate"), NEVER);
    await bench.environment.prepare(podOn(at("made/deep"), "DirectoryOrCreate"), NEVER);
    await bench.environment.prepare(podOn(at("made/file"), "FileOrCreate"), NEVER);
    writeFileSync(at("made/file"), "kept");
    await bench.environment.prepare(podOn(at("made/file"), "FileOrCreate"), NEVER);
    assert.equal(readFileSync(at("made/file"), "utf8"), "kept");
    assert.match(
      await refusal(bench.environment.prepare(podOn(at("made/file"), "DirectoryOrCreate"), NEVER)),
      /is not a directory/,
    );
    assert.match(await refusal(bench.environment.prepare(podOn(at("no/parent"), "FileOrCreate"), NEVER)), /ENOENT/);
    assert.equal(mountAt(bench.launch(podOn(at("dir"), "Directory")), "/mnt/host")?.hostPath, at("dir"));
  } finally {
    server.close();
  }
});

test("what is not supported is refused with its name, all at once; optional ConfigMaps and Secrets mount empty", async () => {
  using bench = new Bench();
  const refused = podWith([
    { name: "a", iscsi: { targetPortal: "s", iqn: "iqn.2001-04.com.example:x", lun: 0 } },
    { name: "b", configMap: { name: "cm" } },
    { name: "c", secret: { secretName: "s" } },
    { name: "d", persistentVolumeClaim: { claimName: "c" } },
    { name: "e", emptyDir: { medium: "HugePages" } },
    { name: "f", emptyDir: {} },
    { name: "g", csi: { driver: "x.example" } },
  ]);
  assert.equal(
    await refusal(bench.environment.prepare(refused, NEVER)),
    "FailedMount: " +
      [
        'MountVolume.SetUp failed for volume "a" : no volume plugin matched: this node has none for volumes of type iscsi',
        'MountVolume.SetUp failed for volume "b" : configmap "cm" not found',
        'MountVolume.SetUp failed for volume "c" : secret "s" not found',
        'MountVolume.SetUp failed for volume "e" : medium HugePages: hugePages storage requested, but there is no resource request for huge pages',
        'MountVolume.SetUp failed for volume "g" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name x.example not found in the list of registered CSI drivers',
        "Unable to attach or mount volumes: unmounted volumes=[a b c d e g], unattached volumes=[], failed to process volumes=[d]: static pods may not reference persistentvolumeclaims",
      ].join("; "),
  );
  const empty = podWith([
    { name: "cm", configMap: { name: "cm", optional: true } },
    { name: "s", secret: { secretName: "s", optional: true } },
  ]);
  await bench.environment.prepare(empty, NEVER);
  const launch = bench.launch(empty);
  for (const name of ["cm", "s"]) {
    const mount = mountAt(launch, `/mnt/${name}`);
    assert.equal(mount?.readOnly, true);
    const visible = readdirSync(mount?.hostPath ?? "").filter((name) => !name.startsWith(".."));
    assert.deepEqual(visible, []);
  }
  await bench.environment.cleanup(empty, NEVER);
});

test("a volume in memory is a tmpfs of the least size that is named, once", { skip }, async () => {
  using bench = new Bench();
  const sizeOf = async (volume: VolumeSpec, own: Partial<ContainerSpec> = {}): Promise<number> => {
    const pod = podWith([volume], own);
    await bench.environment.prepare(pod, NEVER);
    await bench.environment.prepare(pod, NEVER);
    const path = bench.at(`uid-1/volumes/kubernetes.io~empty-dir/${volume.name}`);
    assert.deepEqual(system.mountPointsWithin(path), [path]);
    assert.equal(statSync(path).mode & 0o7777, 0o1777);
    const { blocks, bsize } = statfsSync(path);
    return blocks * bsize;
  };
  const memory = { medium: "Memory" };
  const limited = { resources: { limits: { memory: "8Mi" } } };
  assert.equal(await sizeOf({ name: "own", emptyDir: { ...memory, sizeLimit: "1Mi" } }), 2 ** 20);
  assert.equal(await sizeOf({ name: "pod", emptyDir: { ...memory, sizeLimit: "1Gi" } }, limited), 2 ** 23);
  assert.equal(await sizeOf({ name: "node", emptyDir: memory }), 2 ** 29);
  await bench.environment.cleanup(podWith([]), NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
});

test("huge pages are of the size that the medium names, or the one that the pod asks for", { skip }, async () => {
  using bench = new Bench();
  const huge = (...sizes: readonly string[]): Partial<ContainerSpec> => ({
    resources: {
      limits: { memory: "64Mi", ...Object.fromEntries(sizes.map((size) => [`hugepages-${size}`, "4Mi"])) },
    },
  });
  const setUp = (medium: string, own: Partial<ContainerSpec>): Promise<void> =>
    bench.environment.prepare(podWith([{ name: "huge", emptyDir: { medium } }], own), NEVER);
  const about = 'FailedMount: MountVolume.SetUp failed for volume "huge" : ';
  assert.equal(
    await refusal(setUp("HugePages", huge("2Mi", "1Gi"))),
    `${about}medium: HugePages can't be used if container requests multiple huge page sizes`,
  );
  assert.equal(
    await refusal(setUp("HugePages-1Gi", huge("2Mi"))),
    `${about}medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages`,
  );
  assert.equal(await refusal(setUp("Floppy", {})), `${about}unknown storage medium "Floppy"`);
  const target = bench.at("uid-1/volumes/kubernetes.io~empty-dir/huge");
  for (const medium of ["HugePages", "HugePages-2Mi"]) {
    await setUp(medium, huge("2Mi"));
    await setUp(medium, huge("2Mi"));
    const [mount, ...others] = system.mounts().filter(({ mountPoint }) => mountPoint === target);
    assert.equal(mount?.fileSystem, "hugetlbfs");
    assert.ok(mount.superOptions.includes("pagesize=2M"));
    assert.deepEqual(others, []);
    assert.equal(statSync(target).mode & 0o777, 0o777);
    await bench.environment.cleanup(podWith([]), NEVER);
    assert.deepEqual(readdirSync(bench.at()), []);
  }
});

test("a volume in memory is never swapped out where the kernel can promise it", { skip }, async () => {
  using bench = new Bench();
  const versions = {
    "5.10.0": false,
    "6.3.9": false,
    "6.4.0-rc1": true,
    "6.12.25+rpt-rpi-v8": true,
    "7.0": true,
    "": false,
  };
  for (const [release, knows] of Object.entries(versions)) assert.equal(supportsNoswap(release), knows, release);
  const running = readFileSync("/proc/sys/kernel/osrelease", "utf8");
  await bench.environment.prepare(podWith([{ name: "m", emptyDir: { medium: "Memory" } }]), NEVER);
  const target = bench.at("uid-1/volumes/kubernetes.io~empty-dir/m");
  const mount = system.mounts().find(({ mountPoint }) => mountPoint === target);
  assert.equal(mount?.superOptions.includes("noswap"), supportsNoswap(running));
});

test("without the right to mount a volume in memory is a folder, and that is said once", async () => {
  const unable: Mounter = {
    allowed: false,
    mountTmpfs: () => Promise.reject(new Error("may not")),
    mountHugePages: () => Promise.reject(new Error("may not")),
    mountDevice: () => Promise.reject(new Error("may not")),
    mountNetwork: () => Promise.reject(new Error("may not")),
    bindVolume: () => Promise.reject(new Error("may not")),
    share: () => Promise.reject(new Error("may not")),
    mounts: () => [],
    bind: () => assert.fail("may not"),
    unmountNow: () => assert.fail("may not"),
    mountPointsWithin: () => [],
    unmount: () => Promise.reject(new Error("may not")),
  };
  using bench = new Bench({}, unable);
  const volumes = ["a", "b"].map((name) => ({ name, emptyDir: { medium: "Memory" } }));
  const pod = podWith(volumes, {
    volumeMounts: [
      { name: "a", mountPath: "/a", subPath: "x" },
      { name: "b", mountPath: "/b" },
    ],
  });
  await bench.environment.prepare(pod, NEVER);
  assert.deepEqual(bench.log.problems, ["this process may not mount: what belongs in memory is on disk"]);
  const real = bench.at("uid-1/volumes/kubernetes.io~empty-dir/a/x");
  assert.equal(mountAt(bench.launch(pod), "/a")?.hostPath, real);
  await bench.environment.cleanup(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
});

test("what a pod makes of its emptyDir's rights stays; one in memory that went with the power is made anew", {
  skip,
}, async () => {
  using bench = new Bench();
  const pod = podWith([
    { name: "disk", emptyDir: {} },
    { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
  ]);
  await bench.environment.prepare(pod, NEVER);
  const at = (name: string): string => bench.at("uid-1/volumes/kubernetes.io~empty-dir", name);
  const modes = (): readonly number[] => ["disk", "memory"].map((name) => statSync(at(name)).mode & 0o777);
  for (const name of ["disk", "memory"]) chmodSync(at(name), 0o700);
  await bench.environment.prepare(pod, NEVER);
  assert.deepEqual(modes(), [0o700, 0o700]);
  system.unmountNow(at("memory"));
  await bench.environment.prepare(pod, NEVER);
  assert.deepEqual(modes(), [0o700, 0o777]);
  // It died before all was done.
  rmSync(bench.at("uid-1/plugins"), { recursive: true });
  await bench.environment.prepare(pod, NEVER);
  assert.deepEqual(modes(), [0o777, 0o777]);
});

test("fsGroup owns an emptyDir, and what is made in it", { skip }, async () => {
  using bench = new Bench();
  const pod = podWith([{ name: "data", emptyDir: {} }], {}, { securityContext: { fsGroup: 2000 } });
  await bench.environment.prepare(pod, NEVER);
  const stats = statSync(bench.at("uid-1/volumes/kubernetes.io~empty-dir/data"));
  assert.deepEqual([stats.gid, stats.mode & 0o7777], [2000, 0o2777]);
});

class CountingMounter extends SystemMounter {
  binds = 0;

  override bind(source: string, target: string): void {
    this.binds += 1;
    super.bind(source, target);
  }
}

test("a subPath is made, held in place, and the same for the next run", { skip }, async () => {
  const mounter = new CountingMounter();
  using bench = new Bench({}, mounter);
  const pod = podWith([{ name: "data", emptyDir: {} }], {
    env: [{ name: "SUB", value: "by-env" }],
    volumeMounts: [
      { name: "data", mountPath: "/sub", subPath: "sub/deep" },
      {
        name: "data",
        mountPath: "/expr",
        subPathExpr: "$(SUB)/x",
        readOnly: true,
        mountPropagation: "HostToContainer",
      },
      { name: "data", mountPath: "/file", subPath: "file" },
    ],
  });
  await bench.environment.prepare(pod, NEVER);
  const volume = bench.at("uid-1/volumes/kubernetes.io~empty-dir/data");
  writeFileSync(`${volume}/file`, "content");
  const launch = bench.launch(pod);
  const target = bench.at("uid-1/volume-subpaths/data/app/0");
  assert.equal(mountAt(launch, "/sub")?.hostPath, target);
  assert.deepEqual(mountAt(launch, "/expr"), {
    containerPath: "/expr",
    hostPath: bench.at("uid-1/volume-subpaths/data/app/1"),
    readOnly: true,
    propagation: "hostToContainer",
  });
  assert.equal(readFileSync(bench.at("uid-1/volume-subpaths/data/app/2"), "utf8"), "content");
  writeFileSync(`${target}/written`, "");
  assert.ok(existsSync(`${volume}/sub/deep/written`));
  assert.ok(existsSync(`${volume}/by-env/x`));
  bench.launch(pod, 1);
  assert.equal(mounter.binds, 3, "not bound a second time");

  // Exchanged by the pod for something else, and for another kind: the next run sees that.
  renameSync(`${volume}/sub/deep`, `${volume}/sub/old`);
  rmSync(`${volume}/file`);
  mkdirSync(`${volume}/file`);
  bench.launch(pod, 2);
  assert.deepEqual(readdirSync(target), []);
  assert.ok(statSync(bench.at("uid-1/volume-subpaths/data/app/2")).isDirectory());
  assert.equal(system.mountPointsWithin(bench.at("uid-1/volume-subpaths")).length, 3);

  await bench.environment.cleanup(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
});

test("a subPath that leads out is refused, without telling the pod where to", async () => {
  using bench = new Bench();
  const podAt = (subPath: string): DesiredPod =>
    podWith([{ name: "data", emptyDir: {} }], { volumeMounts: [{ name: "data", mountPath: "/sub", subPath }] });
  await bench.environment.prepare(podAt("x"), NEVER);
  symlinkSync("/etc", bench.at("uid-1/volumes/kubernetes.io~empty-dir/data/link"));
  const reasonOf = (pod: DesiredPod): string => {
    try {
      bench.launch(pod);
    } catch (error) {
      assert.ok(isPicoletError(error));
      return `${error.reason}: ${error.message}`;
    }
    return "no error";
  };
  assert.equal(
    reasonOf(podAt("link/x")),
    'CreateContainerConfigError: failed to prepare subPath for volumeMount "data" of container "app"',
  );
  assert.equal(bench.log.entries[0]?.fields.error, "it leads out of the volume");
  const expr = podWith([{ name: "data", emptyDir: {} }], {
    env: [{ name: "UP", value: "../.." }],
    volumeMounts: [{ name: "data", mountPath: "/sub", subPathExpr: "$(UP)" }],
  });
  assert.match(
    reasonOf(expr),
    /^CreateContainerConfigError: unable to provision SubPath `\.\.\/\.\.`: must not contain '\.\.'$/,
  );
  const unset = podWith([{ name: "data", emptyDir: {} }], {
    volumeMounts: [{ name: "data", mountPath: "/sub", subPathExpr: "$(NONE)" }],
  });
  assert.equal(reasonOf(unset), 'CreateContainerConfigError: missing value for "NONE"');
});

test("cleaning up twice, and after a crash in the middle, ends the same way", async () => {
  using bench = new Bench();
  const pod = podWith([
    { name: "data", emptyDir: {} },
    { name: "host", hostPath: { path: bench.folder.at("host") } },
  ]);
  mkdirSync(bench.folder.at("host"));
  writeFileSync(bench.folder.at("host/precious"), "");
  await bench.environment.prepare(pod, NEVER);
  bench.launch(pod);
  symlinkSync(bench.folder.at("host"), bench.at("uid-1/volumes/kubernetes.io~empty-dir/data/link"));
  rmSync(bench.at("uid-1/containers"), { recursive: true });
  await bench.environment.cleanup(pod, NEVER);
  await bench.environment.cleanup(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
  assert.deepEqual(readdirSync(bench.folder.at("logs")), []);
  assert.deepEqual(readdirSync(bench.folder.at("host")), ["precious"]);
  assert.deepEqual(bench.cgroups.calls, ["ensure uid-1", "remove uid-1", "remove uid-1"]);
});

test("cgroup and volumes of a pod that has ended go, its last words and logs stay, and it can be prepared anew", {
  skip,
}, async () => {
  using bench = new Bench();
  const pod = podWith(
    [
      { name: "data", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
      { name: "down", downwardAPI: { items: [{ path: "name", fieldRef: { fieldPath: "metadata.name" } }] } },
    ],
    { volumeMounts: [{ name: "data", mountPath: "/data", subPath: "sub" }, ...mountsOf("memory", "down")] },
  );
  await bench.environment.prepare(pod, NEVER);
  writeFileSync(mountAt(bench.launch(pod), "/dev/termination-log")?.hostPath ?? "", "bye");
  await bench.environment.release(pod, NEVER);
  await bench.environment.release(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at("uid-1")).sort(), ["containers", "etc-hosts"]);
  assert.deepEqual(system.mountPointsWithin(bench.folder.path), []);
  assert.equal(bench.environment.readTerminationMessage(pod, firstContainer(pod), 0), "bye");
  assert.ok(existsSync(bench.folder.at("logs/default_web_uid-1")));
  assert.deepEqual(bench.cgroups.calls.splice(0), ["ensure uid-1", "remove uid-1", "remove uid-1"]);
  // At the same moment: one after the other.
  await Promise.all([bench.environment.release(pod, NEVER), bench.environment.prepare(pod, NEVER)]);
  assert.ok(existsSync(bench.at("uid-1/volumes/kubernetes.io~downward-api/down/name")));
  assert.deepEqual(bench.cgroups.calls, ["remove uid-1", "ensure uid-1"]);
  await bench.environment.cleanup(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
});

test("as long as a process is left in the cgroup, nothing on disk is touched", async () => {
  using bench = new Bench();
  const pod = podWith([{ name: "data", emptyDir: {} }]);
  await bench.environment.prepare(pod, NEVER);
  bench.cgroups.failure = new Error("busy");
  await assert.rejects(bench.environment.release(pod, NEVER));
  await assert.rejects(bench.environment.cleanup(pod, NEVER));
  assert.ok(existsSync(bench.at("uid-1/volumes/kubernetes.io~empty-dir/data")));
});

test("a mount that is busy stops the cleanup, and nothing is deleted through it", { skip }, async () => {
  using bench = new Bench();
  const pod = podWith([{ name: "data", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } }]);
  await bench.environment.prepare(pod, NEVER);
  const volume = bench.at("uid-1/volumes/kubernetes.io~empty-dir/data");
  writeFileSync(`${volume}/precious`, "");
  const holder = spawn("sh", ["-c", "echo ready; exec sleep 60"], { cwd: volume, stdio: ["ignore", "pipe", "ignore"] });
  await once(holder.stdout, "data");
  const exit = once(holder, "exit");
  try {
    await assert.rejects(
      bench.environment.cleanup(pod, NEVER),
      (error) => isPicoletError(error, "unavailable") && error.retryable,
    );
    assert.ok(existsSync(`${volume}/precious`));
    assert.ok(existsSync(bench.folder.at("logs/default_web_uid-1")));
  } finally {
    holder.kill("SIGKILL");
    await exit;
  }
  await bench.environment.cleanup(pod, NEVER);
  assert.deepEqual(readdirSync(bench.at()), []);
});

test("the sweep takes what nobody knows, mounts and logs with it, and leaves the rest", { skip }, async () => {
  using bench = new Bench();
  const memory = { name: "data", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } };
  const pods = ["known", "orphan"].map((uid) => desired(podWith([memory]).pod, uid));
  for (const pod of pods) await bench.environment.prepare(pod, NEVER);
  mkdirSync(bench.folder.at("logs/default_other_somebody-else"));
  mkdirSync(bench.folder.at("host"));
  writeFileSync(bench.folder.at("host/precious"), "");
  symlinkSync(bench.folder.at("host"), bench.at("link"));
  // The store of a fresh agent on a moved root: a path with a link in it.
  symlinkSync(bench.folder.at("lib"), bench.folder.at("moved"));
  const fresh = new PodEnvironmentOnDisk(
    {
      ...clusterParts(),
      cgroups: bench.cgroups,
      mounter: system,
      events: bench.events,
      log: bench.log,
      hostIPs: () => [],
    },
    {
      rootDir: bench.folder.at("moved"),
      podLogsDir: bench.folder.at("logs"),
      nodeName: "board",
      resolvConf: "",
      clusterDNS: { servers: [], domain: "" },
      allocatable: {},
      memoryBytes: 2 ** 29,
    },
  );
  assert.deepEqual(await fresh.sweep(new Set(["known"]), NEVER), ["orphan"]);
  assert.deepEqual(readdirSync(bench.at()).sort(), ["known", "link"]);
  assert.deepEqual(readdirSync(bench.folder.at("logs")).sort(), ["default_other_somebody-else", "default_web_known"]);
  assert.ok(existsSync(bench.folder.at("host/precious")));
  assert.deepEqual(await fresh.sweep(new Set(["known"]), NEVER), []);
  assert.equal(system.mountPointsWithin(bench.folder.path).length, 1);
});

test("before the first pod there is nothing to sweep", async () => {
  using bench = new Bench();
  assert.deepEqual(await bench.environment.sweep(new Set(), NEVER), []);
});

test("a pod that goes while it is being made is taken away when that has stopped, and nothing is left", async () => {
  using bench = new Bench();
  const { promise, resolve } = Promise.withResolvers<void>();
  bench.cgroups.slowly = promise;
  const pod = podWith([{ name: "data", emptyDir: {} }]);
  const stop = new AbortController();
  const made = bench.environment.prepare(pod, stop.signal).catch((error: unknown) => error);
  stop.abort();
  const gone = bench.environment.cleanup(pod, NEVER);
  resolve();
  await Promise.all([made, gone]);
  assert.deepEqual(bench.cgroups.calls, ["ensure uid-1", "remove uid-1"]);
  assert.equal(existsSync(bench.at("uid-1")), false);
});

test("a full disk or a read-only one is FailedMount and may be tried again", async () => {
  using bench = new Bench();
  writeFileSync(bench.folder.at("lib"), "a file where the root folder belongs");
  await assert.rejects(bench.environment.prepare(podWith([]), NEVER), (error) => {
    assert.ok(isPicoletError(error, "failed") && error.retryable);
    assert.equal(error.reason, "FailedMount");
    return true;
  });
});

test("a pod with ids of its own has the same ones with each of its sandboxes, and none it does not ask for", async () => {
  using bench = new Bench();
  const pod = podWith([], {}, { hostUsers: false });
  await bench.environment.prepare(pod, NEVER);
  const { userNamespace } = bench.environment.sandbox(pod, 0);
  assert.deepEqual(userNamespace, { hostId: 65_536, length: 65_536 });
  assert.deepEqual(bench.environment.sandbox(pod, 1).userNamespace, userNamespace);
  assert.equal(bench.environment.sandbox(podWith([]), 0).userNamespace, undefined);
});

test("a name the kernel cannot hold gets no sandbox", async () => {
  using bench = new Bench();
  const pod = podWith([], {}, { subdomain: "s".repeat(60), setHostnameAsFQDN: true });
  await bench.environment.prepare(pod, NEVER);
  const create = async () => bench.environment.sandbox(pod, 0);
  assert.match(await refusal(create()), /^FailedCreatePodSandBox: failed to construct FQDN from pod hostname and /);
  assert.equal(bench.environment.sandbox({ ...pod, pod: podOf({ hostNetwork: true }) }, 0).hostname, "");
});
