/**
 * The agent's metrics, a line each, in a table for each path of the kubelet that answers them. Names, types, labels and
 * help are the kubelet's. Loaded with the first scrape.
 */
import {
  counter,
  gauge,
  type HistogramValue,
  histogram,
  type Metric,
  type Sample,
} from "@picolet/protocol/metrics/metrics.ts";
import type { NodeUsage, PodUsage, Usage } from "../core/node/usage.ts";

type Figure = (usage: Usage) => number | undefined;
type NodeFigures = NodeUsage | undefined;
type Samples = Iterable<Sample<number>>;

const POD = ["namespace", "pod"];
const CONTAINER = ["container", "namespace", "pod"];
const PROBE = [...CONTAINER, "probe_type"];
const PROBE_RESULT = [...CONTAINER, "pod_uid", "probe_type", "result"];

const cpuSeconds: Figure = ({ cpuNanoseconds }) => cpuNanoseconds / 1e9;
const workingSet: Figure = ({ workingSetBytes }) => workingSetBytes;
const swap: Figure = ({ swapBytes }) => swapBytes;
const swapLimit: Figure = ({ swapLimitBytes }) => swapLimitBytes;

/** `/metrics/resource` (KEP-727), which metrics-server reads. The source is undefined when nothing could be read. */
export const RESOURCE_METRICS: readonly Metric<NodeFigures>[] = [
  counter("node_cpu_usage_seconds_total", cpuHelp("node"), [], ofNode(cpuSeconds)),
  gauge("node_memory_working_set_bytes", workingSetHelp("node"), [], ofNode(workingSet)),
  gauge(
    "node_swap_usage_bytes",
    "Current swap usage of the node in bytes. Reported only on non-windows systems",
    [],
    ofNode(swap),
  ),
  counter("pod_cpu_usage_seconds_total", cpuHelp("pod"), POD, ofPods(cpuSeconds)),
  gauge("pod_memory_working_set_bytes", workingSetHelp("pod"), POD, ofPods(workingSet)),
  gauge("pod_swap_usage_bytes", swapHelp("pod swap usage"), POD, ofPods(swap)),
  counter("container_cpu_usage_seconds_total", cpuHelp("container"), CONTAINER, ofContainers(cpuSeconds)),
  gauge("container_memory_working_set_bytes", workingSetHelp("container"), CONTAINER, ofContainers(workingSet)),
  gauge("container_swap_usage_bytes", swapHelp("container swap usage"), CONTAINER, ofContainers(swap)),
  gauge("container_swap_limit_bytes", swapHelp("container swap limit"), CONTAINER, ofContainers(swapLimit)),
  gauge(
    "container_start_time_seconds",
    "Start time of the container since unix epoch in seconds",
    CONTAINER,
    startTimes,
  ),
  gauge(
    "resource_scrape_error",
    "1 if there was an error while getting container metrics, 0 otherwise",
    [],
    (figures) => [{ labels: [], value: figures === undefined ? 1 : 0 }],
  ),
];

/** The counts of one probe of a container over all of its runs, with the names that its series have. */
export interface ProbeFigures {
  readonly container: string;
  readonly namespace: string;
  readonly pod: string;
  readonly podUid: string;
  /** Startup, Liveness or Readiness. */
  readonly kind: string;
  readonly failed: number;
  readonly successful: number;
  /** Seconds of the successful ones; undefined without one. */
  readonly durations: HistogramValue | undefined;
}

/** `/metrics/probes`. */
export const PROBE_METRICS: readonly Metric<() => Iterable<ProbeFigures>>[] = [
  counter(
    "prober_probe_total",
    "[BETA] How often a probe of a container ended, by its result.",
    PROBE_RESULT,
    function* (probes) {
      for (const { container, namespace, pod, podUid, kind, failed, successful } of probes()) {
        const labels = [container, namespace, pod, podUid, kind];
        if (failed > 0) yield { labels: [...labels, "failed"], value: failed };
        if (successful > 0) yield { labels: [...labels, "successful"], value: successful };
      }
    },
  ),
  histogram(
    "prober_probe_duration_seconds",
    "[ALPHA] How long successful probes took, in seconds.",
    PROBE,
    function* (probes) {
      for (const { container, namespace, pod, kind, durations } of probes())
        yield { labels: [container, namespace, pod, kind], value: durations };
    },
  ),
];

function cpuHelp(of: string): string {
  return `Cumulative cpu time consumed by the ${of} in core-seconds`;
}

function workingSetHelp(of: string): string {
  return `Current working set of the ${of} in bytes`;
}

function swapHelp(what: string): string {
  return `Current amount of the ${what} in bytes. Reported only on non-windows systems`;
}

function ofNode(figure: Figure): (figures: NodeFigures) => Samples {
  return (figures) => (figures === undefined ? [] : [{ labels: [], value: figure(figures.node), atMs: figures.atMs }]);
}

function ofPods(figure: Figure): (figures: NodeFigures) => Samples {
  return function* (figures) {
    for (const each of figures?.pods ?? [])
      if (each.usage !== undefined) yield { labels: namesOf(each), value: figure(each.usage), atMs: figures?.atMs };
  };
}

function ofContainers(figure: Figure): (figures: NodeFigures) => Samples {
  return function* (figures) {
    for (const each of figures?.pods ?? []) {
      for (const { container, usage } of each.containers)
        yield { labels: [container.name, ...namesOf(each)], value: figure(usage), atMs: figures?.atMs };
    }
  };
}

function* startTimes(figures: NodeFigures): Samples {
  for (const each of figures?.pods ?? []) {
    for (const { container, startedAtMs } of each.containers)
      yield { labels: [container.name, ...namesOf(each)], value: startedAtMs / 1000 };
  }
}

function namesOf({ pod }: PodUsage): readonly string[] {
  const { namespace, name } = pod.desired.pod.metadata;
  return [namespace, name];
}
