import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { PullPolicy } from "@picolet/protocol/pod/pod.ts";
import { millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ImageInfo,
  PullProgress,
  ResolvedImage,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ImagePuller, type ImagePullerInit } from "./image-puller.ts";
import type { ImageSignatures } from "./image-signatures.ts";

const noJitter: Random = { next: () => 0 };
const NEVER = new AbortController().signal;
const infoOf = (reference: string): ImageInfo => ({
  id: `sha256:${reference}`,
  tags: [reference],
  digests: [],
  sizeBytes: 4_268_341,
  pinned: false,
});

/** How far a pull is, in bytes of a mebibyte. */
const halfway = (bytes: number): PullProgress => ({ bytes, totalBytes: 1_048_576, isTransferring: true });

interface Pull {
  readonly reference: string;
  readonly signal: AbortSignal;
  finish(): void;
  fail(error: Error): void;
}

/** A registry whose pulls end when the test says so. */
class Registry {
  readonly present = new Set<string>();
  readonly pulls: Pull[] = [];
  statusCalls = 0;
  statusError: Error | undefined;
  readonly progress = new Map<string, PullProgress>();
  readonly adapter: RuntimeAdapter;

  constructor(name = "cri") {
    const images = {
      status: async (reference: string): Promise<ImageInfo | undefined> => {
        this.statusCalls += 1;
        if (this.statusError !== undefined) throw this.statusError;
        return this.present.has(reference) ? infoOf(reference) : undefined;
      },
      progress: async (reference: string): Promise<PullProgress | undefined> => this.progress.get(reference),
      pull: (reference: string, _: unknown, signal: AbortSignal): Promise<ImageInfo> =>
        new Promise((resolve, reject) => {
          signal.addEventListener("abort", () => reject(new PicoletError("cancelled", "pull")));
          const finish = (): void => {
            this.present.add(reference);
            resolve(infoOf(reference));
          };
          this.pulls.push({ reference, signal, finish, fail: reject });
        }),
    };
    this.adapter = { name, images } as unknown as RuntimeAdapter;
  }

  pull(index: number): Pull {
    const pull = this.pulls[index];
    assert.ok(pull, `pull ${index} has not begun`);
    return pull;
  }
}

class Bench {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly registry = new Registry();
  readonly puller: ImagePuller;

  constructor(init: Partial<ImagePullerInit> = {}) {
    this.puller = new ImagePuller(
      { events: this.events, clock: this.clock, random: noJitter },
      { serializeImagePulls: true, maxParallelImagePulls: undefined, ...init },
    );
  }

  ensure(pod: DesiredPod, signal = NEVER, registry = this.registry): Promise<ResolvedImage> {
    return this.puller.ensure(pod, firstContainer(pod), registry.adapter, signal);
  }

  /** The reason and message it fails with. */
  async failure(pod: DesiredPod, signal = NEVER): Promise<string> {
    return failureOf(this.ensure(pod, signal));
  }
}

async function failureOf(result: Promise<unknown>): Promise<string> {
  const error = await result.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(isPicoletError(error), "it did not fail");
  return `${error.reason ?? error.code}: ${error.message}`;
}

const wanting = (image: string, imagePullPolicy: PullPolicy = "IfNotPresent", uid?: string): DesiredPod =>
  desired(podOf({ containers: [{ name: "app", image, imagePullPolicy }] }), uid);

test("an image that is there costs one status call and says so as the kubelet does", async () => {
  const bench = new Bench();
  bench.registry.present.add("example/app:1");
  const image = await bench.ensure(wanting("example/app:1"));
  assert.deepEqual(image, { requested: "example/app:1", id: "sha256:example/app:1" });
  assert.equal(bench.registry.statusCalls, 1);
  assert.equal(bench.registry.pulls.length, 0);
  assert.deepEqual(bench.events.lines, [
    'Normal Pulled spec.containers{app}: Container image "example/app:1" already present on machine',
  ]);
});

test("an image that is not there is pulled with the tag that is meant, and its times and size are told", async () => {
  const bench = new Bench();
  const done = bench.ensure(wanting("busybox"));
  await bench.clock.advance(millis(1234));
  bench.registry.pull(0).finish();
  assert.deepEqual(await done, { requested: "busybox", id: "sha256:busybox:latest" });
  assert.deepEqual(bench.events.lines, [
    'Normal Pulling spec.containers{app}: Pulling image "busybox"',
    'Normal Pulled spec.containers{app}: Successfully pulled image "busybox" in 1.234s (1.234s including waiting). Image size: 4268341 bytes.',
  ]);
});

