import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";
import type { ImageGcPolicy } from "../plan/node/image-collection.ts";
import { ImageCollector } from "./image-collector.ts";

const HOUR = seconds(3600);
const DAY = seconds(24 * 3600);
/** The size of each of FakeRuntime's images. */
const IMAGE_BYTES = 1_000_000;
const POLICY: ImageGcPolicy = {
  highThresholdPercent: 85,
  lowThresholdPercent: 80,
  minimumAge: seconds(120),
  maximumAge: seconds(0),
};

const nameOf = (image: string): string => `registry.example/${image}:1`;

class Kept implements KeptRecords {
  readonly records = new Map<string, unknown>();
  writes = 0;

  all(): ReadonlyMap<string, unknown> {
    return this.records;
  }

  put(_area: string, key: string, value: unknown): void {
    this.writes += 1;
    this.records.set(key, value);
  }

  delete(_area: string, key: string): void {
    this.records.delete(key);
  }
}

/** Images on a disk that has room for ten. */
class Shelf implements AsyncDisposable {
  readonly runtime = new FakeRuntime({ clock: new VirtualClock() });
  readonly kept = new Kept();
  readonly desired = new MemoryDesiredStore();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly forgotten: string[] = [];
  pods: AgentPod[] = [];
  pulls: string[] = [];
  pinned: string[] = [];
  isSettled = true;
  capacityBytes = 10 * IMAGE_BYTES;
  /** Other runtimes, asked before. */
  others: FakeRuntime[] = [];
  clock = new VirtualClock();
  readonly #policy: ImageGcPolicy;
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #collector: ImageCollector | undefined;

  constructor(policy: Partial<ImageGcPolicy> = {}) {
    this.#policy = { ...POLICY, ...policy };
  }

