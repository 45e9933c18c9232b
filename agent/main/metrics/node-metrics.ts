/** The texts of `/metrics` and `/metrics/cadvisor`. Everything of them is loaded with the first scrape. */
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";
import type { UsageSampler } from "../../core/node/usage.ts";
import type { NodeCondition } from "../../node/node-conditions.ts";
import type { StatsSampler } from "../../stats/usage-stats.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";

export interface MetricsParts {
  readonly usage: StatsSampler & Pick<UsageSampler, "filesystems"> & Pick<NodeUsageSampler, "driverVolumes">;
  readonly view: NodeAgentView;
  readonly conditions: { readonly current: readonly NodeCondition[] };
}

/** @returns the text in pieces of whole lines */
export type NodeMetrics = (
  table: "kubelet" | "cadvisor",
  format: MetricsFormat,
  signal: AbortSignal,
) => Promise<Iterable<string>>;

export function nodeMetrics(base: AgentBase, parts: MetricsParts): NodeMetrics {
  let made: Promise<NodeMetrics> | undefined;
  return async (table, format, signal) => {
    made ??= import("./make-metrics.ts")
      .then(({ makeMetrics }) => makeMetrics(base, parts))
      .catch((error: unknown) => {
        made = undefined;
        throw error;
      });
    return (await made)(table, format, signal);
  };
}