test("Never does not pull, Always pulls what is there already", async () => {
  const bench = new Bench();
  assert.equal(
    await bench.failure(wanting("example/app:1", "Never")),
    'ErrImageNeverPull: Container image "example/app:1" is not present with pull policy of Never',
  );
  assert.deepEqual(bench.events.lines, [
    'Warning ErrImageNeverPull spec.containers{app}: Container image "example/app:1" is not present with pull policy of Never',
    "Warning Failed spec.containers{app}: Error: ErrImageNeverPull",
  ]);
  bench.registry.present.add("example/app:1");
  assert.equal((await bench.ensure(wanting("example/app:1", "Never"))).id, "sha256:example/app:1");
  const done = bench.ensure(wanting("example/app:1", "Always"));
  await bench.clock.settle();
  bench.registry.pull(0).finish();
  await done;
});

test("a name that is none is refused once and for all", async () => {
  const bench = new Bench();
  const pod = wanting("example/app:1");
  const wrong = { ...firstContainer(pod), image: "example/Upper" };
  const error = await failureOf(bench.puller.ensure(pod, wrong, bench.registry.adapter, NEVER));
  assert.match(
    error,
    /^InvalidImageName: Failed to apply default image tag "example\/Upper": couldn't parse image name/,
  );
  assert.equal(bench.registry.statusCalls, 0);
});

test("a runtime that cannot say is ImageInspectError, and nothing is pulled", async () => {
  const bench = new Bench();
  bench.registry.statusError = new PicoletError("unavailable", "cannot connect to the runtime");
  assert.equal(
    await bench.failure(wanting("example/app:1")),
    'ImageInspectError: Failed to inspect image "example/app:1": cannot connect to the runtime',
  );
  assert.equal(bench.registry.pulls.length, 0);
});

test("failures are backed off from 10 s, doubled up to 300 s, and forgotten by a success", async () => {
  const bench = new Bench();
  const pod = wanting("example/app:1");
  for (const wait of [10, 20, 40, 80, 160, 300, 300]) {
    const failing = bench.failure(pod);
    await bench.clock.settle();
    bench.registry.pulls.at(-1)?.fail(new PicoletError("not_found", "no such image"));
    assert.equal(await failing, "ErrImagePull: no such image");
    await bench.clock.advance(millis(wait * 1000 - 1));
    assert.equal(
      await bench.failure(pod),
      'ImagePullBackOff: Back-off pulling image "example/app:1": ErrImagePull: no such image',
      `before ${wait} s`,
    );
    await bench.clock.advance(millis(1));
  }
  assert.deepEqual(bench.events.lines.slice(0, 5), [
    'Normal Pulling spec.containers{app}: Pulling image "example/app:1"',
    'Warning Failed spec.containers{app}: Failed to pull image "example/app:1": no such image',
    "Warning Failed spec.containers{app}: Error: ErrImagePull",
    'Normal BackOff spec.containers{app}: Back-off pulling image "example/app:1"',
    "Warning Failed spec.containers{app}: Error: ImagePullBackOff",
  ]);
  const succeeding = bench.ensure(pod);
  await bench.clock.settle();
  bench.registry.pulls.at(-1)?.finish();
  await succeeding;
  bench.registry.present.clear();
  const again = bench.failure(pod);
  await bench.clock.settle();
  bench.registry.pulls.at(-1)?.fail(new Error("gone"));
  await again;
  await bench.clock.advance(seconds(10));
  const pulls = bench.registry.pulls.length;
  bench.ensure(pod).catch(() => undefined);
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, pulls + 1, "10 s again after a success");
});

test("an image imported meanwhile is taken in the middle of a back-off", async () => {
  const bench = new Bench();
  const failing = bench.failure(wanting("example/app:1"));
  await bench.clock.settle();
  bench.registry.pull(0).fail(new Error("no network"));
  await failing;
  bench.registry.present.add("example/app:1");
  assert.equal((await bench.ensure(wanting("example/app:1"))).id, "sha256:example/app:1");
});

