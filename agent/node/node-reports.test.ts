import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { KUBERNETES_VERSION, VERSION } from "@picolet/protocol/version.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { DeviceResources } from "../core/pods/container-devices.ts";
import type { NodeCondition } from "./node-conditions.ts";
import { nodeReport, taintsAtRegistration } from "./node-report.ts";
import { NodeReports } from "./node-reports.ts";

const MACHINE = {
  machineID: "m",
  systemUUID: "s",
  bootID: "b",
  kernelVersion: "6.1",
  osImage: "Debian",
  architecture: "arm64",
  cpus: 4,
  memoryBytes: 536_870_912,
};
const CAPACITY = { cpu: "4", memory: "524288Ki", pods: "110", "ephemeral-storage": "1Ki" };
const ALLOCATABLE = { ...CAPACITY, memory: "412Mi" };
const INIT = {
  nodeName: "board",
  register: true,
  labels: { room: "12", "kubernetes.io/arch": "arm" },
  taints: [],
  providerID: "",
  maxImages: 2,
  machine: MACHINE,
  capacity: CAPACITY,
  allocatable: ALLOCATABLE,
};
const READY: NodeCondition = {
  type: "Ready",
  status: "True",
  reason: "KubeletReady",
  message: "",
  lastTransitionTime: "2026-01-01T00:00:00Z",
};
const image = (id: string, sizeBytes: number) => ({ id, tags: [`${id}:1`], digests: [], sizeBytes, pinned: false });

test("a node of an external cloud provider begins with the kubelet's taint for it, once", () => {
  const own = { key: "edge", effect: "NoSchedule" };
  const cloud = { key: "node.cloudprovider.kubernetes.io/uninitialized", value: "true", effect: "NoSchedule" };
  const taints = (cloudProvider: string, ...registerWithTaints: readonly (typeof own)[]) =>
    taintsAtRegistration({ cloudProvider, registerWithTaints });
  assert.deepEqual(taints("", own), [{ ...own, value: "" }]);
  assert.deepEqual(taints("external", own), [{ ...own, value: "" }, cloud]);
  assert.deepEqual(taints("external", cloud), [cloud]);
});

test("a report has the kubelet's labels and shapes, the operator's labels above its own", () => {
  const report = nodeReport(INIT, { conditions: [READY], addresses: ["10.0.0.2"], runtimes: [], images: [] });
  assert.deepEqual(report.labels, {
    "kubernetes.io/hostname": "board",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "arm",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "arm64",
    room: "12",
  });
  assert.deepEqual(report.status.addresses, [
    { type: "InternalIP", address: "10.0.0.2" },
    { type: "Hostname", address: "board" },
  ]);
  assert.deepEqual([report.status.capacity, report.status.allocatable], [CAPACITY, ALLOCATABLE]);
  const nodeInfo = report.status.nodeInfo as { architecture: string; kubeletVersion: string; kubeProxyVersion: string };
  assert.equal(nodeInfo.architecture, "arm64");
  assert.equal(nodeInfo.kubeletVersion, `v${KUBERNETES_VERSION}.0-picolet.${VERSION}`, "the API server's version");
  assert.equal(nodeInfo.kubeProxyVersion, "", "as the kubelet since 1.33");
});

test("the largest images are reported, up to the configured number", () => {
  const images = [image("small", 1), image("large", 3), image("middle", 2)];
  const names = (maxImages: number): unknown =>
    nodeReport({ ...INIT, maxImages }, { conditions: [], addresses: [], runtimes: [], images }).status.images;
  assert.deepEqual(names(2), [
    { names: ["large:1"], sizeBytes: 3 },
    { names: ["middle:1"], sizeBytes: 2 },
  ]);
  assert.equal((names(-1) as unknown[]).length, 3);
  assert.equal((names(0) as unknown[]).length, 0);
});

