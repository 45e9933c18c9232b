import assert from "node:assert/strict";
import { test } from "node:test";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import fc from "fast-check";
import type { MemorySpace } from "../../core/node/memory-reading.ts";
import type { EvictionThreshold } from "./eviction-thresholds.ts";
import { needsHeldStalls, planMemorySampling, type StallWindow } from "./memory-sampling.ts";

const threshold = (signal: EvictionThreshold["signal"]): EvictionThreshold => ({
  ...{ signal, gracePeriod: undefined, minReclaim: undefined },
  value: { kind: "quantity", value: 100 * MEBIBYTE, text: "100Mi" },
});
const BOTH = [threshold("memory.available"), threshold("allocatableMemory.available")];

const left = (mib: number): MemorySpace => ({ available: mib * MEBIBYTE, capacity: 16_384 * MEBIBYTE });

const cases: readonly [name: string, node: number | undefined, pods: number | undefined, nextSampleMs: number][] = [
  ["plenty", 16_000, 16_000, 5000],
  ["what could be gone in 0.8 s", 16_000, 512, 804],
  ["next to nothing", 16_000, 101, 50],
  ["beyond it", 16_000, 99, 250],
  ["a limit of the pods that is not there yet", 16_000, undefined, 1000],
  ["the same on a small board", 356, undefined, 500],
  ["nothing to be seen at all", undefined, undefined, 1000],
];

for (const [name, node, pods, nextSampleMs] of cases) {
  test(`memory is looked at as soon as it can be gone: ${name}`, () => {
    const space = (mib: number | undefined) => (mib === undefined ? undefined : left(mib));
    const reading = { node: space(node), pods: space(pods), stalledUs: undefined };
    const view = { reading, window: undefined, now: 0 as MonotonicMs };
    assert.equal(planMemorySampling(BOTH, view).nextSampleIn, nextSampleMs);
  });
}

test("the pods' limit is not waited for where there is no pod", () => {
  const reading = { node: left(16_000), pods: undefined, stalledUs: undefined };
  const view = { reading, window: undefined, now: 0 as MonotonicMs, isEmpty: true };
  assert.equal(planMemorySampling(BOTH, view).nextSampleIn, 5000);
});

const HARD = threshold("memory.available");
const PIDS: EvictionThreshold = { ...threshold("pid.available"), value: { kind: "quantity", value: 100, text: "100" } };

test("processes are looked at as soon as they can be all used", () => {
  const sampleAt = (available: number, node = left(16_000)) =>
    planMemorySampling([HARD, PIDS], {
      reading: { node, pods: undefined, pids: { available, capacity: 32_768 }, stalledUs: undefined },
      window: undefined,
      now: 0 as MonotonicMs,
    });
  assert.equal(sampleAt(32_000).nextSampleIn, 3190);
  assert.equal(sampleAt(4_000).nextSampleIn, 390);
  assert.equal(sampleAt(4_000, left(200)).nextSampleIn, 195, "memory is gone sooner");
  assert.equal(sampleAt(101).nextSampleIn, 50);
  assert.deepEqual(sampleAt(100).crossed, []);
  assert.deepEqual(sampleAt(99).crossed, [PIDS]);
});

type Look = readonly [atMs: number, stalledUs: number | undefined, heldUs?: number, mib?: number];

/** Looks one after the other, `mib` of memory left. */
function stalledAt(looks: readonly Look[], mib: number): readonly number[] {
  let window: StallWindow | undefined;
  return looks.flatMap(([at, stalledUs, heldUs = 0, then = mib]) => {
    const seen = { reading: { node: left(then), pods: undefined, stalledUs }, window, now: at as MonotonicMs };
    const held = needsHeldStalls([HARD], seen) ? heldUs : undefined;
    const result = planMemorySampling([HARD], { ...seen, heldUs: held });
    window = result.window;
    return result.stalled ? [at] : [];
  });
}

