/** The content types of metrics, apart from `metrics.ts`, which is loaded with the first scrape. */
import type { MetricsFormat } from "./metrics.ts";

/** Prometheus' text format. */
export const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";
export const OPENMETRICS_TEXT = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/**
 * @param accept the client's `Accept` header; Prometheus' names OpenMetrics first with the same or a greater weight
 * @returns Prometheus' format for a client that does not prefer OpenMetrics
 */
export function formatOf(accept: string): MetricsFormat {
  const weights = { openmetrics: 0, prometheus: 0 };
  for (const range of accept.split(",", 32)) {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const quality = Number(parameters.find((each) => each.startsWith("q="))?.slice(2) ?? 1);
    const format = type === "application/openmetrics-text" ? "openmetrics" : "prometheus";
    if (quality > weights[format]) weights[format] = quality;
  }
  return weights.openmetrics > 0 && weights.openmetrics >= weights.prometheus ? "openmetrics" : "prometheus";
}
