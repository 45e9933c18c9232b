/** The kubelet's /metrics/resource (KEP-727): what metrics-server reads. */
import type { NodeUsage, Usage } from "../core/node/usage.ts";

interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge";
  readonly help: string;
  readonly of: (usage: Usage) => number | undefined;
}

const NANOSECONDS_PER_SECOND = 1e9;
const MS_PER_SECOND = 1000;

const metrics = (what: "node" | "pod" | "container"): readonly Metric[] => [
  {
    name: `${what}_cpu_usage_seconds_total`,
    type: "counter",
    help: `Cumulative cpu time consumed by the ${what} in core-seconds`,
    of: (usage) => usage.cpuNanoseconds / NANOSECONDS_PER_SECOND,
  },
  {
    name: `${what}_memory_working_set_bytes`,
    type: "gauge",
    help: `Current working set of the ${what} in bytes`,
    of: (usage) => usage.workingSetBytes,
  },
  {
    name: `${what}_swap_usage_bytes`,
    type: "gauge",
    help:
      what === "node"
        ? "Current swap usage of the node in bytes. Reported only on non-windows systems"
        : `Current amount of the ${what} swap usage in bytes. Reported only on non-windows systems`,
    of: (usage) => usage.swapBytes,
  },
];

const SWAP_LIMIT: Metric = {
  name: "container_swap_limit_bytes",
  type: "gauge",
  help: "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
  of: (usage) => usage.swapLimitBytes,
};

/** Names are as Kubernetes allows them; an annotation's text never gets here. */
const labels = (values: Readonly<Record<string, string>>): string => {
  const pairs = Object.entries(values).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
};

/** Lines of one metric for all that has it; none where nothing has. */
function* family(
  { name, type, help }: Pick<Metric, "name" | "type" | "help">,
  samples: Iterable<readonly [labels: Readonly<Record<string, string>>, value: number | undefined]>,
  atMs: number | undefined,
): Generator<string> {
  let isFirst = true;
  for (const [values, value] of samples) {
    if (value === undefined) continue;
    if (isFirst) yield `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    isFirst = false;
    yield `${name}${labels(values)} ${value}${atMs === undefined ? "" : ` ${atMs}`}\n`;
  }
}

/** @param sample undefined: there is none */
export function* resourceMetrics(sample: NodeUsage | undefined): Generator<string> {
  if (sample !== undefined) yield* figures(sample);
  const help = "1 if there was an error while getting container metrics, 0 otherwise";
  const failed = { name: "resource_scrape_error", type: "gauge", help } as const;
  yield* family(failed, [[{}, sample === undefined ? 1 : 0]], undefined);
}

function* figures({ atMs, node, pods }: NodeUsage): Generator<string> {
  for (const metric of metrics("node")) yield* family(metric, [[{}, metric.of(node)]], atMs);
  const podsWithUsage = pods.flatMap(({ pod, usage }) => {
    const { namespace, name } = pod.desired.pod.metadata;
    return usage === undefined ? [] : [{ values: { namespace, pod: name }, usage }];
  });
  for (const metric of metrics("pod")) {
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
  for (const metric of [...metrics("container"), SWAP_LIMIT]) {
    yield* family(
      metric,
      containers.map(({ values, usage }) => [values, metric.of(usage)] as const),
      atMs,
    );
  }
  const help = "Start time of the container since unix epoch in seconds";
  const started = { name: "container_start_time_seconds", type: "gauge", help } as const;
  yield* family(
    started,
    containers.map(({ values, startedAtMs }) => [values, startedAtMs / MS_PER_SECOND] as const),
    undefined,
  );
}
