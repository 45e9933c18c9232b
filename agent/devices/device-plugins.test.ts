/** Plugins that come and go, written with grpc-js, on virtual time. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { Millis } from "@picolet/protocol/ports.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import {
  type TestDevice,
  TestDevicePlugin,
  type TestDevicePluginInit,
} from "@picolet/test/support/unit/plugins/test-device-plugin.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { countedTimes, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { NodeCounts } from "../core/node/node-counts.ts";
import { type Hint, maskOf } from "../topology/numa-hints.ts";
import { type DeviceCheckpoint, readCheckpoint, writeCheckpoint } from "./device-checkpoint.ts";
import { deviceHints } from "./device-hints.ts";
import { DeviceManager } from "./device-manager.ts";
import { REGISTER } from "./device-plugin-messages.ts";
import { DevicePlugins } from "./device-plugins.ts";

const RESOURCE = "example.com/camera";
const NEVER = new AbortController().signal;
const CAMERA_PLUGIN = { type: "DevicePlugin", name: RESOURCE, versions: ["v1beta1"] };
const devicesOf = (...ids: readonly string[]): TestDevice[] => ids.map((ID) => ({ ID, health: "Healthy" }));
const healthy = (ID: string, ...nodes: readonly number[]): TestDevice => ({
  ...{ ID, health: "Healthy" },
  topology: { nodes: nodes.map((node) => ({ ID: node })) },
});

const asking = (
  count: number,
  name = "app",
): { readonly name: string; readonly image: string; readonly resources: object } => ({
  ...{ name, image: "app", resources: { limits: { [RESOURCE]: String(count) } } },
});
const podAsking = (...counts: readonly number[]): DesiredPod =>
  desired(
    podOf({ containers: counts.map((count, index) => asking(count, index === 0 ? "app" : `app-${index}`)) }),
    "pod-1",
  );

/** The parts of one agent, and a plugin with two devices. */
class Bench {
  readonly clock = new VirtualClock();
  readonly folder = new TempFolder();
  readonly plugin: TestDevicePlugin;
  readonly log = new RecordedLog();
  readonly nodeCounts = new NodeCounts();
  kept: DeviceCheckpoint | undefined;
  manager: DeviceManager;
  plugins: DevicePlugins;

  constructor(context: TestContext, given: Partial<TestDevicePluginInit> = {}) {
    const folder = join(this.folder.path, "device-plugins");
    mkdirSync(folder);
    this.plugin = new TestDevicePlugin({ folder, resource: RESOURCE, devices: devicesOf("a", "b"), ...given });
    [this.manager, this.plugins] = this.start();
    context.after(async () => {
      this.plugin.stop();
      await this.plugins[Symbol.asyncDispose]();
      this.folder[Symbol.dispose]();
    });
  }

  /** The next agent. */
  start(): [DeviceManager, DevicePlugins] {
    const { log } = this;
    this.manager = new DeviceManager(
      {
        ...{ log, isKnown: () => true, withCdi: async (launch) => launch },
        keep: (checkpoint) => {
          this.kept = checkpoint;
        },
      },
      this.kept,
    );
    this.plugins = new DevicePlugins(
      { clock: this.clock, counts: this.nodeCounts, log, manager: this.manager },
      { folder: this.folder.path },
    );
    return [this.manager, this.plugins];
  }

  async register(): Promise<void> {
    await this.plugin.serve();
    await this.plugins.register({ ...CAMERA_PLUGIN, ...this.socket }, AbortSignal.timeout(20_000));
  }

  get socket(): { readonly endpoint: string; readonly socketPath: string } {
    const { endpoint } = this.plugin;
    return { endpoint, socketPath: endpoint };
  }

  /** Waits until the node counts so many devices, and so many healthy ones. */
  async until(capacity: string, allocatable: string): Promise<void> {
    for await (const counts of this.manager.counts.changes(AbortSignal.timeout(20_000)))
      if (counts.capacity[RESOURCE] === capacity && counts.allocatable[RESOURCE] === allocatable) return;
  }

  /** Has devices chosen for the pod as its admission does. */
  admit(pod: DesiredPod, affinity: Hint = { nodes: undefined, preferred: false }): void {
    const round = this.manager.begin(pod);
    for (const container of pod.pod.spec.containers) round.allocate(container, affinity);
    this.manager.commit();
  }

