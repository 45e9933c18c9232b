import assert from "node:assert/strict";
import { test } from "node:test";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import {
  DISK_SAMPLE_MAX_INTERVAL,
  DISK_SAMPLE_MIN_INTERVAL,
  type DiskSample,
  nextDiskSampleIn,
} from "./disk-sampling.ts";
import type { EvictionSignal, EvictionThreshold } from "./eviction-thresholds.ts";

const threshold = (signal: EvictionSignal, value: number): EvictionThreshold => ({
  ...{ signal, gracePeriod: undefined, minReclaim: undefined },
  value: { kind: "quantity", value, text: String(value) },
});
const THRESHOLDS = [threshold("nodefs.available", 100), threshold("nodefs.inodesFree", 100)];

const seen = (atMs: number, bytes: number | undefined, inodes = 1_000_000): DiskSample => ({
  at: atMs as MonotonicMs,
  observations: new Map(
    Object.entries({ "nodefs.available": bytes, "nodefs.inodesFree": inodes }).flatMap(([signal, available]) =>
      available === undefined ? [] : [[signal as EvictionSignal, { available, capacity: 1_000_000 }] as const],
    ),
  ),
});

const cases: readonly [name: string, before: DiskSample | undefined, now: DiskSample | undefined, lookInMs: number][] =
  [
    ["nothing was seen before", undefined, seen(0, 200), 10_000],
    ["nothing is seen now", seen(0, 200), undefined, 10_000],
    ["nothing fills", seen(0, 200), seen(10_000, 200), 10_000],
    ["something is freed", seen(0, 200), seen(10_000, 900), 10_000],
    ["what fills is far from the threshold", seen(0, 100_000), seen(10_000, 99_000), 10_000],
    ["half of the 8 s that are left", seen(0, 2_000), seen(10_000, 900), 3_636],
    ["inodes go faster than bytes", seen(0, 100_000, 2_000), seen(10_000, 99_999, 900), 3_636],
    ["it is nearly there", seen(0, 2_000), seen(10_000, 101), 1_000],
    ["it is there", seen(0, 2_000), seen(10_000, 50), 1_000],
    ["it could not be seen before", seen(0, undefined), seen(10_000, 101), 10_000],
    ["nothing could fill 30 GB sooner", seen(0, 30e9, 1e9), seen(10_000, 30e9, 1e9), 29_999],
    ["what is left would last for minutes", seen(0, 500e9, 1e9), seen(10_000, 500e9, 1e9), 60_000],
    ["files could run out sooner than bytes", seen(0, 500e9, 2e6 + 100), seen(10_000, 500e9, 2e6 + 100), 20_000],
    ["what fills is far away, but fast", seen(0, 500e9), seen(10_000, 250e9), 4_999],
    ["two looks at one time", seen(5, 2_000), seen(5, 101), 10_000],
  ];

for (const [name, before, now, lookInMs] of cases) {
  test(`disks are looked at by how fast they fill: ${name}`, () => {
    assert.equal(nextDiskSampleIn(THRESHOLDS, before, now), lookInMs);
  });
}

test("whatever is seen, the next look is neither sooner nor later than it may be", () => {
  const look = fc.record({ at: fc.nat(100_000), bytes: fc.option(fc.nat(), { nil: undefined }), inodes: fc.nat() });
  fc.assert(
    fc.property(look, look, (before, now) => {
      const [was, is] = [before, now].map(({ at, bytes, inodes }) => seen(at, bytes, inodes));
      const delay = nextDiskSampleIn(THRESHOLDS, was, is);
      assert.ok(Number.isInteger(delay) && delay >= DISK_SAMPLE_MIN_INTERVAL && delay <= DISK_SAMPLE_MAX_INTERVAL);
    }),
  );
});