test("the reasons of the runtime pass, with the kubelet's explanation", async () => {
  const bench = new Bench();
  const failing = bench.failure(wanting("example/app:1"));
  await bench.clock.settle();
  bench.registry.pull(0).fail(new PicoletError("unavailable", "dial tcp: refused", { reason: "RegistryUnavailable" }));
  assert.equal(
    await failing,
    "RegistryUnavailable: image pull failed for example/app:1 because the registry is unavailable: dial tcp: refused",
  );
});

test("a board that is offline uses the image at hand whatever the policy, also while it waits for the next try", async () => {
  const bench = new Bench();
  bench.registry.present.add("example/app:1");
  const first = bench.ensure(wanting("example/app:1", "Always"));
  await bench.clock.settle();
  bench.registry
    .pull(0)
    .fail(new PicoletError("unavailable", "dial tcp: i/o timeout", { reason: "RegistryUnavailable" }));
  assert.equal((await first).id, "sha256:example/app:1");
  assert.equal((await bench.ensure(wanting("example/app:1", "Always"))).id, "sha256:example/app:1");
  assert.equal(bench.registry.pulls.length, 1);
  const said =
    'Warning Pulled spec.containers{app}: The registry of "example/app:1" cannot be reached: using the image already present on machine';
  assert.deepEqual(bench.events.lines.slice(1), [said, said]);
});

test("a registry that answers and refuses is not an offline board: Always fails", async () => {
  const bench = new Bench();
  bench.registry.present.add("example/app:1");
  const failing = bench.failure(wanting("example/app:1", "Always"));
  await bench.clock.settle();
  bench.registry.pull(0).fail(new PicoletError("failed", "401 Unauthorized", { reason: "ErrImagePull" }));
  assert.equal(await failing, "ErrImagePull: 401 Unauthorized");
});

test("pods that want one image share one pull, which goes on until the last of them leaves", async () => {
  const bench = new Bench();
  const [first, second, third] = [new AbortController(), new AbortController(), new AbortController()];
  const one = bench.failure(wanting("busybox", "IfNotPresent", "u1"), first.signal);
  const two = bench.ensure(wanting("docker.io/library/busybox:latest", "IfNotPresent", "u2"), second.signal);
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 1);
  first.abort();
  assert.match(await one, /^cancelled/);
  assert.equal(bench.registry.pull(0).signal.aborted, false);
  bench.registry.pull(0).finish();
  await two;
  const three = bench.failure(wanting("example/other:1", "IfNotPresent", "u3"), third.signal);
  await bench.clock.settle();
  third.abort();
  assert.match(await three, /^cancelled/);
  assert.equal(bench.registry.pull(1).signal.aborted, true);
  bench.ensure(wanting("example/other:1")).catch(() => undefined);
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 3, "giving up is no failure to back off from");
  assert.equal(bench.events.lines.filter((line) => line.includes("Error:")).length, 0, "cancellation is not reported");
});

test("one failed pull that two pods share counts once for each, and not for a third", async () => {
  const bench = new Bench();
  const one = bench.failure(wanting("example/app:1", "IfNotPresent", "u1"));
  const two = bench.failure(wanting("example/app:1", "IfNotPresent", "u2"));
  await bench.clock.settle();
  bench.registry.pull(0).fail(new Error("no"));
  await Promise.all([one, two]);
  for (const uid of ["u1", "u2"]) {
    assert.match(await bench.failure(wanting("example/app:1", "IfNotPresent", uid)), /^ImagePullBackOff/);
  }
  bench.ensure(wanting("example/app:1", "IfNotPresent", "made anew")).catch(() => undefined);
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 2);
  await bench.clock.advance(seconds(10));
  bench.ensure(wanting("example/app:1", "IfNotPresent", "u1")).catch(() => undefined);
  await bench.clock.settle();
  assert.deepEqual(
    bench.puller.active.map(({ pods }) => pods.length),
    [2],
    "u1 may try again, and joins",
  );
});

test("serialised: the second waits for the first, and says how long; giving up the first lets it go", async () => {
  const bench = new Bench();
  const hung = new AbortController();
  const first = bench.failure(wanting("example/hung:1"), hung.signal);
  const second = bench.ensure(wanting("example/app:1"));
  await bench.clock.advance(seconds(60));
  assert.deepEqual(
    bench.registry.pulls.map((pull) => pull.reference),
    ["example/hung:1"],
  );
  hung.abort();
  await first;
  await bench.clock.advance(millis(500));
  bench.registry.pull(1).finish();
  await second;
  assert.match(bench.events.lines.at(-1) ?? "", /in 500ms \(1m0\.5s including waiting\)/);
});

