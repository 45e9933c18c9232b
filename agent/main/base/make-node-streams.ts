/** Answers requests for logs, exec, attach, port-forward and the kubelet's GETs, of a hub and of this node's clients. */

import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { WhyAnswers } from "../../core/node/why-answers.ts";
import type { ContainerLogs } from "../../core/pods/container-logs.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { Machine } from "../../node/machine.ts";
import type { NodeCondition } from "../../node/node-conditions.ts";
import { checkProblem, HEALTH_CHECKS, judgeAgent } from "../../plan/node/judge-node.ts";
import { KubeletAnswers, type KubeletAnswersComponents, type PageOfNode } from "../../streams/kubelet-answers.ts";
import { NodeStreams } from "../../streams/node-streams.ts";
import { makeNodeStats } from "../node/make-node-stats.ts";
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
  readonly probeMetrics: KubeletAnswersComponents["probeMetrics"];
  readonly metrics: KubeletAnswersComponents["metrics"];
  readonly counts: NodeCounts;
  readonly startedAt: Date;
  /** Undefined: the page is off. */
  readonly page: PageOfNode | undefined;
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

/** The kubelet's, which no flag changes. */
const SYSTEM_LOGS = "/var/log";

function makeKubelet(
  { clock, log, node }: NodeStreamsComponents,
  { configuration, rootDir }: NodeStreamsInit,
): KubeletAnswers {
  const { machine, usage, view, why, probeMetrics, metrics, counts, startedAt, page } = node;
  return new KubeletAnswers({
    pods: () => view.pods(),
    ...{ probeMetrics, metrics, counts, clock, why },
    stats: makeNodeStats({ usage, clock, log }, { configuration, rootDir, startedAt }),
    ...(page === undefined ? {} : { page }),
    logFolder: configuration.enableSystemLogHandler ? SYSTEM_LOGS : undefined,
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
