/** Answers a hub's streams for logs, exec, attach, port-forward and the kubelet's GETs. */
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { UsageStats } from "../../stats/usage-stats.ts";
import { KubeletAnswers } from "../../streams/kubelet-answers.ts";
import { NodeStreams } from "../../streams/node-streams.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";
import type { HubLinkInit, LinkedNode } from "./hub-link.ts";
import { mountedVolumes } from "./mounted-volumes.ts";

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
  const { machine, usage, view, conditions, probeMetrics, startedAt } = node;
  const paths = new PodPaths({ rootDir, podLogsDir: configuration.podLogsDir });
  return new KubeletAnswers({
    pods: () => view.pods(),
    probeMetrics,
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
