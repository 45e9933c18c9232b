/** Answers requests for logs, exec, attach, port-forward and the kubelet's GETs, of a hub and of this node's clients. */

import { statfs } from "node:fs/promises";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { WhyAnswers } from "../../core/node/why-answers.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { ContainerLogs } from "../../core/pods/container-logs.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { Machine } from "../../node/machine.ts";
import type { NodeCondition } from "../../node/node-conditions.ts";
import { checkProblem, HEALTH_CHECKS, judgeAgent } from "../../plan/node/judge-node.ts";
import { usageOf } from "../../stats/filesystem-sampler.ts";
import type { MountedVolume } from "../../stats/summary.ts";
import { UsageStats } from "../../stats/usage-stats.ts";
import { KubeletAnswers } from "../../streams/kubelet-answers.ts";
import { NodeStreams } from "../../streams/node-streams.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";
import { volumeTypeOf } from "../../volumes/types/volume-types.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";

/** Parts of the node that streams read. */
export interface StreamedNode {
  readonly why: WhyAnswers;
  readonly machine: Machine;
  readonly router: RuntimeRouter;
  readonly conditions: Watch<readonly NodeCondition[]>;
  readonly usage: NodeUsageSampler;
  readonly view: NodeAgentView;
  readonly logs: ContainerLogs;
  /** In Prometheus' text format. */
  readonly probeMetrics: () => Promise<Iterable<string>>;
  readonly startedAt: Date;
}

export interface NodeStreamsComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly node: StreamedNode;
}

export interface NodeStreamsInit {
  readonly configuration: Configuration;
  readonly rootDir: string;
}

export interface MadeStreams {
  /** Each call makes streams with a limit of their own. */
  readonly sessions: (maxSessions?: number) => NodeStreams;
}

export function makeNodeStreams(components: NodeStreamsComponents, init: NodeStreamsInit): MadeStreams {
  const { clock, log, node } = components;
  const { router, logs, view } = node;
  const kubelet = makeKubelet(components, init);
  return {
    sessions: (maxSessions) =>
      new NodeStreams({ pods: () => view.pods(), router, logs, kubelet, clock, log }, { maxSessions }),
  };
}

function makeKubelet(
  { clock, log, node }: NodeStreamsComponents,
  { configuration, rootDir }: NodeStreamsInit,
): KubeletAnswers {
  const { machine, usage, view, why, probeMetrics, startedAt } = node;
  const paths = new PodPaths({ rootDir, podLogsDir: configuration.podLogsDir });
  return new KubeletAnswers({
    pods: () => view.pods(),
    probeMetrics,
    why,
    stats: new UsageStats(
      { looks: usage, mountedVolumes: (pod) => mountedVolumes(paths, pod), clock, log },
      { nodeName: configuration.nodeName, startedAt, volumePeriod: configuration.volumeStatsAggPeriod },
    ),
    node: async () => {
      const { shownConfiguration } = await import("../../config/shown-configuration.ts");
      return { configuration: shownConfiguration(configuration), ...machine };
    },
    unhealthy: () => {
      const found = judgeAgent(view.facts());
      return HEALTH_CHECKS.flatMap((check) => checkProblem(found, check) ?? []).join(", ");
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
