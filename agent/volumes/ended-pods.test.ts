import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PodView } from "../plan/pod-view.ts";
import { EndedPods } from "./ended-pods.ts";

type Worker = PodView["worker"]["kind"];

function viewOf(uid: string, kind: Worker, sandbox: "ready" | "notReady", run: "running" | "exited"): PodView {
  const pod = desired(podOf(), uid);
  const observed = { sandboxes: [{ state: sandbox }], containers: [{ state: { kind: run } }] };
  return {
    desired: pod,
    worker: { kind } as PodView["worker"],
    observed: observed as unknown as ObservedPod,
  } as PodView;
}

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly released: string[] = [];
  views: readonly PodView[];
  /** Pods whose release fails, and those whose release never ends. */
  readonly failing = new Set<string>();
  readonly hanging = new Set<string>();
  readonly #changes = new WatchSource(0);
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor(views: readonly PodView[]) {
    this.views = views;
    const release = async ({ uid }: { readonly uid: string }, signal: AbortSignal): Promise<void> => {
      this.released.push(uid);
      if (this.failing.has(uid)) throw new Error("busy");
      if (this.hanging.has(uid)) await this.clock.sleep(seconds(3600), signal);
    };
    const { clock, log } = this;
    const ended = new EndedPods({ views: () => this.views, changes: this.#changes, release, clock, log });
    this.#running = endOfRun(ended.run(this.#life.signal));
  }

  async change(...views: readonly PodView[]): Promise<void> {
    await this.clock.settle();
    this.views = views;
    this.#changes.set(this.#changes.current + 1);
    await this.clock.settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
  }
}

test("volumes go once, when nothing of an ended pod runs any more", async () => {
  await using bench = new Bench([
    viewOf("a", "active", "ready", "running"),
    viewOf("b", "finished", "ready", "exited"),
  ]);
  await bench.clock.settle();
  assert.deepEqual(bench.released, []);
  await bench.change(viewOf("a", "finished", "notReady", "running"), viewOf("b", "finished", "notReady", "exited"));
  assert.deepEqual(bench.released, ["b"]);
  await bench.change(viewOf("a", "finished", "notReady", "exited"), viewOf("b", "finished", "notReady", "exited"));
  assert.deepEqual(bench.released, ["b", "a"]);
  await bench.change(...bench.views);
  assert.deepEqual(bench.released, ["b", "a"]);
});

test("a pod that is brought back and ends again is seen to again; one that is active never is", async () => {
  await using bench = new Bench([viewOf("a", "finished", "notReady", "exited")]);
  await bench.change(viewOf("a", "active", "notReady", "exited"));
  await bench.change(viewOf("a", "finished", "notReady", "exited"));
  assert.deepEqual(bench.released, ["a", "a"]);
});

test("what cannot be released is logged once, and tried again while the pod is over", async () => {
  await using bench = new Bench([]);
  bench.failing.add("a").add("b");
  await bench.change(viewOf("a", "finished", "notReady", "exited"), viewOf("b", "finished", "notReady", "exited"));
  assert.deepEqual(bench.released, ["a", "b"]);
  await bench.clock.advance(seconds(1));
  assert.deepEqual(bench.released, ["a", "b", "a", "b"]);
  bench.failing.delete("a");
  await bench.change(viewOf("a", "finished", "notReady", "exited"), viewOf("b", "active", "ready", "running"));
  await bench.clock.advance(seconds(3600));
  assert.deepEqual(bench.released, ["a", "b", "a", "b", "a"]);
  assert.deepEqual(bench.log.problems, Array(2).fill("cannot release what an ended pod holds"));
});

test("a release that hangs delays no other pod's", async () => {
  await using bench = new Bench([]);
  bench.hanging.add("a");
  await bench.change(viewOf("a", "finished", "notReady", "exited"), viewOf("b", "finished", "notReady", "exited"));
  await bench.change(...bench.views, viewOf("c", "finished", "notReady", "exited"));
  assert.deepEqual(bench.released, ["a", "b", "c"]);
});