  get counts(): readonly (string | undefined)[] {
    const { capacity, allocatable } = this.manager.counts.current;
    return [capacity[RESOURCE], allocatable[RESOURCE]];
  }

  async pass(duration: Millis): Promise<void> {
    await this.clock.advance(duration);
    await this.clock.settle();
  }
}

test("the devices of a plugin that goes are unhealthy, and none when it stays away for five minutes", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  bench.plugin.stop();
  await bench.until("2", "0");
  await bench.pass(millis(299_999));
  assert.deepEqual(bench.counts, ["2", "0"]);
  await bench.pass(millis(1));
  assert.deepEqual(bench.counts, ["0", "0"]);
  assert.deepEqual([...(bench.kept?.registered ?? [])], []);
  await bench.register();
  await bench.until("2", "2");
});

test("a plugin that is back in time keeps its devices", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  bench.plugin.stop();
  await bench.until("2", "0");
  await bench.pass(seconds(200));
  await bench.register();
  await bench.until("2", "2");
  await bench.pass(seconds(400));
  assert.deepEqual(bench.counts, ["2", "2"]);
});

test("the next agent counts the devices of a plugin that is not back yet, as unhealthy", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  await bench.plugins[Symbol.asyncDispose]();
  assert.deepEqual(bench.counts, ["2", "2"]);
  bench.start();
  assert.deepEqual(bench.counts, ["2", "0"]);
  bench.plugin.stop();
  await bench.register();
  await bench.until("2", "2");
});

test("a plugin that stays away after the agent's start has no devices five minutes later", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  await bench.plugins[Symbol.asyncDispose]();
  bench.start();
  await bench.pass(millis(299_999));
  assert.deepEqual(bench.counts, ["2", "0"]);
  await bench.pass(millis(1));
  assert.deepEqual(bench.counts, ["0", "0"]);
});

test("registrations that succeed and all allocations count for their resource", async (context) => {
  let isBroken = false;
  const allocate = (): object => {
    if (isBroken) throw new Error("no such camera");
    return {};
  };
  const bench = new Bench(context, { allocate });
  assert.deepEqual([...bench.nodeCounts.counts("kubelet_device_plugin_registration_total")], []);
  await bench.register();
  await bench.until("2", "2");
  bench.admit(podAsking(1, 1));
  await bench.manager.prepare(podAsking(1, 1), NEVER);
  bench.manager.release(podAsking(1).uid);
  isBroken = true;
  bench.admit(podAsking(1));
  await assert.rejects(bench.manager.prepare(podAsking(1), NEVER), /Allocate failed/);
  bench.plugin.stop();
  await assert.rejects(bench.plugins.register({ ...CAMERA_PLUGIN, ...bench.socket }, NEVER));
  const registrations = [...bench.nodeCounts.counts("kubelet_device_plugin_registration_total")];
  assert.deepEqual(registrations, [{ labels: [RESOURCE], value: 1 }]);
  const allocations = countedTimes(bench.nodeCounts, "kubelet_device_plugin_alloc_duration_seconds");
  assert.deepEqual(allocations, { [RESOURCE]: 3 });
});

test("a registration fails while nothing listens at the plugin's socket", async (context) => {
  const bench = new Bench(context);
  const { registration } = bench.plugins;
  const request = { version: "v1beta1", endpoint: "device-plugins/nobody.sock", resourceName: RESOURCE };
  const bytes = Buffer.from(REGISTER.request.encode({ ...request, options: {} }));
  await assert.rejects(registration.answer(bytes, 0, bytes.length, NEVER), /nobody.sock/);
  assert.deepEqual(bench.counts, [undefined, undefined]);
});

