/** `/federate`: the figures of all boards, of some, or of some metrics. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { type Metric, type MetricsFormat, metricsText } from "@picolet/protocol/metrics/metrics.ts";
import type { BoardSamples } from "./board-samples.ts";
import { FLEET_METRICS, type FleetUsage } from "./fleet-metrics.ts";
import { SeriesSelectors } from "./series-selector.ts";

/** Series of one metric: ten pods of two containers on each of 10,000 boards. */
const MAX_FLEET_SERIES = 200_000;
/** Boards that one request names. */
const MAX_NODES = 1000;
const PARAMETERS: ReadonlySet<string> = new Set(["match[]", "node"]);

/** @param query `match[]`, as Prometheus' own, and `node`, both repeated. @throws `invalid` for a wrong one */
export function federate(
  samples: Pick<BoardSamples, "all" | "of">,
  format: MetricsFormat,
  query: URLSearchParams,
): Iterable<string> {
  for (const name of query.keys()) {
    if (!PARAMETERS.has(name))
      throw new PicoletError("invalid", `cannot federate: ${name} is neither match[] nor node`);
  }
  const nodes = query.getAll("node");
  if (nodes.length > MAX_NODES) throw new PicoletError("invalid", `cannot federate more than ${MAX_NODES} nodes`);
  const bad = nodes.find((node) => dnsSubdomainProblems(node).length > 0);
  if (bad !== undefined) throw new PicoletError("invalid", `cannot federate node ${JSON.stringify(bad.slice(0, 100))}`);
  const selectors = new SeriesSelectors(query.getAll("match[]"));
  const metrics = FLEET_METRICS.filter(({ name }) => selectors.hasMetric(name)).map((metric) =>
    selected(metric, selectors),
  );
  const usage: FleetUsage = () => (nodes.length === 0 ? samples.all() : samples.of(new Set(nodes)));
  return metricsText(metrics, usage, format, MAX_FLEET_SERIES);
}

function selected(metric: Metric<FleetUsage>, selectors: SeriesSelectors): Metric<FleetUsage> {
  const { name, labels } = metric;
  return {
    ...metric,
    *collect(fleet) {
      for (const sample of metric.collect(fleet)) {
        const value = (label: string): string => sample.labels[labels.indexOf(label)] ?? "";
        if (selectors.selects(name, value)) yield sample;
      }
    },
  };
}
