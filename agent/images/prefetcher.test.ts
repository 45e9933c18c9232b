import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ImageInfo, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired as desiredPod, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { PREFETCH_ANNOTATION, Prefetcher } from "./prefetcher.ts";
import { ImagePuller, podReference } from "./pulls/image-puller.ts";

interface Pull {
  readonly runtime: string;
  readonly reference: string;
  readonly signal: AbortSignal;
  finish(): void;
  fail(): void;
}

/** A runtime whose pulls end when the test says so; the node, its pods and their annotations. */
class Bench {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly store = new MemoryDesiredStore();
  readonly nodeChanged = new WatchSource<unknown>(0);
  readonly present = new Set<string>();
  readonly pulls: Pull[] = [];
  readonly random = { next: () => 0 };
  readonly adapter: RuntimeAdapter;
  readonly components: RuntimeAdapter;
  readonly puller: ImagePuller;
  readonly prefetcher: Prefetcher;
  #annotation: string | undefined;
  #revision = 0;

  constructor(t: TestContext) {
    const info = (reference: string): ImageInfo => ({
      id: reference,
      tags: [],
      digests: [],
      sizeBytes: 1,
      pinned: false,
    });
    const runtime = (name: string, present: Set<string>): RuntimeAdapter => {
      const images = {
        status: async (reference: string) => (present.has(reference) ? info(reference) : undefined),
        pull: (reference: string, _: unknown, signal: AbortSignal) =>
          new Promise<ImageInfo>((resolve, reject) => {
            signal.addEventListener("abort", () => reject(new PicoletError("cancelled", "pull")));
            const finish = (): void => {
              present.add(reference);
              resolve(info(reference));
            };
            const fail = (): void => reject(new PicoletError("failed", "no route"));
            this.pulls.push({ runtime: name, reference, signal, finish, fail });
          }),
      };
      return { name, images } as unknown as RuntimeAdapter;
    };
    this.adapter = runtime("cri", this.present);
    this.components = runtime("wasm", new Set());
    this.puller = new ImagePuller(this, { serializeImagePulls: true });
    this.prefetcher = new Prefetcher(
      {
        puller: this.puller,
        router: { adapters: [this.adapter, this.components], adapterFor: () => this.adapter },
        desired: this.store.desired,
        nodeChanged: this.nodeChanged,
        nodeObject: () => ({ metadata: { annotations: { [PREFETCH_ANNOTATION]: this.#annotation } } }),
        clock: this.clock,
        random: this.random,
        log: this.log,
        events: this.events,
      },
      { nodeName: "edge-1" },
    );
    const stop = new AbortController();
    const running = endOfRun(this.prefetcher.run(stop.signal));
    t.after(async () => {
      stop.abort();
      await running;
    });
  }

  async annotateNode(text: string | undefined): Promise<void> {
    this.#annotation = text;
    this.nodeChanged.set(text);
    await this.clock.advance(seconds(1));
  }

  async want(...pods: readonly DesiredPod[]): Promise<void> {
    this.#revision += 1;
    this.store.replace("file", this.#revision, pods);
    await this.clock.advance(seconds(1));
  }

  get states(): string[] {
    return this.prefetcher.prefetches.map(
      ({ image, state, message }) => `${image} ${state}${message === "" ? "" : `: ${message}`}`,
    );
  }
}

const annotated = (name: string, text: string): DesiredPod =>
  desiredPod(podOf({}, { name, annotations: { [PREFETCH_ANNOTATION]: text } }), name);

test("one at a time, what is here already is left alone, and what is wanted no more is given up", async (t) => {
  const bench = new Bench(t);
  bench.present.add("a.example/here:1");
  await bench.annotateNode("a.example/here:1 a.example/one:1,\n a.example/two:1");
  assert.deepEqual(bench.states, ["a.example/here:1 present", "a.example/one:1 pulling", "a.example/two:1 waiting"]);
  assert.equal(bench.pulls.length, 1);
  await bench.annotateNode("a.example/two:1");
  assert.equal(bench.pulls[0]?.signal.aborted, true);
  assert.equal(bench.pulls[1]?.reference, "a.example/two:1");
  bench.pulls[1]?.finish();
  await bench.clock.settle();
  assert.deepEqual(bench.states, ["a.example/two:1 present"]);
  await bench.annotateNode(undefined);
  assert.deepEqual(bench.states, []);
});

test("an image is for the runtime that it names, by node and pod alike, and one that is not there is told once", async (t) => {
  const bench = new Bench(t);
  await bench.annotateNode("a.example/one:1, wasm=a.example/one:1 kata=a.example/two:1");
  await bench.want(annotated("web", "wasm=a.example/one:1 cri=a.example/one:1"));
  const shown = () =>
    bench.prefetcher.prefetches.map(({ image, runtime, state, wantedBy }) => [image, runtime, state, wantedBy.length]);
  const unknown = ["a.example/two:1", "kata", "failed", 1];
  for (const at of [0, 1]) {
    bench.pulls[at]?.finish();
    await bench.clock.settle();
  }
  assert.deepEqual(bench.pulls.map(({ runtime }) => runtime).sort(), ["cri", "wasm"]);
  assert.deepEqual(shown().sort(), [
    ["a.example/one:1", "cri", "present", 2],
    ["a.example/one:1", "wasm", "present", 2],
    unknown,
  ]);
  await bench.annotateNode("kata=a.example/two:1");
  const told = bench.events.all.filter(({ message }) => message.includes("kata"));
  assert.deepEqual(
    told.map(({ regarding, message }) => [regarding.kind, message]),
    [["Node", 'Failed to prefetch image "a.example/two:1": this node has no runtime kata, only cri, wasm']],
  );
});

test("a failure is tried again, each time later, and as a real pull", async (t) => {
  const bench = new Bench(t);
  await bench.annotateNode("a.example/one:1");
  for (const wait of [12, 24, 48, 96, 192, 360, 360]) {
    const failedAt = bench.clock.monotonic();
    bench.pulls.at(-1)?.fail();
    await bench.clock.settle();
    assert.deepEqual(bench.states, ["a.example/one:1 failed: no route"]);
    const before = bench.pulls.length;
    await bench.clock.advance(seconds(400), () => bench.pulls.length > before);
    assert.equal(bench.clock.monotonic() - failedAt, wait * 1000);
  }
  assert.equal(
    bench.events.all.some(({ reason }) => reason === "BackOff"),
    false,
    "never within the image's back-off",
  );
  bench.pulls.at(-1)?.finish();
  await bench.clock.settle();
  assert.deepEqual(bench.states, ["a.example/one:1 present"]);
});

test("what is no name is refused once, until the annotation is another", async (t) => {
  const bench = new Bench(t);
  await bench.annotateNode("No-Name");
  assert.match(bench.states.join(), /^No-Name failed: Failed to apply default image tag/);
  const told = bench.events.all.length;
  await bench.clock.advance(seconds(3600));
  assert.equal(bench.events.all.length, told);
  await bench.annotateNode("a.example/name:1");
  assert.deepEqual(bench.states, ["a.example/name:1 pulling"]);
});

test("a pod's own pull waits for no prefetch", async (t) => {
  const bench = new Bench(t);
  await bench.annotateNode("a.example/large:1");
  const pod = desiredPod(podOf());
  const request = { image: "a.example/app:1", policy: "IfNotPresent", adapter: bench.adapter, lane: "pods" } as const;
  const owner = { namespace: "default", secrets: [], pod };
  const ours = bench.puller.provide({ ...request, owner, regarding: podReference(pod) }, new AbortController().signal);
  await bench.clock.settle();
  assert.deepEqual(
    bench.pulls.map(({ reference }) => reference),
    ["a.example/large:1", "a.example/app:1"],
  );
  bench.pulls[1]?.finish();
  await ours;
});

test("a pod and the node that want the same share one, by the pod's credentials; beyond 64 nothing is fetched", async (t) => {
  const bench = new Bench(t);
  await bench.want(annotated("web", "a.example/one:1"));
  await bench.annotateNode("a.example/one:1");
  assert.deepEqual(bench.prefetcher.prefetches[0]?.wantedBy, ["pod/default/web", "node/edge-1"]);
  assert.equal(bench.pulls.length, 1);
  await bench.want();
  assert.deepEqual(bench.prefetcher.prefetches[0]?.wantedBy, ["node/edge-1"]);
  await bench.annotateNode(Array.from({ length: 70 }, (_, index) => `a.example/many:${index}`).join(","));
  assert.equal(bench.states.length, 64);
  assert.deepEqual(bench.log.problems, ["annotations name more images than a node prefetches"]);
});
