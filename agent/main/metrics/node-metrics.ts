/** The texts of `/metrics` and `/metrics/cadvisor`. Everything of them is loaded with the first scrape. */
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { MetricsParts } from "./make-metrics.ts";

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
