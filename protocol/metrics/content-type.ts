/** The content type of Prometheus' text format. Apart from `metrics.ts`, which is loaded with the first scrape. */
export const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";
