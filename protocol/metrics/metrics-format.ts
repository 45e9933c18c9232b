import type { MetricsFormat } from "./metrics.ts";

/** Content types of the formats. */
export const METRICS_TYPES: Readonly<Record<MetricsFormat, string>> = {
  prometheus: "text/plain; version=0.0.4; charset=utf-8",
  openmetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/** The longest header that is read; scrapers' have 200 characters. */
const MAX_ACCEPT = 2048;

/** @param accept of the request; a client that does not prefer OpenMetrics 1.0 gets Prometheus' own format */
export function metricsFormatOf(accept: string | undefined): MetricsFormat {
  const qualities = { prometheus: 0, openmetrics: 0 };
  for (const range of (accept ?? "").slice(0, MAX_ACCEPT).split(",")) {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const of = (name: string): string | undefined =>
      parameters.find((parameter) => parameter.startsWith(`${name}=`))?.slice(name.length + 1);
    const quality = Number(of("q") ?? 1);
    if (type === "application/openmetrics-text" && of("version") === "1.0.0")
      qualities.openmetrics = Math.max(qualities.openmetrics, quality);
    else if (type === "text/plain" || type === "text/*" || type === "*/*")
      qualities.prometheus = Math.max(qualities.prometheus, quality);
  }
  return qualities.openmetrics > 0 && qualities.openmetrics >= qualities.prometheus ? "openmetrics" : "prometheus";
}
