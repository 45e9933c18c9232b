/** Answers a hub's requests for logs, exec, attach, port-forward and the kubelet's GETs. */

import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { KubeletAnswers } from "../../streams/kubelet-answers.ts";
import { NodeStreams } from "../../streams/node-streams.ts";
import { makeNodeStats } from "../node/make-node-stats.ts";
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
  const { machine, usage, view, conditions, probeMetrics, startedAt, page } = node;
  return new KubeletAnswers({
    pods: () => view.pods(),
    probeMetrics,
    stats: makeNodeStats({ usage, clock, log }, { configuration, rootDir, startedAt }),
    ...(page === undefined ? {} : { page }),
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
