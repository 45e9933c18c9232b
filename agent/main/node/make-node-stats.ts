/** Puts together the statistics of the node and its pods. */
import { statfs } from "node:fs/promises";
import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import { usageOf } from "../../stats/filesystem-sampler.ts";
import type { MountedVolume } from "../../stats/summary.ts";
import { UsageStats } from "../../stats/usage-stats.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";
import { volumeTypeOf } from "../../volumes/types/volume-types.ts";
import type { NodeUsageSampler } from "./node-usage.ts";

export interface NodeStatsComponents {
  readonly usage: NodeUsageSampler;
  readonly clock: Clock;
  readonly log: Log;
}

export interface NodeStatsInit {
  readonly configuration: Configuration;
  readonly rootDir: string;
  readonly startedAt: Date;
}

export function makeNodeStats(components: NodeStatsComponents, init: NodeStatsInit): UsageStats {
  const { usage, clock, log } = components;
  const { configuration, rootDir, startedAt } = init;
  const paths = new PodPaths({ rootDir, podLogsDir: configuration.podLogsDir });
  return new UsageStats(
    {
      sampler: usage,
      mountedVolumes: async (pod) => [...(await mountedVolumes(paths, pod)), ...(await usage.driverVolumes(pod))],
      clock,
      log,
    },
    { nodeName: configuration.nodeName, startedAt, volumePeriod: configuration.volumeStatsAggPeriod },
  );
}

const TMPFS_MAGIC = 0x01021994;

/** The pod's volumes in memory, each a file system of its own. A volume whose folder is missing is left out. */
async function mountedVolumes(paths: PodPaths, { desired }: AgentPod): Promise<readonly MountedVolume[]> {
  const mounted: MountedVolume[] = [];
  for (const volume of desired.pod.spec.volumes ?? []) {
    const folder = volumeTypeOf(volume)?.folder;
    if (folder === undefined) continue;
    const statistics = await statfs(paths.volume(desired.uid, folder, volume.name)).catch(
      ignore("a volume without a folder has no usage"),
    );
    if (statistics?.type === TMPFS_MAGIC) mounted.push({ name: volume.name, usage: usageOf(statistics) });
  }
  return mounted;
}
