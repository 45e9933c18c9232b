/** docs/metrics.md. Pure. */
import type { Metric } from "@picolet/protocol/metrics/metrics.ts";
import { code, prose, table } from "./markdown.ts";

type ShownMetric = Pick<Metric<never>, "name" | "type" | "labels" | "help">;

export interface MetricsPath {
  readonly path: string;
  readonly what: string;
  readonly metrics: readonly ShownMetric[];
}

const INTRODUCTION = `# Metrics of a board

<!-- Made by \`npm run docs\` of the tables of metrics: do not edit. -->

A board answers the kubelet's paths with the kubelet's names, labels and types, so that dashboards for kubelets work.
\`test/conformance/metrics/published-metrics.ts\` compares them with the list of Kubernetes 1.34, and has the reason of
each metric that is missing. Names that begin with \`picolet_\` are picolet's own.

Through the hub, with the right \`get\` on \`nodes/proxy\` or \`nodes/metrics\`:

<!-- not run: its output differs from board to board -->
\`\`\`sh
kubectl get --raw /api/v1/nodes/NODE/proxy/metrics
\`\`\`

A client that asks for OpenMetrics (\`Accept: application/openmetrics-text\`) gets it, without exemplars. Nothing is
sampled and no text is made before a client asks. A metric has at most 10,000 series.

To watch a fleet, do not scrape each board: a hub that wants it gets a sample of each board's usage once a minute,
which takes 130 bytes with ten pods at rest, and serves them all.
`;

export function metricsReference(paths: readonly MetricsPath[]): string {
  const sections = paths.map(({ path, what, metrics }) => {
    const rows = metrics.map(({ name, type, labels, help }) => [
      code(name),
      type,
      labels.map(code).join(", "),
      prose(help),
    ]);
    return `## ${path}\n\n${what}\n\n${table(["metric", "type", "labels", "meaning"], rows)}\n`;
  });
  return [INTRODUCTION, ...sections].join("\n");
}
