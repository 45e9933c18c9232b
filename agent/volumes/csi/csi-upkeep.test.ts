import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type CsiVolume, persistentVolume } from "./csi-source.ts";
import type { CsiFigures } from "./csi-stats.ts";
import { CsiUpkeep } from "./csi-upkeep.ts";

/** Rejects when `signal` aborts, as a call of a driver does. */
const endOf = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(cancelled("the call")), { once: true });
  });

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly objects = new TestClusterObjects(this.clock);
  /** `<volume> <bytes>` at seconds. */
  readonly expanded: string[] = [];
  expands = true;
  /** `<driver>` at seconds. */
  readonly askedLimits: string[] = [];
  /** `<pod>/<volume>` at seconds. */
  readonly republished: string[] = [];
  failure: string | undefined;
  /** Volumes whose driver never answers. */
  readonly hung = new Set<string>();
  /** The driver's report of each volume; undefined: its driver reports none. */
  condition: { readonly isAbnormal: boolean; readonly message: string } | undefined;
  readonly upkeep: CsiUpkeep;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor() {
    const republish = async (pod: DesiredPod, { specName }: CsiVolume): Promise<void> => {
      this.republished.push(`${pod.uid}/${specName} ${this.clock.monotonic() / 1000}`);
      if (this.hung.has(specName)) await endOf(this.#stop.signal);
      if (this.failure !== undefined) throw new PicoletError("unavailable", this.failure, { retryable: true });
    };
    const expand = async (_pod: DesiredPod, { specName }: CsiVolume, bytes: number): Promise<boolean> => {
      this.expanded.push(`${specName} ${bytes} ${this.clock.monotonic() / 1000}`);
      if (this.hung.has(specName)) await endOf(this.#stop.signal);
      if (this.failure !== undefined) throw new PicoletError("unavailable", this.failure, { retryable: true });
      return this.expands;
    };
    const { clock, events, objects } = this;
    const reportsHealth = (): boolean => this.condition !== undefined;
    const stats = async (_uid: string, specName: string): Promise<CsiFigures> => {
      if (this.hung.has(specName)) await endOf(this.#stop.signal);
      return { usage: undefined, condition: this.condition };
    };
    const volumes = { republish, expand, reportsHealth, stats };
    const refreshLimit = async (name: string): Promise<void> => {
      this.askedLimits.push(`${name} ${this.clock.monotonic() / 1000}`);
      if (this.failure !== undefined) throw new PicoletError("unavailable", this.failure, { retryable: true });
    };
    const drivers = { refreshLimit };
    const components = { clock, events, objects, objectsChanged: objects.changed, volumes, drivers };
    this.upkeep = new CsiUpkeep(components, { nodeName: "board" });
    this.#running = this.upkeep.run(this.#stop.signal).catch(ignore("it ends with the test"));
  }

  add(uid: string, name: string): void {
    const pod = podOf({ containers: [{ name: "app", image: "app" }] }, { uid });
    const spec = { csi: { driver: "disk.example", volumeHandle: name } };
    this.upkeep.add({ uid: podUid(uid), source: "api", origin: "", pod }, persistentVolume(name, spec, false), "data");
  }

  /** A claim that shows `shown`, bound to a volume of `capacity`. */
  claim(name: string, shown: string, capacity: string): void {
    const claimRef = { namespace: "default", name, uid: `uid-${name}` };
    this.objects.set(`PersistentVolume//${name}`, { spec: { capacity: { storage: capacity }, claimRef } });
    const status = { phase: "Bound", capacity: { storage: shown } };
    this.objects.set(`PersistentVolumeClaim/default/${name}`, { metadata: { uid: `uid-${name}` }, status });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    assert.equal(this.clock.sleeping, 0);
  }
}

test("each volume is published again a minute after its last publication, while its pod has it", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  await bench.clock.advance(millis(20_000));
  bench.add("pod-2", "a");
  await bench.clock.advance(millis(130_000));
  bench.upkeep.forget("pod-1");
  await bench.clock.advance(millis(60_000));
  assert.deepEqual(bench.republished, ["pod-1/a 60", "pod-2/a 80", "pod-1/a 120", "pod-2/a 140", "pod-2/a 200"]);
  bench.upkeep.forget("pod-2");
  await bench.clock.advance(millis(600_000));
  assert.equal(bench.republished.length, 5);
});

test("a refusal is one event of the pod, and the next one after a success is another", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  bench.failure = "no vault";
  await bench.clock.advance(millis(180_000));
  assert.deepEqual(bench.events.lines, ["Warning FailedMount: no vault"]);
  bench.failure = undefined;
  await bench.clock.advance(millis(60_000));
  bench.failure = "no vault";
  await bench.clock.advance(millis(60_000));
  assert.equal(bench.events.lines.length, 2);
  assert.equal(bench.republished.length, 5);
});