  get collector(): ImageCollector {
    if (this.#collector === undefined) throw new Error("it was not started");
    return this.#collector;
  }

  /** Another agent over what the one before has left. @param wallMs what its clock says */
  async start(wallMs = this.clock.wall().getTime()): Promise<void> {
    await this.stop();
    this.#stop = new AbortController();
    this.clock = new VirtualClock(wallMs);
    const adapter = new FakeAdapter(this.runtime);
    const adapters = [...this.others.map((each) => new FakeAdapter(each)), adapter];
    const { desired, events, log, clock, kept } = this;
    this.#collector = new ImageCollector(
      {
        ...{ adapters, desired: desired.desired, events, log, clock, kept },
        filesystems: async () => {
          const usedBytes = this.runtime.images.size * IMAGE_BYTES;
          const availableBytes = this.capacityBytes - usedBytes;
          return [{ adapters: [adapter], capacityBytes: this.capacityBytes, availableBytes }];
        },
        images: {
          isPinned: ({ tags }) => tags.some((tag) => this.pinned.includes(tag)),
          prefetches: [],
          pulls: new Proxy([], { get: (_, key) => Reflect.get(this.#pulls(), key) }),
        },
        access: { forget: (id) => this.forgotten.push(id) },
        pods: () => this.pods,
        isSettled: () => this.isSettled,
      },
      { nodeName: "edge-1", policy: this.#policy },
    );
    this.#running = endOfRun(this.#collector.run(this.#stop.signal));
    await clock.settle();
  }

  #pulls() {
    const about = { runtime: "fake", state: "pulling", sinceMs: 0, progress: undefined, pods: [] } as const;
    return this.pulls.map((image) => ({ ...about, image }));
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  add(...images: readonly string[]): void {
    for (const image of images) this.runtime.addImage(nameOf(image));
  }

  get images(): string[] {
    const tags = [...this.runtime.images.values()].flatMap((each) => each.tags);
    return tags.map((tag) => tag.replace(/^registry\.example\/(.*):1$/, "$1")).sort();
  }

  /** From now on these have a container each; no other image has. */
  use(...images: readonly string[]): void {
    this.pods = images.map((image) => podWithContainer(image, this.runtime.findImage(nameOf(image))));
  }

  want(...images: readonly string[]): void {
    const revision = this.desired.revision("file") + 1;
    this.desired.replace("file", revision, images.map(podOfImage));
  }

  pass(duration: Millis): Promise<void> {
    return this.clock.advance(duration);
  }

  get reported(): string[] {
    return this.events.all.splice(0).map(({ reason, message }) => `${reason}: ${message}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    this.runtime[Symbol.dispose]();
  }
}

function podOfImage(image: string): DesiredPod {
  const pod = podOf({ containers: [{ name: "app", image: nameOf(image) }] }, { name: image });
  return { uid: podUid(image), source: "file", origin: "", pod };
}

function podWithContainer(image: string, info: ImageInfo | undefined): AgentPod {
  const container = {
    ...{ id: image, name: "app", attempt: 0, sandboxId: "s", createdAtMs: 0, hash: "", backoff: millis(0) },
    state: { kind: "created" } as const,
    ...{ image: nameOf(image), imageId: info?.id ?? "", logPath: "" },
  };
  return {
    ...{ desired: podOfImage(image), status: undefined, terminatingSinceMs: undefined, runtime: "fake" },
    ...{ containers: [container], logDirectory: "" },
  };
}

const letters = (text: string): readonly string[] => [...text];

describe("image collection for want of room", () => {
  test("below the threshold nothing goes, at it down to the lower one, what was used longest ago first", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    shelf.add(...letters("abcdefgh"));
    for (const image of letters("badc")) {
      shelf.use(image);
      await shelf.pass(seconds(600));
    }
    assert.equal(shelf.images.length, 8);
    shelf.add("new");
    // A new image may be needed in a moment.
    await shelf.pass(seconds(600));
    assert.deepEqual(shelf.images, ["a", "b", "c", "d", "f", "g", "h", "new"]);
    shelf.add("newer");
    await shelf.pass(seconds(600));
    assert.deepEqual(shelf.images, ["a", "b", "c", "d", "g", "h", "new", "newer"]);
    for (const image of letters("gh")) shelf.runtime.images.delete(shelf.runtime.findImage(nameOf(image))?.id ?? "");
    shelf.pinned = ["new", "newer"].map(nameOf);
    shelf.add(...letters("xyz"));
    shelf.pinned.push(...letters("xyz").map(nameOf));
    await shelf.pass(seconds(600));
    assert.deepEqual(shelf.images, ["a", "c", "d", "new", "newer", "x", "y", "z"]);
    assert.deepEqual(shelf.reported, []);
  });

  test("what is used, about to be, pulled or pinned stays; that it is not enough is told in the kubelet's words", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    shelf.add("used", "wanted", "pulled", "pinned", "v1", "v2", "v3", "v4", "v5", "v6");
    shelf.use("used");
    shelf.want("wanted");
    shelf.pulls = [nameOf("pulled")];
    shelf.pinned = [nameOf("pinned"), ...["v1", "v2", "v3", "v4", "v5"].map(nameOf)];
    await shelf.pass(seconds(370));
    assert.equal(shelf.images.includes("v6"), false);
    assert.equal(shelf.images.length, 9);
    assert.deepEqual(shelf.reported, [
      "FreeDiskSpaceFailed: Failed to garbage collect required amount of images. Attempted to free 2000000 bytes, but only found 0 bytes eligible to free.",
      "FreeDiskSpaceFailed: Failed to garbage collect required amount of images. Attempted to free 2000000 bytes, but only found 1000000 bytes eligible to free.",
      "ImageGCFailed: Failed to garbage collect required amount of images. Attempted to free 2000000 bytes, but only found 1000000 bytes eligible to free.",
    ]);
  });

  test("an image named by its digest, and one of a volume, are wanted too", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    const { digests } = shelf.runtime.addImage(nameOf("digest"));
    shelf.add("volume", ...letters("abcdefgh"));
    const spec = {
      containers: [{ name: "app", image: digests[0] ?? "" }],
      volumes: [{ name: "v", image: { reference: nameOf("volume") } }],
    };
    const pod = podOf(spec, { name: "p" });
    shelf.desired.replace("file", 1, [{ uid: podUid("p"), source: "file", origin: "", pod }]);
    await shelf.collector.deleteUnused(new AbortController().signal);
    assert.deepEqual(shelf.images, ["digest", "volume"]);
  });

  test("a disk that reports nonsense is told, and costs no image", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    shelf.add(...letters("abc"));
    shelf.capacityBytes = 0;
    await shelf.pass(seconds(370));
    assert.deepEqual(shelf.reported, [
      "InvalidDiskCapacity: invalid capacity 0 on image filesystem",
      "InvalidDiskCapacity: invalid capacity 0 on image filesystem",
      "ImageGCFailed: invalid capacity 0 on image filesystem",
    ]);
    assert.equal(shelf.images.length, 3);
  });

  test("an image that cannot be removed does not keep the others", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    shelf.add(...letters("abcdefghij"));
    let refused = 0;
    shelf.runtime.faults.fault = ({ kind }) => {
      if (kind !== "imageRemove" || refused > 0) return undefined;
      refused += 1;
      return { kind: "refuse", error: new PicoletError("failed", "it is stuck") };
    };
    await shelf.pass(seconds(370));
    assert.equal(shelf.images.length, 8);
    assert.equal(refused, 1);
    assert.match(
      shelf.reported.at(-1) ?? "",
      /^ImageGCFailed: wanted to free 2000000 bytes, but freed 2000000 bytes space with errors in image deletion: it is stuck$/,
    );
  });

  test("before everything that runs has been looked at nothing goes", async () => {
    await using shelf = new Shelf();
    await shelf.start();
    shelf.isSettled = false;
    shelf.add(...letters("abcdefghij"));
    await shelf.pass(HOUR);
    assert.equal(await shelf.collector.deleteUnused(new AbortController().signal), 0);
    assert.equal(shelf.images.length, 10);
  });

  test("thresholds of 100 and no age: nobody asks the runtime", async () => {
    await using shelf = new Shelf({ highThresholdPercent: 100 });
    let calls = 0;
    shelf.runtime.faults.fault = () => {
      calls += 1;
      return undefined;
    };
    await shelf.start();
    await shelf.pass(DAY);
    assert.equal(calls, 0);
  });
});

test("all that is unused goes at once under pressure, whatever its age, and says what that freed", async () => {
  await using shelf = new Shelf();
  await shelf.start();
  shelf.add(...letters("abc"), "pinned", "used");
  shelf.pinned = [nameOf("pinned")];
  shelf.use("used");
  assert.equal(await shelf.collector.deleteUnused(new AbortController().signal), 3 * IMAGE_BYTES);
  assert.deepEqual(shelf.images, ["pinned", "used"]);
  assert.equal(shelf.forgotten.length, 3);
});

test("under pressure a runtime that does not answer does not keep what another has to spare", async () => {
  await using shelf = new Shelf();
  const broken = new FakeRuntime({ clock: new VirtualClock() });
  const error = new PicoletError("unavailable", "no space left on device");
  broken.faults.fault = () => ({ kind: "refuse", error });
  shelf.others = [broken];
  await shelf.start();
  shelf.add("unused");
  assert.equal(await shelf.collector.deleteUnused(new AbortController().signal), IMAGE_BYTES);
  assert.deepEqual(shelf.images, []);
  shelf.runtime.faults.fault = broken.faults.fault;
  await assert.rejects(shelf.collector.deleteUnused(new AbortController().signal), { code: "unavailable" });
});

describe("image collection by age", () => {
  const WEEK = millis(7 * DAY);

  test("what was not used for longer goes, whatever room there is; also across restarts", async () => {
    await using shelf = new Shelf({ maximumAge: WEEK });
    await shelf.start();
    shelf.add("used", "idle", "never");
    shelf.use("used", "idle");
    await shelf.pass(DAY);
    shelf.use("used");
    await shelf.pass(millis(3 * DAY));
    await shelf.start();
    await shelf.pass(millis(3.1 * DAY));
    assert.deepEqual(shelf.images, ["idle", "used"]);
    await shelf.pass(DAY);
    assert.deepEqual(shelf.images, ["used"]);
  });

  test("few writes: of an image in use one a day, of one that is not none", async () => {
    await using shelf = new Shelf({ maximumAge: WEEK });
    await shelf.start();
    shelf.add("used", "idle");
    shelf.use("used");
    await shelf.pass(millis(5 * DAY));
    assert.ok(shelf.kept.writes <= 8, `${shelf.kept.writes} writes in five days`);
  });

  test("a clock that wakes up in 1970 and is set right later ages nothing", async () => {
    await using shelf = new Shelf({ maximumAge: WEEK });
    const now = shelf.clock.wall().getTime();
    await shelf.start();
    shelf.add("old", "fresh");
    shelf.use("old", "fresh");
    await shelf.pass(DAY);
    shelf.use();
    await shelf.pass(HOUR);
    await shelf.start(0);
    shelf.add("pulled in 1970");
    await shelf.pass(HOUR);
    shelf.clock.setWall(now + 2 * DAY);
    await shelf.pass(millis(2 * DAY));
    assert.equal(shelf.images.length, 3);
    await shelf.pass(millis(5 * DAY));
    assert.deepEqual(shelf.images, []);
  });

  test("a clock that believes it is 2038 has a day to be set right", async () => {
    await using shelf = new Shelf({ maximumAge: WEEK });
    const now = shelf.clock.wall().getTime();
    await shelf.start();
    shelf.add(...letters("abc"));
    await shelf.pass(HOUR);
    await shelf.start(Date.parse("2038-01-01T00:00:00Z"));
    await shelf.pass(millis(DAY - HOUR));
    assert.equal(shelf.images.length, 3);
    shelf.clock.setWall(now + 2 * DAY);
    await shelf.pass(millis(2 * DAY));
    assert.equal(shelf.images.length, 3);
  });
});
