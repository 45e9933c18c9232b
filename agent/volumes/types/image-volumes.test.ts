import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { DesiredPod, ImageMounts, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents } from "@picolet/test/support/unit/ports/recorders.ts";
import type { ImageManager } from "../../core/pods/pod-ports.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { ImageVolumes } from "./image-volumes.ts";

const NEVER = new AbortController().signal;

const WASM = { name: "wasm" } as unknown as RuntimeAdapter;

class Bench implements Disposable {
  readonly folder = new TempFolder();
  readonly paths = new PodPaths({ rootDir: this.folder.path, podLogsDir: this.folder.at("logs") });
  readonly events = new RecordedEvents();
  readonly calls: string[] = [];
  how: "mounted" | "byRuntime" = "mounted";
  failure: Error | undefined;
  mounting: Promise<void> = Promise.resolve();
  readonly #begun = Promise.withResolvers<void>();
  /** The first mount is under way. */
  readonly begun = this.#begun.promise;
  readonly adapter: RuntimeAdapter;
  readonly volumes: ImageVolumes;

  constructor() {
    const imageMounts: ImageMounts = {
      mount: async ({ id }, _, forOthers) => {
        this.#begun.resolve();
        await this.mounting;
        if (this.failure !== undefined) throw this.failure;
        this.calls.push(`mount ${id}${forOthers ? " for others" : ""}`);
        return this.how;
      },
      unmount: async (target) => {
        this.calls.push(`unmount ${target.slice(this.folder.path.length)}`);
      },
    };
    const images: ImageManager = {
      ensure: async (_, { image, name, imagePullPolicy }, adapter) => {
        const by = adapter === WASM ? " of components" : "";
        this.calls.push(`ensure ${name} ${image} ${imagePullPolicy}${by}`);
        return { requested: image, id: `id-of-${image}` };
      },
    };
    this.adapter = { name: "cri", imageMounts } as unknown as RuntimeAdapter;
    const { paths, events } = this;
    this.volumes = new ImageVolumes({ paths, images, events, runtimes: [WASM, this.adapter] });
  }

  ensure(pod: DesiredPod, adapter = this.adapter): Promise<unknown> {
    return this.volumes.ensure(pod, firstContainer(pod), adapter, NEVER);
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

const pod = desired(
  podOf({
    volumes: [
      { name: "used", image: { reference: "files:1", pullPolicy: "Never" } },
      { name: "of-another", image: { reference: "others:1" } },
    ],
    containers: [
      { name: "app", image: "app:1", volumeMounts: [{ name: "used", mountPath: "/used" }] },
      { name: "other", image: "app:1", volumeMounts: [{ name: "of-another", mountPath: "/x" }] },
    ],
  }),
  "uid-1",
);

test("a container waits for the images of its own volumes, by their policy, and then for its own", async () => {
  using bench = new Bench();
  await bench.ensure(pod);
  assert.deepEqual(bench.calls, ["ensure used files:1 Never", "mount id-of-files:1", "ensure app app:1 IfNotPresent"]);
  assert.ok(existsSync(bench.paths.volume(pod.uid, "image", "used")));
  assert.equal(bench.volumes.byRuntime(pod.uid, "used"), undefined);
  bench.calls.length = 0;
  await bench.volumes.forget(pod.uid, NEVER);
  assert.deepEqual(bench.calls, ["unmount /pods/uid-1/volumes/kubernetes.io~image/used"]);
});

test("an image that the runtime mounts itself is named to it", async () => {
  using bench = new Bench();
  bench.how = "byRuntime";
  await bench.ensure(pod);
  assert.deepEqual(bench.volumes.byRuntime(pod.uid, "used"), { requested: "files:1", id: "id-of-files:1" });
});

test("a pod that goes while an image is being mounted waits for it, and gets nothing mounted any more", async () => {
  using bench = new Bench();
  const { promise, resolve } = Promise.withResolvers<void>();
  bench.mounting = promise;
  const twice = [bench.ensure(pod), bench.ensure(pod)];
  await bench.begun;
  const forgotten = bench.volumes.forget(pod.uid, NEVER);
  // Time enough to read the disk, if it did not wait.
  for (let turns = 0; turns < 50; turns += 1) await turn();
  resolve();
  const outcomes = await Promise.allSettled(twice);
  await forgotten;
  assert.deepEqual(
    outcomes.map((each) => each.status === "rejected" && isCancelled(each.reason)),
    [false, true],
  );
  const last = ["mount id-of-files:1", "unmount /pods/uid-1/volumes/kubernetes.io~image/used"];
  assert.deepEqual(
    bench.calls.filter((call) => !call.startsWith("ensure")),
    last,
  );
});

test("an image that cannot be mounted is an event, and the reason of the container", async () => {
  using bench = new Bench();
  bench.failure = new Error("no space");
  await assert.rejects(bench.ensure(pod), (error) => {
    assert.ok(isPicoletError(error, "failed") && error.retryable);
    assert.equal(error.reason, "CreateContainerError");
    return true;
  });
  const said = 'failed to mount image "files:1" for volume "used": ';
  assert.deepEqual(bench.events.lines, [`Warning Failed: Error: ${said}no space`]);
});

test("a pod of components gets images as volumes from the runtime that has them, and is told where there is none", async () => {
  using bench = new Bench();
  await bench.ensure(pod, WASM);
  assert.deepEqual(bench.calls, [
    ...["ensure used files:1 Never", "mount id-of-files:1 for others"],
    "ensure app app:1 IfNotPresent of components",
  ]);
  const { paths, events } = bench;
  const alone = new ImageVolumes({ paths, events, images: { ensure: () => assert.fail("asked") }, runtimes: [WASM] });
  await assert.rejects(alone.ensure(pod, firstContainer(pod), WASM, NEVER), { reason: "CreateContainerError" });
  const said = 'failed to mount image "files:1" for volume "used": this node has no runtime that can mount images';
  assert.deepEqual(events.lines, [`Warning Failed: Error: ${said}`]);
});

test("of a pod that nobody knows what is on disk is unmounted", async () => {
  using bench = new Bench();
  mkdirSync(bench.paths.volume("gone", "image", "left"), { recursive: true });
  await bench.volumes.release("gone", NEVER);
  await bench.volumes.release("never", NEVER);
  assert.deepEqual(bench.calls, ["unmount /pods/gone/volumes/kubernetes.io~image/left"]);
});
