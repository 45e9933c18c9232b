/**
 * Counts of events on the node, made where they happen and read when a client scrapes `/metrics`. The names are those
 * of the metrics. A name has no memory before its first count.
 */
import { isCancelled } from "@picolet/protocol/errors.ts";
import { DEFAULT_BOUNDS, Distribution } from "@picolet/protocol/metrics/distribution.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

/** Bounds in seconds. Those that are not Prometheus' own are the kubelet's. */
const START_BOUNDS: readonly number[] = [
  ...[0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600],
];
const PULL_BOUNDS = START_BOUNDS.filter((bound) => ![0.5, 2, 3, 4, 6, 8, 45].includes(bound));
/** Ends above 745 s: from 5 ms each is 2.5 times the one before. */
const RUNTIME_BOUNDS: readonly number[] = Array.from({ length: 14 }, (_, power) => 0.005 * 2.5 ** power);
/** The calls of DRA drivers end after 45 s: from 0.1 s to 40 s in 14 equal factors. */
const CLAIM_BOUNDS: readonly number[] = Array.from({ length: 15 }, (_, power) => 0.1 * 400 ** (power / 14));
const STORAGE_BOUNDS: readonly number[] = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600];

const TIMES = {
  csi_operations_seconds: STORAGE_BOUNDS,
  dra_grpc_operations_duration_seconds: CLAIM_BOUNDS,
  dra_operations_duration_seconds: CLAIM_BOUNDS,
  kubelet_cgroup_manager_duration_seconds: DEFAULT_BOUNDS,
  kubelet_device_plugin_alloc_duration_seconds: DEFAULT_BOUNDS,
  kubelet_eviction_stats_age_seconds: DEFAULT_BOUNDS,
  kubelet_http_requests_duration_seconds: DEFAULT_BOUNDS,
  kubelet_image_pull_duration_seconds: PULL_BOUNDS,
  kubelet_pleg_relist_duration_seconds: DEFAULT_BOUNDS,
  kubelet_pleg_relist_interval_seconds: DEFAULT_BOUNDS,
  kubelet_pod_start_duration_seconds: START_BOUNDS,
  kubelet_pod_worker_duration_seconds: DEFAULT_BOUNDS,
  kubelet_pod_worker_start_duration_seconds: DEFAULT_BOUNDS,
  kubelet_run_podsandbox_duration_seconds: DEFAULT_BOUNDS,
  kubelet_runtime_operations_duration_seconds: RUNTIME_BOUNDS,
  storage_operation_duration_seconds: STORAGE_BOUNDS,
} as const;

export type CountedTime = keyof typeof TIMES;

export type Counted =
  | "kubelet_admission_rejections_total"
  | "kubelet_device_plugin_registration_total"
  | "kubelet_evictions"
  | "kubelet_http_requests_total"
  | "kubelet_image_garbage_collected_total"
  | "kubelet_orphaned_runtime_pods_total"
  | "kubelet_pod_resources_endpoint_errors_get"
  | "kubelet_pod_resources_endpoint_requests_get"
  | "kubelet_pod_resources_endpoint_requests_get_allocatable"
  | "kubelet_pod_resources_endpoint_requests_list"
  | "kubelet_pod_resources_endpoint_requests_total"
  | "kubelet_preemptions"
  | "kubelet_run_podsandbox_errors_total"
  | "kubelet_runtime_operations_errors_total"
  | "kubelet_runtime_operations_total"
  | "kubelet_started_containers_errors_total"
  | "kubelet_started_containers_total"
  | "kubelet_started_pods_errors_total"
  | "kubelet_started_pods_total"
  | "picolet_component_starts_total";

/** The last value of something, as a gauge has it. */
export type Marked =
  | "kubelet_graceful_shutdown_end_time_seconds"
  | "kubelet_graceful_shutdown_start_time_seconds"
  | "kubelet_pleg_last_seen_seconds";

/** Bounds the series of one name: labels are reasons, operations and signals, some tens. Further ones are not counted. */
const MAX_LABELS = 256;
/** No label has it. */
const SEPARATOR = "\0";

export class NodeCounts {
  readonly #counts = new Map<Counted, Map<string, number>>();
  readonly #times = new Map<CountedTime, Map<string, Distribution>>();
  readonly #marks = new Map<Marked, number>();

  /** @param labels the values of the metric's labels, in their order */
  add(name: Counted, ...labels: readonly string[]): void {
    const counts = this.#counts.get(name) ?? new Map<string, number>();
    this.#counts.set(name, counts);
    const key = labels.join(SEPARATOR);
    const before = counts.get(key);
    if (before !== undefined || counts.size < MAX_LABELS) counts.set(key, (before ?? 0) + 1);
  }

  observe(name: CountedTime, ms: number, ...labels: readonly string[]): void {
    const times = this.#times.get(name) ?? new Map<string, Distribution>();
    this.#times.set(name, times);
    const key = labels.join(SEPARATOR);
    let known = times.get(key);
    if (known === undefined) {
      if (times.size >= MAX_LABELS) return;
      known = new Distribution(TIMES[name]);
      times.set(key, known);
    }
    known.observe(ms / 1000);
  }

  mark(name: Marked, value: number): void {
    this.#marks.set(name, value);
  }

  *counts(name: Counted): Iterable<{ readonly labels: readonly string[]; readonly value: number }> {
    for (const [key, value] of this.#counts.get(name) ?? []) yield { labels: key.split(SEPARATOR), value };
  }

  *times(name: CountedTime): Iterable<{ readonly labels: readonly string[]; readonly value: Distribution }> {
    for (const [key, value] of this.#times.get(name) ?? []) yield { labels: key.split(SEPARATOR), value };
  }

  marked(name: Marked): number | undefined {
    return this.#marks.get(name);
  }
}

/**
 * Observes how long the work takes, whether it succeeds or fails. Work that is cancelled does not count.
 * @param labelsOf gets undefined for work that succeeded
 */
export async function timed<T>(
  { clock, counts }: { readonly clock: Clock; readonly counts?: NodeCounts | undefined },
  name: CountedTime,
  labelsOf: (error: unknown) => readonly string[],
  work: () => Promise<T>,
): Promise<T> {
  const began = clock.monotonic();
  const observe = (error: unknown): void => counts?.observe(name, clock.monotonic() - began, ...labelsOf(error));
  try {
    const result = await work();
    observe(undefined);
    return result;
  } catch (error) {
    if (!isCancelled(error)) observe(error);
    throw error;
  }
}
