/** Garbage collection of images on a real containerd: what the runtime itself says decides what stays. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { arch } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { ImageCollector } from "@picolet/agent/images/image-collector.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { Bench, desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE, PAUSE_IMAGE } from "../support/containerd/test-images.ts";
import { makeTar } from "../support/unit/images/tar.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { MemoryDesiredStore } from "../support/unit/store/memory-desired-store.ts";

const ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };
const sha256 = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("hex");

const tinyImage = (index: number): string => `localhost/tiny-${index}:1`;

/** An archive of `docker save` with images that differ in the one small file that each has. @returns their names */
function writeTinyImages(path: string, count: number): readonly string[] {
  const files: Record<string, string | Uint8Array> = {};
  const manifest = Array.from({ length: count }, (_, index) => {
    const layer = makeTar({ content: `image ${index}\n` });
    const layerName = `${index}/layer.tar`;
    const config = JSON.stringify({
      architecture: ARCHITECTURE[arch()] ?? arch(),
      os: "linux",
      config: { Cmd: ["/content"] },
      rootfs: { type: "layers", diff_ids: [`sha256:${sha256(layer)}`] },
    });
    const configName = `${sha256(config)}.json`;
    files[layerName] = layer;
    files[configName] = config;
    return { Config: configName, RepoTags: [tinyImage(index)], Layers: [layerName] };
  });
  writeFileSync(path, makeTar({ "manifest.json": JSON.stringify(manifest), ...files }));
  return manifest.flatMap(({ RepoTags }) => RepoTags);
}

const skip = containerdMissing() ?? false;
const { signal } = new AbortController();
const IMAGES = Number(process.env.PICOLET_TINY_IMAGES ?? 50);
const PODS = 5;

const appImage = (index: number): string => `localhost/app-${index}:1`;

describe("image collection on containerd", { skip }, () => {
  const folder = new TempFolder();
  const log = new RecordedLog();
  const events = new RecordedEvents();
  let containerd: Containerd;
  let fixture: CriFixture;
  let store: Store;
  let collector: ImageCollector;
  /** The usage of the image file system that the collector reads. */
  let usedPercent = 0;

  before(async () => {
    containerd = await Containerd.start();
    fixture = new CriFixture(containerd);
    const archive = join(folder.path, "tiny.tar");
    writeTinyImages(archive, IMAGES);
    await fixture.adapter.images.import(archive, undefined, signal);
    for (let index = 0; index < PODS; index += 1) {
      const files = { "bin/sh": "/bin/busybox" };
      const recipe = { name: appImage(index), files, environment: [`INDEX=${index}`] };
      await fixture.adapter.images.import(buildImageArchive(recipe, folder.path), undefined, signal);
    }
    store = new Store({ clock: systemClock, log }, { path: ":memory:" });
    const { adapter } = fixture;
    collector = new ImageCollector(
      {
        adapters: [adapter],
        filesystems: async () => [{ adapters: [adapter], capacityBytes: 100, availableBytes: 100 - usedPercent }],
        images: { isPinned: ({ tags }) => tags.includes(tinyImage(7)), pulls: [], prefetches: [] },
        access: { forget: () => undefined },
        pods: () => [],
        desired: new MemoryDesiredStore().desired,
        isSettled: () => true,
        kept: store.kept,
        ...{ events, clock: systemClock, log },
      },
      {
        nodeName: "edge-1",
        policy: {
          ...{ highThresholdPercent: 85, lowThresholdPercent: 80 },
          ...{ minimumAge: millis(0), maximumAge: millis(0) },
        },
      },
    );
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
    await store?.[Symbol.asyncDispose]();
    folder[Symbol.dispose]();
  });

  test(`${IMAGES} images go, and every pod runs on; also one that ended keeps its image, and so do sandboxes`, async () => {
    const bench = new Bench(fixture, signal);
    const script = "while :; do sleep 1000; done";
    const started = [];
    for (let index = 0; index < PODS; index += 1) {
      const isShort = index === 0;
      const program = { image: appImage(index), command: ["/bin/sh", "-c", isShort ? "exit 0" : script], args: [] };
      const pod = desiredPod(program, { name: `app-${index}` });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, program);
      if (isShort) await bench.exited(pod, id);
      started.push({ pod, id, isShort });
    }
    const named = async (): Promise<string[]> =>
      (await fixture.adapter.images.list(signal)).flatMap(({ tags }) => tags).sort();
    assert.equal((await named()).length, IMAGES + PODS + 2);
    usedPercent = 84;
    await collector.collect(millis(0), signal);
    assert.equal((await named()).length, IMAGES + PODS + 2);
    const freed = await collector.deleteUnused(signal);
    assert.ok(freed > IMAGES * 100, `${freed} bytes`);
    const kept = [PAUSE_IMAGE, tinyImage(7), ...Array.from({ length: PODS }, (_, index) => appImage(index))];
    assert.deepEqual(await named(), kept.sort());
    for (const { pod, id, isShort } of started) {
      const { state } = await bench.container(pod, id);
      assert.equal(state.kind, isShort ? "exited" : "running");
    }
    assert.deepEqual(events.all, []);
    // A running container can be started again.
    const [again] = started.slice(1);
    assert.ok(again !== undefined);
    const program = { image: appImage(1), command: ["/bin/sh", "-c", script], args: [] };
    await bench.stop(again.pod, again.id, millis(0));
    await bench.start(again.pod, program, { attempt: 1 });
  });

  test("a full disk is relieved until there is room; the busybox image that nobody uses came back and goes", async () => {
    const archive = join(folder.path, "few.tar");
    const names = writeTinyImages(archive, 3);
    await fixture.adapter.images.import(archive, undefined, signal);
    assert.ok(await fixture.adapter.images.status(names[0] ?? "", signal));
    assert.equal(await fixture.adapter.images.status(BUSYBOX_IMAGE, signal), undefined);
    usedPercent = 90;
    await collector.collect(millis(0), signal);
    const left = (await fixture.adapter.images.list(signal)).flatMap(({ tags }) => tags);
    // Ten bytes were asked for: one image is enough.
    assert.equal(left.filter((tag) => names.includes(tag)).length, 2);
    assert.deepEqual(events.all, []);
  });
});
