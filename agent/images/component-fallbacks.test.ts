import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ImageInfo, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { usagePod } from "@picolet/test/support/unit/pods/usage-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { UNDER_PRESSURE_ANNOTATION } from "../core/pods/pod-runtime.ts";
import { ComponentFallbacks } from "./component-fallbacks.ts";
import type { ImageRequest } from "./pulls/image-puller.ts";

const CHOSEN = { kind: "container", reason: "Preferred", message: "" } as const;

function desiredOf(
  name: string,
  { image = `${name}:1`, ...more }: { image?: string; restartPolicy?: "Never" } = {},
): DesiredPod {
  const pod = podOf({ containers: [{ name: "app", image }], ...more }, { name });
  const metadata = { ...pod.metadata, annotations: { [UNDER_PRESSURE_ANNOTATION]: "component" } };
  return { uid: podUid(name), source: "api", origin: "", pod: { ...pod, metadata }, runtime: CHOSEN };
}

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly pods = new Map<PodUid, DesiredPod>();
  readonly changes = new WatchSource(0);
  readonly conditions = new WatchSource([{ type: "MemoryPressure", status: "False" }]);
  /** The pulls and checks, in order. */
  readonly done: string[] = [];
  hasRoom = true;
  onPull: (image: string) => void = () => undefined;
  onCheck: (image: string) => void = () => undefined;
  readonly standIns: ComponentFallbacks;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor() {
    const { clock, events, changes, conditions } = this;
    const adapter = {
      name: "wasm",
      refusal: ({ spec }) => (spec.hostPID === true ? "hostPID" : undefined),
      check: async (_pod, { image }) => {
        this.done.push(`check ${image.requested} ${image.id}`);
        this.onCheck(image.requested);
      },
    } as Partial<RuntimeAdapter> as RuntimeAdapter;
    this.standIns = new ComponentFallbacks({
      ...{ adapter, clock, events, changes, conditions, log: new RecordedLog(), random: seededRandom(1) },
      puller: {
        provide: async ({ image, policy, lane }: ImageRequest) => {
          this.done.push(`pull ${image} ${policy} ${lane}`);
          this.onPull(image);
          return { id: `sha256:${image}` } as ImageInfo;
        },
      },
      pods: () => [...this.pods.values()].map((desired) => ({ ...usagePod(desired.uid, ["app"]), desired })),
      desired: (uid) => this.pods.get(uid),
      hasRoom: () => this.hasRoom,
    });
    this.#running = endOfRun(this.standIns.run(this.#stop.signal));
  }

  async set(...all: readonly DesiredPod[]): Promise<void> {
    for (const each of all) this.pods.set(each.uid, each);
    this.changes.set(this.changes.current + 1);
    await this.clock.settle();
  }

  async pass(seconds: number): Promise<readonly string[]> {
    await this.clock.advance(millis(seconds * 1000));
    return this.done.splice(0);
  }

  canSwitch(name: string): boolean {
    return this.standIns.canSwitch(podUid(name));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

test("pods are made ready one after the other, after a while, once", async () => {
  await using bench = new Bench();
  await bench.set(desiredOf("a"), desiredOf("b"));
  assert.deepEqual(await bench.pass(4), [], "what starts comes first");
  assert.deepEqual(await bench.pass(2), ["pull a:1 IfNotPresent prefetch", "check a:1 sha256:a:1"]);
  assert.deepEqual([bench.canSwitch("a"), bench.canSwitch("b")], [true, false]);
  assert.deepEqual(await bench.pass(5), ["pull b:1 IfNotPresent prefetch", "check b:1 sha256:b:1"]);
  assert.equal(bench.canSwitch("b"), true);
  await bench.set();
  assert.deepEqual(await bench.pass(3600), []);
});

test("nothing is made ready while memory is short, or would be by that", async () => {
  await using bench = new Bench();
  bench.hasRoom = false;
  await bench.set(desiredOf("z"));
  assert.deepEqual(await bench.pass(600), []);
  bench.hasRoom = true;
  assert.equal((await bench.pass(61)).length, 2);
  bench.conditions.set([{ type: "MemoryPressure", status: "True" }]);
  await bench.set(desiredOf("a"));
  assert.deepEqual(await bench.pass(600), []);
  bench.conditions.set([{ type: "MemoryPressure", status: "False" }]);
  assert.equal((await bench.pass(10)).length, 2);
});

test("a pod with another image, or that runs as components by now, is not ready", async () => {
  await using bench = new Bench();
  await bench.set(desiredOf("a"));
  await bench.pass(10);
  assert.equal(bench.canSwitch("a"), true);
  await bench.set(desiredOf("a", { image: "a:2" }));
  assert.equal(bench.canSwitch("a"), false);
  assert.deepEqual(await bench.pass(10), ["pull a:2 IfNotPresent prefetch", "check a:2 sha256:a:2"]);
  assert.equal(bench.canSwitch("a"), true);
  await bench.set({ ...desiredOf("a", { image: "a:2" }), runtime: { ...CHOSEN, kind: "component" } });
  assert.equal(bench.canSwitch("a"), false);
});

test("a registry that is away is asked again, later and later; others do not wait for it", async () => {
  await using bench = new Bench();
  bench.onPull = (image) => {
    if (image === "a:1") throw new PicoletError("unavailable", "cannot reach it", { retryable: true });
  };
  await bench.set(desiredOf("a"), desiredOf("b"));
  await bench.pass(15);
  assert.deepEqual([bench.canSwitch("a"), bench.canSwitch("b")], [false, true]);
  assert.ok(
    bench.events.lines.includes("Warning ComponentsNotReady: Cannot be switched to components: cannot reach it"),
  );
  const tries = (await bench.pass(24 * 3600)).length;
  assert.ok(tries > 20 && tries < 40, `${tries} in a day`);
  bench.onPull = () => undefined;
  await bench.pass(5000);
  assert.equal(bench.canSwitch("a"), true);
});

test("what could never start as a component is said once and left, until the pod is another one", async () => {
  await using bench = new Bench();
  bench.onCheck = () => {
    throw new PicoletError("invalid", "it imports what is not granted");
  };
  await bench.set(desiredOf("a"), desiredOf("never", { restartPolicy: "Never" }));
  assert.deepEqual(await bench.pass(60), ["pull a:1 IfNotPresent prefetch", "check a:1 sha256:a:1"]);
  await bench.set();
  assert.deepEqual(await bench.pass(24 * 3600), []);
  assert.deepEqual(bench.events.lines.toSorted(), [
    "Warning ComponentsNotReady: Cannot be switched to components: it imports what is not granted",
    "Warning ComponentsNotReady: Cannot be switched to components: its restartPolicy is not Always: it would start again",
  ]);
  bench.onCheck = () => undefined;
  await bench.set(desiredOf("a", { image: "a:2" }));
  await bench.pass(10);
  assert.equal(bench.canSwitch("a"), true);
});
