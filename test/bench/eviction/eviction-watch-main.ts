/** Measures one memory sample in a process with the agent's flags, and from it the samples of a second. */
import { cgroupFoldersOf } from "@picolet/agent/main/node/node-usage.ts";
import { evictionThresholds } from "@picolet/agent/plan/eviction/eviction-thresholds.ts";
import { planMemorySampling } from "@picolet/agent/plan/eviction/memory-sampling.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { MemoryGauge } from "@picolet/agent/stats/memory-gauge.ts";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

export interface WatchOrder {
  readonly podsCgroup: string;
}

/** Percent of one core, once for each measurement. */
export interface WatchAnswer {
  readonly idlePercent: readonly number[];
  readonly smallBoardPercent: readonly number[];
  readonly alertPercent: readonly number[];
}

const MEASUREMENTS = 5;
/** In each of them. */
const LOOKS = 1000;
const WARM_UP_LOOKS = 200;
const thresholds = evictionThresholds({
  evictionHard: { "memory.available": "100Mi" },
  ...{ evictionSoft: {}, evictionSoftGracePeriod: {}, evictionMinimumReclaim: {} },
  enforceNodeAllocatable: ["pods"],
});

/**
 * Measures the CPU of the samples at a distance from the threshold.
 * @param leftMiB distance beyond the threshold, which decides how often memory is sampled
 */
function percentsOf(gauge: MemoryGauge, leftMiB: number, nearBytes: number): number[] {
  const space = { available: (100 + leftMiB) * MEBIBYTE, capacity: 16_384 * MEBIBYTE };
  const seen = { node: space, pods: space, stalledUs: 0 };
  const now = 0 as MonotonicMs;
  const { nextSampleIn, window } = planMemorySampling(thresholds, { reading: seen, window: undefined, now });
  const look = (): void => {
    planMemorySampling(thresholds, { reading: gauge.read({ near: nearBytes, short: 100 * MEBIBYTE }), window, now });
  };
  for (let index = 0; index < WARM_UP_LOOKS; index += 1) look();
  return Array.from({ length: MEASUREMENTS }, () => {
    const before = process.cpuUsage();
    for (let index = 0; index < LOOKS; index += 1) look();
    const { user, system } = process.cpuUsage(before);
    return ((user + system) / 1000 / LOOKS / nextSampleIn) * 100;
  });
}

process.once("message", async ({ podsCgroup }: WatchOrder) => {
  const gauge = new MemoryGauge(cgroupFoldersOf(await detectCgroups()), { allPodsCgroup: podsCgroup });
  const answer: WatchAnswer = {
    idlePercent: percentsOf(gauge, 16_000, 0),
    smallBoardPercent: percentsOf(gauge, 200, 0),
    alertPercent: percentsOf(gauge, 1, Infinity),
  };
  process.send?.(answer);
  process.disconnect();
});