test("a plugin cannot offer what is no extended resource", async (context) => {
  const bench = new Bench(context);
  const names = ["camera", "kubernetes.io/camera", "a.kubernetes.io/x", "mykubernetes.io/x", "requests.example.com/x"];
  for (const name of names) {
    const registered = bench.plugins.register({ ...CAMERA_PLUGIN, name, ...bench.socket }, NEVER);
    await assert.rejects(registered, { code: "invalid", message: /^the ResourceName "[^"]+" is invalid/ });
  }
});

test("of lists that follow each other quickly the last one counts", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  const seen: (readonly (string | undefined)[])[] = [];
  bench.manager.counts.listen(() => seen.push(bench.counts), NEVER);
  const pod = podAsking(1);
  bench.admit(pod);
  for (const ids of [["a"], ["a", "b"], ["a"], ["a", "b", "c"]]) bench.plugin.devices = devicesOf(...ids);
  // Its answer follows the lists.
  await bench.manager.prepare(pod, NEVER);
  await bench.pass(seconds(1));
  assert.deepEqual(seen, [["3", "3"]]);
});

test("a plugin whose list changes all the time is followed once a minute after ten changes", async (context) => {
  const bench = new Bench(context, { preStart: true });
  await bench.register();
  await bench.until("2", "2");
  const pod = podAsking(1);
  bench.admit(pod);
  let changes = 0;
  bench.manager.counts.listen(() => {
    changes += 1;
  }, NEVER);
  let hasThird = false;
  const flap = async (): Promise<void> => {
    hasThird = !hasThird;
    bench.plugin.devices = devicesOf("a", "b", ...(hasThird ? ["c"] : []));
    // The answer of PreStartContainer follows the list.
    await bench.manager.launch(pod, "app", NEVER);
    await bench.pass(seconds(1));
  };
  await bench.pass(seconds(600));
  for (let second = 0; second < 120; second += 1) await flap();
  // One in each of the first ten seconds, and one a minute after them.
  assert.equal(changes, 11);
  await bench.pass(seconds(600));
  const before = changes;
  await flap();
  assert.equal(changes, before + 1);
});

test("a plugin that registers again before each change is followed no faster", async (context) => {
  const bench = new Bench(context, { preStart: true });
  await bench.register();
  await bench.until("2", "2");
  const pod = podAsking(1);
  bench.admit(pod);
  const known = (): readonly string[] => bench.kept?.registered.get(RESOURCE) ?? [];
  let changes = 0;
  for (let round = 0; round < 20; round += 1) {
    const before = known();
    bench.plugin.devices = devicesOf(...before);
    await bench.plugins.register({ ...CAMERA_PLUGIN, ...bench.socket }, NEVER);
    await bench.clock.settle();
    await bench.until(String(before.length), String(before.length));
    bench.plugin.devices = devicesOf("a", "b", ...(before.length === 2 ? ["c"] : []));
    // The answer of PreStartContainer follows the list.
    await bench.manager.launch(pod, "app", NEVER);
    await bench.pass(seconds(2));
    if (known().length !== before.length) changes += 1;
  }
  // The first list of all was a change, too.
  assert.equal(changes, 9);
});

test("a plugin that registers all the time is refused for a while, and leaves nothing behind", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  for (let count = 1; count < 10; count += 1)
    await bench.plugins.register({ ...CAMERA_PLUGIN, ...bench.socket }, NEVER);
  const again = bench.plugins.register({ ...CAMERA_PLUGIN, ...bench.socket }, NEVER);
  await assert.rejects(again, /cannot register example.com\/camera more than 10 times in 10 s/);
  await bench.until("2", "2");
  await bench.pass(seconds(10));
  await bench.plugins.register({ ...CAMERA_PLUGIN, ...bench.socket }, NEVER);
  await bench.until("2", "2");
  await bench.pass(seconds(400));
  assert.deepEqual(bench.counts, ["2", "2"]);
});

const idsOf = (count: number, length: number): string[] =>
  Array.from({ length: count }, (_, index) => String(index).padStart(length, "d"));

for (const [what, ids, expected] of [
  ["too many devices", idsOf(4097, 4), "cannot follow 4097 devices, more than 4096"],
  ["IDs of more than it may keep", idsOf(1000, 100), "cannot follow devices whose IDs take 103001 bytes"],
  [
    "IDs of fewer characters than that, which are no ASCII",
    idsOf(250, 200).map((id) => id.replaceAll("d", "日")),
    "cannot follow devices whose IDs take 149",
  ],
] as const) {
  test(`a plugin that lists ${what} is not followed`, async (context) => {
    const bench = new Bench(context, { devices: devicesOf(...ids) });
    await bench.register();
    const problem = (): string => String(bench.log.entries.find(({ level }) => level === "warn")?.fields.error ?? "");
    while (problem() === "" && bench.counts[0] === undefined) await new Promise((resolve) => setImmediate(resolve));
    assert.ok(problem().startsWith(expected), problem());
    assert.deepEqual(bench.counts, [undefined, undefined]);
  });
}