test("a volume is expanded once when it is larger than its claim shows, and reported until the claim shows it", async () => {
  await using bench = new Bench();
  const { upkeep, clock } = bench;
  bench.claim("a", "1Gi", "1Gi");
  bench.add("pod-1", "a");
  bench.add("pod-2", "a");
  await clock.settle();
  assert.deepEqual(bench.expanded, []);
  bench.claim("a", "1Gi", "2Gi");
  await clock.advance(millis(10_000));
  assert.deepEqual(bench.expanded, ["a 2147483648 0"]);
  const claim = { namespace: "default", name: "a", uid: "uid-a", capacity: "2Gi" };
  assert.deepEqual(JSON.parse(upkeep.expandedClaims.current ?? ""), [claim]);
  assert.deepEqual(bench.events.lines, [
    'Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "a" board',
  ]);
  bench.claim("a", "2Gi", "2Gi");
  await clock.advance(millis(10_000));
  assert.equal(upkeep.expandedClaims.current, undefined);
  bench.claim("a", "2Gi", "3Gi");
  await clock.advance(millis(10_000));
  assert.equal(bench.expanded.length, 2);
  upkeep.forget("pod-1");
  upkeep.forget("pod-2");
  bench.objects.delete("PersistentVolumeClaim/default/a");
  await clock.advance(millis(10_000));
  assert.equal(upkeep.expandedClaims.current, undefined);
});

test("an expansion that fails is tried again, ever later, with an event each time", async () => {
  await using bench = new Bench();
  bench.failure = "no tool";
  bench.claim("a", "1Gi", "2Gi");
  bench.add("pod-1", "a");
  await bench.clock.advance(millis(10_000));
  assert.deepEqual(bench.expanded, ["a 2147483648 0", "a 2147483648 1", "a 2147483648 3", "a 2147483648 7"]);
  assert.equal(bench.events.lines[0], "Warning VolumeResizeFailed: no tool");
  bench.failure = undefined;
  await bench.clock.advance(millis(10_000));
  assert.equal(bench.expanded.length, 5);
  assert.ok(bench.upkeep.expandedClaims.current?.includes("2Gi"));
});

test("nothing is reported for a driver that does not expand, and nothing expanded without the claim's capacity", async () => {
  await using bench = new Bench();
  bench.expands = false;
  bench.claim("a", "1Gi", "2Gi");
  bench.add("pod-1", "a");
  await bench.clock.advance(millis(10_000));
  assert.equal(bench.upkeep.expandedClaims.current, undefined);
  bench.expanded.length = 0;
  bench.claim("a", "", "2Gi");
  await bench.clock.advance(millis(10_000));
  assert.deepEqual(bench.expanded, []);
});

test("a driver is asked for its limit of volumes as often as its CSIDriver says, while a pod has a volume of it", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  bench.add("pod-2", "b");
  await bench.clock.advance(millis(100_000));
  assert.deepEqual(bench.askedLimits, []);
  bench.objects.set("CSIDriver//disk.example", { spec: { nodeAllocatableUpdatePeriodSeconds: 30 } });
  bench.failure = "it does not answer";
  await bench.clock.advance(millis(70_000));
  assert.deepEqual(bench.askedLimits, ["disk.example 130", "disk.example 160"]);
  bench.upkeep.forget("pod-1");
  bench.upkeep.forget("pod-2");
  await bench.clock.advance(millis(600_000));
  assert.equal(bench.askedLimits.length, 2);
});

test("a driver that never answers delays no other volume", async () => {
  await using bench = new Bench();
  bench.hung.add("stuck");
  bench.condition = { isAbnormal: false, message: "" };
  bench.add("pod-1", "stuck");
  bench.add("pod-2", "a");
  bench.claim("stuck", "1Gi", "2Gi");
  bench.claim("a", "1Gi", "2Gi");
  await bench.clock.advance(millis(190_000));
  assert.deepEqual(bench.expanded, ["stuck 2147483648 0", "a 2147483648 0"]);
  const claims = JSON.parse(bench.upkeep.expandedClaims.current ?? "[]") as readonly { readonly name: string }[];
  assert.deepEqual(
    claims.map(({ name }) => name),
    ["a"],
  );
  const seconds = ["60", "120", "180"];
  const ofOther = bench.republished.filter((line) => line.startsWith("pod-2"));
  assert.deepEqual(
    ofOther,
    seconds.map((at) => `pod-2/a ${at}`),
  );
  assert.deepEqual(
    bench.republished.filter((line) => line.startsWith("pod-1")),
    ["pod-1/stuck 60"],
  );
});

test("a volume that its driver finds abnormal is an event of the pod, once for each change", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  const minute = (): Promise<void> => bench.clock.advance(millis(60_000));
  const set = (message: string): void => {
    bench.condition = { isAbnormal: message !== "", message };
  };
  set("");
  await minute();
  assert.deepEqual(bench.events.lines, []);
  set("bad blocks");
  await minute();
  await minute();
  const first = "Warning VolumeConditionAbnormal: Volume data: bad blocks";
  assert.deepEqual(bench.events.lines, [first]);
  set("worse blocks");
  await minute();
  set("");
  await minute();
  set("bad blocks");
  await minute();
  const second = "Warning VolumeConditionAbnormal: Volume data: worse blocks";
  assert.deepEqual(bench.events.lines, [first, second, first]);
});