const stallCases: readonly [
  name: string,
  looks: Parameters<typeof stalledAt>[0],
  mib: number,
  stalledAtMs: number[],
][] = [
  [
    "a third of a second",
    [
      [0, 0],
      [500, 150_000],
      [1_000, 300_000],
    ],
    150,
    [1_000],
  ],
  [
    "less than that",
    [
      [0, 0],
      [1_000, 299_000],
    ],
    150,
    [],
  ],
  [
    "the share is of the time that went by",
    [
      [0, 0],
      [2_000, 599_000],
      [3_000, 899_000],
    ],
    150,
    [3_000],
  ],
  [
    "before the window is over nothing is said",
    [
      [0, 0],
      [999, 999_000],
    ],
    150,
    [],
  ],
  [
    "there is memory, two thresholds of it",
    [
      [0, 0],
      [1_000, 900_000],
    ],
    200,
    [],
  ],
  [
    "one byte less than that",
    [
      [0, 0],
      [1_000, 900_000],
    ],
    200 - 1 / MEBIBYTE,
    [1_000],
  ],
  [
    "a counter that goes back is a new one",
    [
      [0, 900_000],
      [500, 0],
      [1_000, 400_000],
      [1_500, 500_000],
    ],
    150,
    [1_500],
  ],
  [
    "those of pods at limits of their own do not count",
    [
      [0, 5_000_000, 1_000_000],
      [1_000, 5_900_000, 1_700_000],
      [2_000, 6_800_000, 2_300_000],
      [3_000, 7_700_000, 4_000_000],
    ],
    150,
    [2_000],
  ],
  [
    "nor do those of the time when there was memory",
    [
      [0, 0, 0, 300],
      [5_000, 5_000_000, 9_000_000, 150],
      [6_000, 5_900_000, 9_900_000, 150],
      [7_000, 6_800_000, 9_900_000, 150],
    ],
    150,
    [7_000],
  ],
  [
    "the kernel does not say",
    [
      [0, undefined],
      [1_000, undefined],
    ],
    150,
    [],
  ],
  [
    "it says so again, after a while",
    [
      [0, 0],
      [500, undefined],
      [1_000, 900_000],
      [1_500, 900_000],
    ],
    150,
    [],
  ],
];

for (const [name, looks, mib, stalledAtMs] of stallCases) {
  test(`stalls count when little memory is left: ${name}`, () => {
    assert.deepEqual(stalledAt(looks, mib), stalledAtMs);
  });
}

test("stalls are no reason for a soft threshold, nor for one of processes", () => {
  const soft = { ...HARD, gracePeriod: millis(1) };
  for (const only of [soft, PIDS]) {
    const reading = { node: left(150), pods: undefined, pids: { available: 150, capacity: 1000 }, stalledUs: 900_000 };
    const window = { at: 0 as MonotonicMs, stalledUs: 0, heldUs: 0 };
    assert.equal(planMemorySampling([only], { reading, window, now: 1_000 as MonotonicMs }).stalled, false);
  }
});

test("whatever is read, the next look is between 50 ms and 5 s away", () => {
  const number = fc.oneof(fc.double(), fc.integer(), fc.constantFrom(Number.NaN, Infinity, -Infinity));
  const space = fc.option(fc.record({ available: number, capacity: number }), { nil: undefined });
  const reading = fc.record({
    node: space,
    pods: space,
    pids: space,
    stalledUs: fc.option(number, { nil: undefined }),
  });
  fc.assert(
    fc.property(reading, number, (each, stalledUs) => {
      const view = { reading: each, window: { at: 0 as MonotonicMs, stalledUs, heldUs: 0 }, now: 1_500 as MonotonicMs };
      const { nextSampleIn } = planMemorySampling([...BOTH, PIDS], view);
      assert.ok(Number.isInteger(nextSampleIn) && nextSampleIn >= 50 && nextSampleIn <= 5_000, String(nextSampleIn));
    }),
  );
});