test("a pod is refused when its plugin's answers take more than the checkpoint has for a resource", async (context) => {
  const bench = new Bench(context, { allocate: () => ({ envs: { LARGE: "x".repeat(50_000) } }) });
  await bench.register();
  await bench.until("2", "2");
  const pod = podAsking(1, 1, 0);
  bench.admit(pod);
  await bench.manager.prepare(pod, NEVER);
  bench.plugin.devices = devicesOf("a", "b", "c");
  await bench.pass(seconds(1));
  await bench.until("3", "3");
  const other = desired(podOf({ containers: [asking(1)] }), "pod-2");
  bench.admit(other);
  const refusal = /the answers for the containers that have example.com\/camera take 150\d\d\d bytes, more than 131072/;
  await assert.rejects(bench.manager.prepare(other, NEVER), { message: refusal, reason: "UnexpectedAdmissionError" });
});

test("hints for as many devices as a plugin may have read each of them a few times", () => {
  const nodes = Array.from({ length: 8 }, (_, node) => node);
  let reads = 0;
  const all = idsOf(4096, 4).map((id) => ({
    ...{ id, isHealthy: true },
    get nodes(): readonly number[] {
      reads += 1;
      return nodes;
    },
  }));
  const hints = deviceHints(all, new Set(all.map(({ id }) => id)), 4096) ?? [];
  assert.equal(hints.length, 255);
  const preferred = hints.filter((each) => each.preferred).map((each) => each.nodes);
  assert.deepEqual(
    preferred,
    nodes.map((node) => maskOf([node])),
  );
  assert.ok(reads <= 4 * all.length, String(reads));
});

test("a container that must be prepared does not start while its plugin is away", async (context) => {
  const bench = new Bench(context, { preStart: true });
  const pod = podAsking(1);
  await bench.register();
  await bench.until("2", "2");
  bench.admit(pod);
  await bench.manager.prepare(pod, NEVER);
  await bench.manager.launch(pod, "app", NEVER);
  assert.deepEqual(bench.plugin.calls, ["Allocate a", "PreStartContainer a"]);
  bench.plugin.stop();
  await bench.until("2", "0");
  await assert.rejects(bench.manager.launch(pod, "app", NEVER), /device plugin of example.com\/camera is away/);
  await bench.register();
  await bench.until("2", "2");
  await bench.manager.launch(pod, "app", NEVER);
  assert.deepEqual(bench.plugin.calls, ["Allocate a", "PreStartContainer a", "PreStartContainer a"]);
});

test("under the next agent a container starts when its plugin is back, as after a reboot", async (context) => {
  const bench = new Bench(context, { allocate: () => ({ envs: { CAMERA: "a" } }) });
  const pod = podAsking(1);
  await bench.register();
  await bench.until("2", "2");
  bench.admit(pod);
  await bench.manager.prepare(pod, NEVER);
  bench.plugin.stop();
  await bench.until("2", "0");
  const { env } = (await bench.manager.launch(pod, "app", NEVER)) ?? {};
  assert.deepEqual(env, [{ name: "CAMERA", value: "a" }]);
  await bench.plugins[Symbol.asyncDispose]();
  bench.start();
  await assert.rejects(bench.manager.launch(pod, "app", NEVER), /device plugin of example.com\/camera is away/);
  await bench.register();
  await bench.until("2", "2");
  assert.deepEqual((await bench.manager.launch(pod, "app", NEVER))?.env, env);
});

test("a container gets the devices of a plugin that registers after its pod was admitted", async (context) => {
  const bench = new Bench(context, { allocate: (ids) => ({ envs: { CAMERA: ids.join() } }) });
  const pod = podAsking(1, 2);
  bench.admit(pod);
  await bench.manager.prepare(pod, NEVER);
  assert.equal(await bench.manager.launch(pod, "app", NEVER), undefined);
  await bench.register();
  await bench.until("2", "2");
  const { env } = (await bench.manager.launch(pod, "app", NEVER)) ?? {};
  assert.deepEqual(env, [{ name: "CAMERA", value: "a" }]);
  await assert.rejects(
    bench.manager.launch(pod, "app-1", NEVER),
    /requested number of devices unavailable for example.com\/camera. Requested: 2, Available: 1/,
  );
});

