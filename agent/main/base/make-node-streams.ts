/** Answers a hub's requests for logs, exec, attach, port-forward and the kubelet's GETs. */

import { statfs } from "node:fs/promises";
import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import { usageOf } from "../../stats/filesystem-sampler.ts";
import type { MountedVolume } from "../../stats/summary.ts";
import { UsageStats } from "../../stats/usage-stats.ts";
import { KubeletAnswers } from "../../streams/kubelet-answers.ts";
import { NodeStreams } from "../../streams/node-streams.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";
import { volumeTypeOf } from "../../volumes/types/volume-types.ts";
import type { HubLinkInit, LinkedNode } from "./hub-link.ts";

export interface NodeStreamsComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly node: LinkedNode;
}

type NodeStreamsInit = Pick<HubLinkInit, "configuration" | "rootDir">;

export function makeNodeStreams(components: NodeStreamsComponents, init: NodeStreamsInit): NodeStreams {
  const { clock, log, node } = components;
  const { router, logs, view } = node;
  return new NodeStreams({ pods: () => view.pods(), router, logs, kubelet: makeKubelet(components, init), clock, log });
}

function makeKubelet(
  { clock, log, node }: NodeStreamsComponents,
  { configuration, rootDir }: NodeStreamsInit,
): KubeletAnswers {
  const { machine, usage, view, conditions, probeMetrics, metrics, counts, startedAt } = node;
  const paths = new PodPaths({ rootDir, podLogsDir: configuration.podLogsDir });
  return new KubeletAnswers({
    pods: () => view.pods(),
    ...{ probeMetrics, metrics, counts, clock },
    stats: new UsageStats(
      { looks: usage, mountedVolumes: (pod) => mountedVolumes(paths, pod), clock, log },
      { nodeName: configuration.nodeName, startedAt, volumePeriod: configuration.volumeStatsAggPeriod },
    ),
    node: async () => {
      const { shownConfiguration } = await import("../../config/shown-configuration.ts");
      return { configuration: shownConfiguration(configuration), ...machine };
    },
    unhealthy: () => {
      const ready = conditions.current.find(({ type }) => type === "Ready");
      return ready?.status === "True" ? "" : (ready?.message ?? "");
    },
  });
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
