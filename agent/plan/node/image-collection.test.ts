import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { type AgedImage, bytesToFree, collectionOrder, type ImageGcPolicy, isTooOld } from "./image-collection.ts";

const POLICY: ImageGcPolicy = {
  highThresholdPercent: 85,
  lowThresholdPercent: 80,
  minimumAge: seconds(120),
  maximumAge: seconds(0),
};

describe("bytes to free", () => {
  const cases: readonly (readonly [name: string, capacity: number, available: number, wanted: number])[] = [
    ["nothing below the higher threshold", 1000, 160, 0],
    ["at the threshold down to the lower one", 1000, 150, 50],
    ["with a full disk", 1000, 0, 200],
    ["of a part of a percent: use counts as the kubelet rounds it", 1000, 159, 41],
    ["more available than there is", 1000, 5000, 0],
    ["a disk of 4 TB", 4e12, 4e11, 4e11],
  ];
  for (const [name, capacityBytes, availableBytes, wanted] of cases) {
    test(name, () => assert.equal(bytesToFree({ capacityBytes, availableBytes }, POLICY), wanted));
  }
});

test("what nothing uses goes: what was never used first, then by last use, the oldest first", () => {
  const image = (
    name: string,
    age: number,
    unused: number | undefined,
    isKept = false,
  ): AgedImage & { name: string } => ({
    ...{ name, isKept, sizeBytes: 1, age: seconds(age) },
    unused: unused === undefined ? undefined : seconds(unused),
  });
  const images = [
    image("yesterday's", 9, 1),
    image("last week's", 9, 7),
    image("in use", 99, 99, true),
    image("new, never used", 1, undefined),
    image("old, never used", 5, undefined),
    image("last week's too, here for longer", 10, 7),
  ];
  assert.deepEqual(
    collectionOrder(images).map(({ name }) => name),
    ["old, never used", "new, never used", "last week's too, here for longer", "last week's", "yesterday's"],
  );
});

test("too old is what was not used for longer, or never and has been here for longer", () => {
  const policy = { ...POLICY, maximumAge: seconds(3600) };
  const image = (age: number, unused: number | undefined): AgedImage => ({
    ...{ isKept: false, sizeBytes: 1, age: seconds(age) },
    unused: unused === undefined ? undefined : seconds(unused),
  });
  assert.equal(isTooOld(image(9000, 3601), policy), true);
  assert.equal(isTooOld(image(9000, 3600), policy), false);
  assert.equal(isTooOld(image(3601, undefined), policy), true);
  assert.equal(isTooOld(image(9000, 9000), { ...policy, maximumAge: millis(0) }), false);
});