describe("a registry that gives nothing holds others up for some seconds, once", () => {
  const SILENT = "silent.example/a:1";
  const OTHER = "other.example/b:1";
  /** One pull at a time, the first of a registry that gives what `progress` says at each second. */
  async function contended(progress: (second: number) => PullProgress | undefined): Promise<number> {
    const bench = new Bench();
    const first = bench.failure(wanting(SILENT));
    await bench.clock.settle();
    const more = ["b", "c", "d"].map((name) => bench.failure(wanting(`silent.example/${name}:1`)));
    const other = bench.ensure(wanting(OTHER));
    const begun = (): boolean => bench.registry.pulls.some(({ reference }) => reference === OTHER);
    let second = 0;
    for (; second < 290 && !begun(); second += 1) {
      const now = progress(second);
      if (now !== undefined) bench.registry.progress.set(SILENT, now);
      await bench.clock.advance(seconds(1));
    }
    if (!begun()) return second;
    assert.match(await first, /^ErrImagePull: the pull made next to no progress for \d+s, and others wait/);
    bench.registry.pull(1).finish();
    await other;
    assert.equal(more.length, 3);
    return second;
  }

  const cases: readonly (readonly [string, (second: number) => PullProgress | undefined, number, number])[] = [
    ["silent from the start", () => undefined, 15, 21],
    ["a byte every second", (second) => halfway(1 + second), 15, 31],
    ["then nothing more", (second) => halfway(Math.min(second, 20) * 10_000), 30, 41],
    ["slow as the slowest links", (second) => halfway((second + 1) * 1_200), 290, 290],
    ["all there, and being unpacked", () => ({ bytes: 9, totalBytes: 9, isTransferring: false }), 290, 290],
  ];
  for (const [name, progress, least, most] of cases) {
    test(name, async () => {
      const after = await contended(progress);
      assert.ok(after >= least && after <= most, `${after} s`);
    });
  }

  for (const [name, isMeasured] of [
    ["a registry that sends just enough", true],
    ["a runtime that reports no progress", false],
  ] as const)
    test(`others wait five minutes for ${name}, and the pull goes on beside them`, async () => {
      const bench = new Bench();
      if (!isMeasured) Object.assign(bench.registry.adapter.images, { progress: undefined });
      const slow = bench.ensure(wanting(SILENT));
      await bench.clock.settle();
      const others = ["other.example/b:1", "third.example/c:1"].map((each) => bench.ensure(wanting(each)));
      const begun = (): readonly string[] =>
        bench.registry.pulls.map(({ reference }) => reference.replace(/[.].*/, ""));
      const advance = async (from: number, to: number): Promise<void> => {
        for (let second = from; second < to; second += 1) {
          bench.registry.progress.set(SILENT, halfway((second + 1) * 1_200));
          await bench.clock.advance(seconds(1));
        }
      };
      await advance(0, 299);
      assert.deepEqual(begun(), ["silent"]);
      await advance(299, 311);
      assert.deepEqual(begun(), ["silent", "other"]);
      bench.registry.pull(1).finish();
      await bench.clock.settle();
      assert.deepEqual(begun(), ["silent", "other", "third"]);
      for (const index of [0, 2]) bench.registry.pull(index).finish();
      await Promise.all([slow, ...others]);
    });

  test("with nobody behind it, it has the time that it had", async () => {
    const bench = new Bench();
    const first = bench.failure(wanting(SILENT));
    const same = bench.failure(wanting("silent.example/b:1"));
    await bench.clock.advance(seconds(890));
    assert.equal(bench.registry.pulls.length, 1);
    await bench.clock.advance(seconds(20));
    assert.match(await first, /the pull made no progress for 15m/);
    bench.registry.pull(1).fail(new PicoletError("failed", "no"));
    await same;
  });

  test("a registry that was silent goes behind all others from then on", async () => {
    const bench = new Bench();
    const silent = ["a", "b", "c"].map((name) => bench.failure(wanting(`silent.example/${name}:1`)));
    const others = ["one", "two", "three"].map((name) => bench.ensure(wanting(`${name}.example/x:1`)));
    await bench.clock.advance(seconds(20));
    for (let index = 1; index <= 3; index += 1) {
      bench.registry.pull(index).finish();
      await bench.clock.settle();
    }
    await Promise.all(others);
    assert.deepEqual(
      bench.registry.pulls.map(({ reference }) => reference.replace(/[.].*/, "")),
      ["silent", "one", "two", "three", "silent"],
    );
    assert.equal(silent.length, 3);
  });
});