test("a plugin chooses among devices near the container's NUMA nodes, and the rest of its choice counts", async (context) => {
  const devices = [healthy("a", 0), healthy("b", 1), healthy("c", 1), healthy("d", 1), healthy("e", 0)];
  const preferred = (available: readonly string[]) => [...available].sort().reverse().slice(0, 1);
  const bench = new Bench(context, { devices, preferred });
  await bench.register();
  await bench.until("5", "5");
  const given = async (uid: string, count: number): Promise<void> => {
    const pod = desired(podOf({ containers: [asking(count)] }), uid);
    bench.admit(pod, { nodes: maskOf([1]), preferred: true });
    await bench.manager.prepare(pod, NEVER);
  };
  await given("pod-1", 2);
  assert.deepEqual(bench.plugin.calls, ["GetPreferredAllocation b,c,d", "Allocate d,b"]);
  bench.plugin.calls.length = 0;
  await given("pod-2", 2);
  assert.deepEqual(bench.plugin.calls, ["GetPreferredAllocation a,c,e", "Allocate c,e"]);
});

test("hints count unhealthy devices, keep those that a pod has, and know no node that cannot be", async (context) => {
  const devices = [healthy("a", 0), { ...healthy("b", 0), health: "Unhealthy" as const }, healthy("c", 1, -1, 2 ** 40)];
  const bench = new Bench(context, { devices });
  await bench.register();
  await bench.until("3", "2");
  const pod = podAsking(2);
  const hints = (): unknown[] => {
    const [container] = pod.pod.spec.containers;
    const found = container && bench.manager.begin(pod).hints(container).get(RESOURCE);
    return (found ?? []).map(({ nodes, preferred }) => [nodes, preferred]);
  };
  assert.deepEqual(hints(), [[3n, false]]);
  bench.admit(pod);
  assert.deepEqual(hints(), [[3n, false]]);
});

test("a device of two resources is given to a container once", async (context) => {
  const device = { container_path: "/dev/control", host_path: "/dev/null", permissions: "rw" };
  const mount = { container_path: "/firmware", host_path: "/tmp", read_only: true };
  const bench = new Bench(context, { allocate: () => ({ devices: [device, device], mounts: [mount, mount] }) });
  const pod = podAsking(1);
  await bench.register();
  await bench.until("2", "2");
  bench.admit(pod);
  await bench.manager.prepare(pod, NEVER);
  const { devices, mounts } = (await bench.manager.launch(pod, "app", NEVER)) ?? {};
  assert.deepEqual([devices?.length, mounts?.length], [1, 1]);
});

test("a kubelet's checkpoint names a device at each of its NUMA nodes", async (context) => {
  const { folder } = new Bench(context);
  const entry = { PodUID: "pod-1", ContainerName: "app", ResourceName: RESOURCE, AllocResp: "" };
  const data = { PodDeviceEntries: [{ ...entry, DeviceIDs: { 0: ["a"], 1: ["a", "b"] } }], RegisteredDevices: {} };
  writeFileSync(folder.at("checkpoint"), JSON.stringify({ Data: data, Checksum: 1 }));
  assert.deepEqual(readCheckpoint(folder.at("checkpoint"))?.allocations[0]?.ids, ["a", "b"]);
});

/** A kubelet's checkpoint, with NVIDIA's device plugin on a Jetson. */
const KUBELETS_CHECKPOINT =
  '{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",' +
  '"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],' +
  '"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}';

test("a kubelet can read the checkpoint", async (context) => {
  const { folder } = new Bench(context);
  const path = folder.at("checkpoint");
  writeFileSync(path, KUBELETS_CHECKPOINT);
  const kept = readCheckpoint(path);
  assert.ok(kept);
  writeCheckpoint(path, kept);
  assert.equal(readFileSync(path, "utf8"), KUBELETS_CHECKPOINT);
});
