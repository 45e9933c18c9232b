import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ResolvedImage, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { PodImages } from "./pod-images.ts";

const pod = desired(podOf());
const container = firstContainer(pod);
const image: ResolvedImage = { requested: container.image, id: "sha256:1" };
const adapter = {} as RuntimeAdapter;
const { signal } = new AbortController();

/** Pulls that end on demand. */
function bench() {
  const clock = new VirtualClock();
  const pulls: { readonly image: string; readonly aborted: () => boolean; readonly end: (error?: Error) => void }[] =
    [];
  let arrivals = 0;
  const images = new PodImages(
    {
      clock,
      images: {
        ensure: (_pod, wanted, _adapter, own) =>
          new Promise((resolve, reject) => {
            const end = (error?: Error): void => (error === undefined ? resolve(image) : reject(error));
            pulls.push({ image: wanted.image, aborted: () => own.aborted, end });
          }),
      },
    },
    () => {
      arrivals += 1;
    },
  );
  return { clock, pulls, images, arrivals: () => arrivals };
}

test("an image that is on the node is had without a timer, and nobody is called", async () => {
  const { clock, pulls, images, arrivals } = bench();
  images.begin(pod, container, adapter, signal);
  pulls[0]?.end();
  await clock.settle();
  assert.equal(await images.take(container.name, signal), image);
  assert.deepEqual([clock.monotonic(), arrivals()], [0, 0]);
});

test("a pull is waited for half a second, then its arrival is told", async () => {
  const { clock, pulls, images, arrivals } = bench();
  images.begin(pod, container, adapter, signal);
  const taken = images.take(container.name, signal);
  await clock.advance(millis(500));
  assert.equal(await taken, undefined);
  assert.equal(await images.take(container.name, signal), undefined, "the second time at once");
  pulls[0]?.end();
  await clock.settle();
  assert.equal(arrivals(), 1);
  images.begin(pod, container, adapter, signal);
  assert.equal(pulls.length, 1, "it is not pulled again");
  assert.equal(await images.take(container.name, signal), image);
});

test("a pull that failed throws once, and the next begins anew", async () => {
  const { clock, pulls, images } = bench();
  images.begin(pod, container, adapter, signal);
  pulls[0]?.end(new PicoletError("not_found", "no such image", { reason: "ErrImagePull" }));
  await clock.settle();
  await assert.rejects(images.take(container.name, signal), { reason: "ErrImagePull" });
  images.begin(pod, container, adapter, signal);
  assert.equal(pulls.length, 2);
});

test("a failure that a round did not come to tell of is not told by the next", async () => {
  const { clock, pulls, images } = bench();
  images.begin(pod, container, adapter, signal);
  pulls[0]?.end(new PicoletError("unavailable", "no runtime"));
  await clock.settle();
  images.begin(pod, container, adapter, signal);
  pulls[1]?.end();
  assert.equal(await images.take(container.name, signal), image);
});

test("another image of the same container ends the pull of the first", async () => {
  const { pulls, images } = bench();
  images.begin(pod, container, adapter, signal);
  images.begin(pod, { ...container, image: "example/app:2" }, adapter, signal);
  assert.deepEqual(
    pulls.map((pull) => [pull.image, pull.aborted()]),
    [
      ["example/app:1", true],
      ["example/app:2", false],
    ],
  );
});

test("what is abandoned is aborted, and tells nobody any more", async () => {
  const { clock, pulls, images, arrivals } = bench();
  images.begin(pod, container, adapter, signal);
  const taken = images.take(container.name, signal);
  await clock.advance(millis(500));
  await taken;
  images.abandon();
  assert.equal(pulls[0]?.aborted(), true);
  pulls[0]?.end();
  await clock.settle();
  assert.equal(arrivals(), 0);
});

test("an image that nobody came to use is good for a minute", async () => {
  const { clock, pulls, images } = bench();
  images.begin(pod, container, adapter, signal);
  pulls[0]?.end();
  await clock.advance(millis(59_000));
  images.begin(pod, container, adapter, signal);
  assert.equal(pulls.length, 1);
  await clock.advance(millis(1000));
  images.begin(pod, container, adapter, signal);
  assert.equal(pulls.length, 2);
});