test("devices that come and go are reported together, ten seconds after the first change", async () => {
  const clock = new VirtualClock();
  const devices = new WatchSource<DeviceResources>({ capacity: {}, allocatable: {} });
  const shown: string[] = [];
  const reports = new NodeReports(
    {
      adapters: [],
      ...{
        conditions: new WatchSource([READY]),
        podsChanged: new WatchSource<unknown>(0),
        updates: new WatchSource(undefined),
      },
      ...{ devices, shownDevices: () => shown.join("\n"), draDrivers: new WatchSource('["a.example.com"]') },
      ...{ addresses: () => [], runtimeStatus: () => undefined, clock, log: new RecordedLog() },
    },
    { ...INIT, interval: millis(300_000) },
  );
  const life = new AbortController();
  const done = endOfRun(reports.run(life.signal));
  let count = 0;
  const counting = (async () => {
    for await (const _ of reports.report.changes(life.signal)) count += 1;
  })();
  const after = async (ms: number): Promise<string | undefined> => {
    await clock.advance(millis(ms));
    await clock.settle();
    return reports.report.current.devices;
  };
  await clock.settle();
  assert.equal(await after(10_000), "");
  assert.equal(reports.report.current.draDrivers, '["a.example.com"]');
  const before = count;
  for (let plug = 0; plug < 100; plug += 1) {
    shown.push(`example.com/camera video${plug}`);
    devices.set({ ...devices.current });
    await clock.settle();
  }
  assert.equal(await after(9_999), "");
  assert.equal(count, before);
  assert.equal((await after(1))?.split("\n").length, 100);
  assert.ok(count - before <= 1, `${count - before} reports`);
  life.abort();
  await Promise.all([done, counting]);
});

function start() {
  const clock = new VirtualClock();
  const runtime = new FakeRuntime({ clock });
  const conditions = new WatchSource<readonly NodeCondition[]>([READY]);
  const podsChanged = new WatchSource<unknown>(0);
  const updates = new WatchSource<string | undefined>(undefined);
  const addresses = ["10.0.0.2"];
  const reports = new NodeReports(
    {
      adapters: [new FakeAdapter(runtime)],
      conditions,
      podsChanged,
      updates,
      addresses: () => [...addresses],
      runtimeStatus: () => undefined,
      clock,
      log: new RecordedLog(),
    },
    { ...INIT, interval: millis(300_000) },
  );
  const life = new AbortController();
  const seen: unknown[] = [];
  const done = endOfRun(reports.run(life.signal));
  const watching = (async () => {
    for await (const report of reports.report.changes(life.signal)) seen.push(report);
  })();
  const stop = async (): Promise<void> => {
    life.abort();
    await Promise.all([done, watching]);
  };
  return {
    clock,
    runtime,
    reports,
    conditions,
    podsChanged,
    addresses,
    seen,
    stop,
  };
}

test("a condition is reported at once, an image soon after a pod changed, an address with the next interval", async () => {
  const { clock, runtime, reports, conditions, podsChanged, addresses, seen, stop } = start();
  await clock.advance(millis(1));
  const before = seen.length;
  conditions.set([{ ...READY, status: "False" }]);
  await clock.settle();
  assert.equal(seen.length, before + 1);
  assert.equal((reports.report.current.status.conditions as NodeCondition[])[0]?.status, "False");

  runtime.addImage("localhost/app:1");
  podsChanged.set(1);
  await clock.advance(millis(9_000));
  assert.deepEqual(reports.report.current.status.images, []);
  await clock.advance(millis(2_000));
  assert.equal((reports.report.current.status.images as unknown[]).length, 1);

  addresses[0] = "10.0.0.3";
  await clock.advance(millis(301_000));
  assert.deepEqual((reports.report.current.status.addresses as { address: string }[])[0]?.address, "10.0.0.3");
  await stop();
});

test("nothing is reported while nothing changes, and images outlive a runtime that does not answer", async () => {
  const { clock, runtime, reports, podsChanged, seen, stop } = start();
  runtime.addImage("localhost/app:1");
  podsChanged.set(1);
  await clock.advance(millis(11_000));
  const before = seen.length;
  runtime.goAway();
  podsChanged.set(2);
  await clock.advance(millis(3_600_000));
  assert.equal(seen.length, before);
  assert.equal((reports.report.current.status.images as unknown[]).length, 1);
  await stop();
});
