import assert from "node:assert/strict";
import { test } from "node:test";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import type { FilesystemUsage, NodeUsage, Usage } from "../../core/node/usage.ts";
import { filesystemObservations, usageObservations } from "./eviction-signals.ts";
import { judgeEviction, NO_EVICTION } from "./eviction-state.ts";
import { EVICTION_SIGNALS, type EvictionThreshold } from "./eviction-thresholds.ts";

const THRESHOLDS: readonly EvictionThreshold[] = [...EVICTION_SIGNALS, "allocatableMemory.available" as const].flatMap(
  (signal) => [
    { signal, value: { kind: "quantity", value: 100, text: "100" }, gracePeriod: undefined, minReclaim: undefined },
    { signal, value: { kind: "percentage", share: 0.1, text: "10%" }, gracePeriod: undefined, minReclaim: undefined },
  ],
);
const RULES = { thresholds: THRESHOLDS, transitionPeriod: seconds(1) };

const used = (workingSetBytes: number, memoryLimitBytes: number, pids: number): Usage =>
  ({ workingSetBytes, memoryLimitBytes, pids }) as Usage;
const nodeUsage = (node: Usage, allPods: Usage): NodeUsage => ({ atMs: 0, node, allPods, pods: [] });
const disk = (availableBytes: number, capacityBytes: number): FilesystemUsage => ({
  ...{ availableBytes, capacityBytes, usedBytes: 0 },
  ...{ inodes: capacityBytes, inodesFree: availableBytes, inodesUsed: 0 },
});

const NONSENSE = [Number.NaN, -1, -Infinity, Infinity, 1e300, Number.MAX_VALUE] as const;
const nonsense = fc.constantFrom(...NONSENSE);

test("figures that cannot be evict nobody, whichever of the two they are", () => {
  const sound = fc.constantFrom(1, 1000, 2 ** 40);
  const pair = fc.oneof(fc.tuple(nonsense, sound), fc.tuple(nonsense, fc.constantFrom(0, -1, Number.NaN, Infinity)));
  fc.assert(
    fc.property(pair, pair, pair, ([node, total], [pods, limit], [free, size]) => {
      const ofUsage = usageObservations(nodeUsage(used(node, total, node), used(pods, limit, pods)), total);
      const disks = { nodefs: disk(free, size), imagefs: disk(free, size), containerfs: disk(free, size) };
      const observations = new Map([...ofUsage, ...filesystemObservations(disks)]);
      const { due, conditions } = judgeEviction(RULES, NO_EVICTION, observations, 0 as MonotonicMs);
      assert.deepEqual([due, [...conditions]], [[], []]);
    }),
  );
});

test("whatever is said is a number within its bounds, or nothing", () => {
  const any = fc.oneof(fc.double(), fc.integer(), nonsense);
  fc.assert(
    fc.property(any, any, any, any, (a, b, c, d) => {
      const disks = { nodefs: disk(a, b), imagefs: disk(c, d), containerfs: disk(b, c) };
      const all = [...usageObservations(nodeUsage(used(a, b, c), used(c, d, a)), d), ...filesystemObservations(disks)];
      for (const [signal, { available, capacity }] of all) {
        assert.ok(available >= 0 && available <= capacity && capacity > 0 && capacity < Infinity, signal);
      }
    }),
  );
});

test("a limit that was lowered below what is used leaves nothing, which counts", () => {
  const observed = usageObservations(nodeUsage(used(500, 1000, 10), used(1500, 1000, 0)), 1000);
  assert.deepEqual(observed.get("allocatableMemory.available"), { available: 0, capacity: 1000 });
  const tooFar = usageObservations(nodeUsage(used(500, 1000, 10), used(2001, 1000, 0)), 1000);
  assert.equal(tooFar.has("allocatableMemory.available"), false);
});
