/** The kubelet's /metrics/resource (KEP-727): what metrics-server reads. */
import type { Usage } from "./cgroup-usage.ts";
import type { NodeUsage } from "./usage-stats.ts";

interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge";
  readonly help: string;
  readonly of: (usage: Usage) => number;
}

const NANOSECONDS_PER_SECOND = 1e9;
const MS_PER_SECOND = 1000;

const metrics = (prefix: string, what: string): readonly Metric[] => [
  {
    name: `${prefix}_cpu_usage_seconds_total`,
    type: "counter",
    help: `CPU time of the ${what} in core-seconds, of all time`,
    of: (usage) => usage.cpuNanoseconds / NANOSECONDS_PER_SECOND,
  },
  {
    name: `${prefix}_memory_working_set_bytes`,
    type: "gauge",
    help: `Working set of the ${what}`,
    of: (usage) => usage.workingSetBytes,
  },
  { name: `${prefix}_swap_usage_bytes`, type: "gauge", help: `Swap of the ${what}`, of: (usage) => usage.swapBytes },
];

/** Names are as Kubernetes allows them; an annotation's text never gets here. */
const labels = (values: Readonly<Record<string, string>>): string => {
  const pairs = Object.entries(values).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
};

/** Lines of one metric for all that has it. */
function* family(
  { name, type, help }: Pick<Metric, "name" | "type" | "help">,
  samples: Iterable<readonly [labels: Readonly<Record<string, string>>, value: number]>,
  atMs: number | undefined,
): Generator<string> {
  yield `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  for (const [values, value] of samples)
    yield `${name}${labels(values)} ${value}${atMs === undefined ? "" : ` ${atMs}`}\n`;
}

export function* resourceMetrics({ atMs, node, pods }: NodeUsage): Generator<string> {
  for (const metric of metrics("node", "node")) yield* family(metric, [[{}, metric.of(node)]], atMs);
  const podsWithUsage = pods.flatMap(({ pod, usage }) => {
    const { namespace, name } = pod.desired.pod.metadata;
    return usage === undefined ? [] : [{ values: { namespace, pod: name }, usage }];
  });
  for (const metric of metrics("pod", "pod")) {
    yield* family(
      metric,
      podsWithUsage.map(({ values, usage }) => [values, metric.of(usage)] as const),
      atMs,
    );
  }
  const containers = pods.flatMap(({ pod, containers: all }) => {
    const { namespace, name } = pod.desired.pod.metadata;
    return all.map(({ container, startedAtMs, usage }) => {
      return { values: { container: container.name, namespace, pod: name }, usage, startedAtMs };
    });
  });
  for (const metric of metrics("container", "container")) {
    yield* family(
      metric,
      containers.map(({ values, usage }) => [values, metric.of(usage)] as const),
      atMs,
    );
  }
  const started = {
    name: "container_start_time_seconds",
    type: "gauge",
    help: "When the container was started",
  } as const;
  yield* family(
    started,
    containers.map(({ values, startedAtMs }) => [values, startedAtMs / MS_PER_SECOND] as const),
    undefined,
  );
  const failed = { name: "resource_scrape_error", type: "gauge", help: "1 when the figures could not be got" } as const;
  yield* family(failed, [[{}, 0]], undefined);
}