test("one that gives up while it waits for its turn is never pulled", async () => {
  const bench = new Bench();
  bench.ensure(wanting("example/a:1")).catch(() => undefined);
  const leaving = new AbortController();
  const left = bench.failure(wanting("example/b:1"), leaving.signal);
  await bench.clock.settle();
  leaving.abort();
  await left;
  bench.registry.pull(0).finish();
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 1);
});

test("in parallel, no more at a time than configured", async () => {
  const bench = new Bench({ serializeImagePulls: false, maxParallelImagePulls: 2 });
  const all = ["a", "b", "c"].map((name) => bench.ensure(wanting(`example/${name}:1`)));
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 2);
  bench.registry.pull(1).finish();
  await bench.clock.settle();
  assert.equal(bench.registry.pulls.length, 3);
  bench.registry.pull(0).finish();
  bench.registry.pull(2).finish();
  await Promise.all(all);
});

test("one runtime's hung pull delays neither another runtime nor what is on disk", async () => {
  const bench = new Bench();
  const wasm = new Registry("wasm");
  bench.ensure(wanting("example/hung:1")).catch(() => undefined);
  await bench.clock.settle();
  const other = bench.ensure(wanting("example/component:1"), NEVER, wasm);
  await bench.clock.settle();
  wasm.pull(0).finish();
  await other;
  bench.registry.present.add("example/app:1");
  await bench.ensure(wanting("example/app:1"));
});

test("a runtime without registries uses what it has, whatever the policy", async () => {
  const bench = new Bench();
  bench.registry.present.add("example/app:1");
  const first = bench.ensure(wanting("example/app:1", "Always"));
  await bench.clock.settle();
  bench.registry.pull(0).fail(new PicoletError("unimplemented", "cannot pull from registries yet"));
  assert.equal((await first).id, "sha256:example/app:1");
  await bench.ensure(wanting("example/app:1", "Always"));
  assert.equal(bench.registry.pulls.length, 1);
});

test("too many different images at once: the next is refused and may come again", async () => {
  const bench = new Bench();
  const stop = new AbortController();
  const waiting = Array.from({ length: 256 }, (_, index) =>
    bench.ensure(wanting(`example/many:${index}`), stop.signal).catch(() => undefined),
  );
  await bench.clock.settle();
  assert.match(await bench.failure(wanting("example/one-more:1")), /^ErrImagePull: more than 256 images wait/);
  stop.abort();
  await Promise.all(waiting);
  assert.equal(bench.registry.pulls.length, 1);
});

test("pull secrets cannot be had yet: one event, and the pull goes on without", async () => {
  const bench = new Bench();
  const spec = { imagePullSecrets: [{ name: "one" }, { name: "two" }] };
  const pod = desired(podOf({ ...spec, containers: [{ name: "app", image: "example/app:1" }] }));
  const done = bench.ensure(pod);
  await bench.clock.settle();
  bench.registry.pull(0).finish();
  await done;
  assert.equal(
    bench.events.lines[0],
    "Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed.",
  );
});

test("an image that must be signed is present by the digest that was verified, and by nothing else", async () => {
  const known = new Map<string, string>();
  const signatures = {
    requires: () => true,
    known: ({ canonical }: { readonly canonical: string }) => known.get(canonical),
  } as unknown as ImageSignatures;
  const registry = new Registry();
  const puller = new ImagePuller(
    { events: new RecordedEvents(), clock: new VirtualClock(), random: noJitter, signatures },
    { serializeImagePulls: true },
  );
  const pod = wanting("registry.example/app:1");
  const isPresent = async (): Promise<boolean | undefined> =>
    (await puller.present(pod, firstContainer(pod), [registry.adapter], NEVER)).get(registry.adapter);
  registry.present.add("registry.example/app:1");
  assert.equal(await isPresent(), false, "whoever brought it under its tag");
  registry.present.add("registry.example/app@sha256:1");
  known.set("registry.example/app:1", "sha256:1");
  assert.equal(await isPresent(), true);
});
