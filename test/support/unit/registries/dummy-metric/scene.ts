/** A program: adds a made-up metric by a line of the agent's table, and prints what a scrape of the node answers. */
import type { UsageStatsComponents } from "@picolet/agent/stats/usage-stats.ts";
import { RecordedLog } from "../../ports/recorders.ts";
import { VirtualClock } from "../../ports/virtual-clock.ts";
import { addLines } from "../add-lines.ts";

addLines([
  {
    module: import.meta.resolve("@picolet/agent/metrics/agent-metrics.ts"),
    after: "export const RESOURCE_METRICS: readonly Metric<NodeFigures>[] = [",
    line: `  gauge("node_memory_rss_bytes", "Anonymous memory.", [], ofNode((usage) => usage.rssBytes)),`,
  },
]);

const { UsageStats } = await import("@picolet/agent/stats/usage-stats.ts");
const usage = { atMs: 5000, node: { rssBytes: 42, cpuNanoseconds: 1e9 }, pods: [] };
const components = {
  sampler: { sample: async () => usage },
  ...{ clock: new VirtualClock(), log: new RecordedLog() },
};
const stats = new UsageStats(components as unknown as UsageStatsComponents, {
  ...{ nodeName: "board", startedAt: new Date(0), volumePeriod: undefined as never },
});
console.log([...(await stats.resourceMetrics(new AbortController().signal))].join(""));
