/**
 * `/metrics`: the kubelet's own metrics (test/instrumentation of Kubernetes 1.34), a process' (those of every Prometheus
 * client), and the board's, whose names begin with `picolet_`. Loaded with the first scrape.
 */
import {
  counter,
  gauge,
  type HistogramValue,
  histogram,
  type Metric,
  type Sample,
} from "@picolet/protocol/metrics/metrics.ts";
import type { Counted, CountedTime, Marked, NodeCounts } from "../core/node/node-counts.ts";

export interface PodFigures {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** It does not come from an API server. */
  readonly isStatic: boolean;
  /** `Desired`, or `Orphan`: its source has removed it. */
  readonly config: "desired" | "orphan";
  /** A kubelet's words for the state of its worker. */
  readonly lifecycle: "sync" | "terminating" | "terminated";
  readonly isOver: boolean;
  readonly hasSandbox: boolean;
  readonly containers: number;
  readonly ephemeralContainers: number;
  /** Observed containers by their state. */
  readonly running: number;
  readonly created: number;
  readonly exited: number;
  readonly isComponent: boolean;
}

export interface VolumeFigures {
  readonly namespace: string;
  readonly claim: string;
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  readonly inodesUsed: number;
  /** Missing: no driver reports it. */
  readonly isAbnormal?: boolean;
}

export interface LogFigures {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly container: string;
  readonly bytes: number;
}

export interface ProcessFigures {
  readonly cpuSeconds: number;
  readonly startedAtMs: number;
  readonly residentBytes: number;
  readonly virtualBytes: number | undefined;
  readonly openDescriptors: number | undefined;
  readonly maxDescriptors: number | undefined;
}

/** Figures that a kubelet does not have. Undefined: unknown, or there is none. */
export interface BoardFigures {
  readonly version: string;
  readonly anonymousBytes: number;
  readonly memoryBudgetBytes: number;
  readonly tunnel: TunnelFigures | undefined;
  /** By eviction signal: bytes, inodes or processes until its hard threshold is met. */
  readonly evictionDistances: ReadonlyMap<string, number>;
  /** By condition: 1 while it holds. */
  readonly conditions: readonly (readonly [type: string, isTrue: boolean])[];
  readonly flashTodayBytes: number | undefined;
  readonly flashAgentTodayBytes: number;
  readonly flashAgentBudgetBytes: number;
  readonly telemetryQueuedRecords: number;
  readonly telemetryDroppedRecords: number;
  readonly telemetryForwardedRecords: number;
  readonly storeBytes: number | undefined;
  readonly isStoreDurable: boolean;
}

export interface TunnelFigures {
  readonly isConnected: boolean;
  readonly sessions: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  readonly rttSeconds: number | undefined;
  readonly pendingStatuses: number;
}

export interface KubeletFigures {
  readonly nodeName: string;
  readonly counts: NodeCounts;
  readonly cgroupVersion: number | undefined;
  readonly mirrorPods: number;
  /** Seconds until the client certificate expires; undefined: there is none. */
  readonly certificateSeconds: number | undefined;
  /** Seconds from the kernel's start to the agent's. */
  readonly startedAfterSeconds: number;
  readonly pods: readonly PodFigures[];
  readonly volumes: readonly VolumeFigures[];
  readonly logs: readonly LogFigures[];
  readonly process: ProcessFigures;
  readonly board: BoardFigures;
}

type Source = KubeletFigures;
type Samples = Iterable<Sample<number>>;

const one =
  (figure: (source: Source) => number | undefined) =>
  (source: Source): Samples => [{ labels: [], value: figure(source) }];

/** @param zero a counter without labels begins with 0 */
const counted = (name: Counted, help: string, labels: readonly string[]): Metric<Source> =>
  counter(name, help, labels, function* ({ counts }) {
    const found = [...counts.counts(name)];
    yield* found;
    if (found.length === 0 && labels.length === 0) yield { labels: [], value: 0 };
  });

const timed = (name: CountedTime, help: string, labels: readonly string[]): Metric<Source> =>
  histogram(name, help, labels, ({ counts }) => counts.times(name));

const marked = (name: Marked, help: string): Metric<Source> =>
  gauge(
    name,
    help,
    [],
    one(({ counts }) => counts.marked(name)),
  );

/** The kubelet names an operation `run_podsandbox`, and CRI `RunPodSandbox`. */
const operationOf = (method: string): string =>
  method
    .replace("PodSandbox", "Podsandbox")
    .replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`)
    .toLowerCase()
    .replace("update_container_resources", "update_container");

function* renamed<Value>(samples: Iterable<Sample<Value>>): Iterable<Sample<Value>> {
  for (const {
    labels: [method = ""],
    value,
  } of samples)
    yield { labels: [operationOf(method)], value };
}

function ofStatic(counts: (pod: PodFigures) => boolean): (source: Source) => Samples {
  return ({ pods }) =>
    [false, true].map((isStatic) => ({
      labels: [isStatic ? "true" : ""],
      value: pods.filter((pod) => pod.isStatic === isStatic && counts(pod)).length,
    }));
}

function* working({ pods }: Source): Samples {
  const found = new Map<string, number>();
  for (const { config, lifecycle, isStatic } of pods) {
    const key = [config, lifecycle, isStatic ? "true" : ""].join(" ");
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  for (const [key, value] of found) yield { labels: key.split(" "), value };
}

const CONTAINER_COUNTS: readonly number[] = [1, 2, 4, 8, 16];

function* containersPerPod({ pods }: Source): Iterable<Sample<HistogramValue>> {
  const counts = new Array<number>(CONTAINER_COUNTS.length + 1).fill(0);
  for (const { containers } of pods) {
    const fits = CONTAINER_COUNTS.findIndex((bound) => containers <= bound);
    const index = fits < 0 ? CONTAINER_COUNTS.length : fits;
    counts[index] = (counts[index] ?? 0) + 1;
  }
  const sum = pods.reduce((total, { containers }) => total + containers, 0);
  yield { labels: [], value: { bounds: CONTAINER_COUNTS, counts, sum } };
}

const sumOf = (pods: readonly PodFigures[], figure: (pod: PodFigures) => number): number =>
  pods.reduce((sum, pod) => sum + figure(pod), 0);

const HTTP = ["long_running", "method", "path", "server_type"];
const CLAIM = ["namespace", "persistentvolumeclaim"];

const ofVolume = (name: string, help: string, figure: (volume: VolumeFigures) => number): Metric<Source> =>
  gauge(`kubelet_volume_stats_${name}`, help, CLAIM, ({ volumes }) =>
    volumes.map((volume) => ({ labels: [volume.namespace, volume.claim], value: figure(volume) })),
  );

const POD_RESOURCES_CALLS = [
  [
    "kubelet_pod_resources_endpoint_errors_get",
    "Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
  ],
  [
    "kubelet_pod_resources_endpoint_requests_get",
    "Number of requests to the PodResource Get endpoint. Broken down by server api version.",
  ],
  [
    "kubelet_pod_resources_endpoint_requests_get_allocatable",
    "Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
  ],
  [
    "kubelet_pod_resources_endpoint_requests_list",
    "Number of requests to the PodResource List endpoint. Broken down by server api version.",
  ],
  [
    "kubelet_pod_resources_endpoint_requests_total",
    "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
  ],
] as const;

/** Metrics of plugins: a node without any has no series of them. */
const PLUGINS: readonly Metric<Source>[] = [
  timed("csi_operations_seconds", "Container Storage Interface operation duration with gRPC error code status total", [
    "driver_name",
    "grpc_status_code",
    "method_name",
    "migrated",
  ]),
  timed("dra_grpc_operations_duration_seconds", "Duration in seconds of the DRA gRPC operations", [
    "driver_name",
    "grpc_status_code",
    "method_name",
  ]),
  timed(
    "dra_operations_duration_seconds",
    "Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.",
    ["is_error", "operation_name"],
  ),
  timed(
    "kubelet_device_plugin_alloc_duration_seconds",
    "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
    ["resource_name"],
  ),
  counted(
    "kubelet_device_plugin_registration_total",
    "Cumulative number of device plugin registrations. Broken down by resource name.",
    ["resource_name"],
  ),
  ...POD_RESOURCES_CALLS.map(([name, what]) => counted(name, what, ["server_api_version"])),
  timed("storage_operation_duration_seconds", "Storage operation duration", [
    "migrated",
    "operation_name",
    "status",
    "volume_plugin",
  ]),
];

const KUBELET: readonly Metric<Source>[] = [
  gauge(
    "kubelet_active_pods",
    "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.",
    ["static"],
    ofStatic(({ isOver }) => !isOver),
  ),
  counted("kubelet_admission_rejections_total", "Cumulative number pod admission rejections by the Kubelet.", [
    "reason",
  ]),
  gauge(
    "kubelet_certificate_manager_client_ttl_seconds",
    "Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
    [],
    one(({ certificateSeconds }) => certificateSeconds ?? Number.POSITIVE_INFINITY),
  ),
  timed(
    "kubelet_cgroup_manager_duration_seconds",
    "Duration in seconds for cgroup manager operations. Broken down by method.",
    ["operation_type"],
  ),
  gauge(
    "kubelet_cgroup_version",
    "cgroup version on the hosts.",
    [],
    one(({ cgroupVersion }) => cgroupVersion),
  ),
  gauge(
    "kubelet_container_log_filesystem_used_bytes",
    "Bytes used by the container's logs on the filesystem.",
    ["container", "namespace", "pod", "uid"],
    ({ logs }) =>
      logs.map(({ container, namespace, pod, uid, bytes }) => ({
        labels: [container, namespace, pod, uid],
        value: bytes,
      })),
  ),
  histogram("kubelet_containers_per_pod_count", "The number of containers per pod.", [], containersPerPod),
  gauge(
    "kubelet_desired_pods",
    "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
    ["static"],
    ofStatic(({ config }) => config === "desired"),
  ),
  timed(
    "kubelet_eviction_stats_age_seconds",
    "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
    ["eviction_signal"],
  ),
  counted("kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ["eviction_signal"]),
  marked("kubelet_graceful_shutdown_end_time_seconds", "Last graceful shutdown end time since unix epoch in seconds"),
  marked(
    "kubelet_graceful_shutdown_start_time_seconds",
    "Last graceful shutdown start time since unix epoch in seconds",
  ),
  timed("kubelet_http_requests_duration_seconds", "Duration in seconds to serve http requests", HTTP),
  counted("kubelet_http_requests_total", "Number of the http requests received since the server started", HTTP),
  counted(
    "kubelet_image_garbage_collected_total",
    "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    ["reason"],
  ),
  timed("kubelet_image_pull_duration_seconds", "Duration in seconds to pull an image.", ["image_size_in_bytes"]),
  gauge(
    "kubelet_managed_ephemeral_containers",
    "Current number of ephemeral containers in pods managed by this kubelet.",
    [],
    one(({ pods }) => sumOf(pods, ({ ephemeralContainers }) => ephemeralContainers)),
  ),
  gauge(
    "kubelet_mirror_pods",
    "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
    [],
    one(({ mirrorPods }) => mirrorPods),
  ),
  gauge("kubelet_node_name", "The node's name. The count is always 1.", ["node"], ({ nodeName }) => [
    { labels: [nodeName], value: 1 },
  ]),
  gauge(
    "kubelet_node_startup_pre_kubelet_duration_seconds",
    "Duration in seconds of node startup before kubelet starts.",
    [],
    one(({ startedAfterSeconds }) => startedAfterSeconds),
  ),
  counted(
    "kubelet_orphaned_runtime_pods_total",
    "Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.",
    [],
  ),
  marked("kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active."),
  timed("kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", []),
  timed("kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", []),
  timed(
    "kubelet_pod_start_duration_seconds",
    "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
    [],
  ),
  timed(
    "kubelet_pod_worker_duration_seconds",
    "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
    ["operation_type"],
  ),
  timed(
    "kubelet_pod_worker_start_duration_seconds",
    "Duration in seconds from kubelet seeing a pod to starting a worker.",
    [],
  ),
  counted("kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource", ["preemption_signal"]),
  timed(
    "kubelet_run_podsandbox_duration_seconds",
    "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
    ["runtime_handler"],
  ),
  counted(
    "kubelet_run_podsandbox_errors_total",
    "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
    ["runtime_handler"],
  ),
  gauge("kubelet_running_containers", "Number of containers currently running", ["container_state"], ({ pods }) => [
    { labels: ["created"], value: sumOf(pods, ({ created }) => created) },
    { labels: ["exited"], value: sumOf(pods, ({ exited }) => exited) },
    { labels: ["running"], value: sumOf(pods, ({ running }) => running) },
  ]),
  gauge(
    "kubelet_running_pods",
    "Number of pods that have a running pod sandbox",
    [],
    one(({ pods }) => pods.filter(({ hasSandbox }) => hasSandbox).length),
  ),
  histogram(
    "kubelet_runtime_operations_duration_seconds",
    "Duration in seconds of runtime operations. Broken down by operation type.",
    ["operation_type"],
    ({ counts }) => renamed(counts.times("kubelet_runtime_operations_duration_seconds")),
  ),
  counter(
    "kubelet_runtime_operations_errors_total",
    "Cumulative number of runtime operation errors by operation type.",
    ["operation_type"],
    ({ counts }) => renamed(counts.counts("kubelet_runtime_operations_errors_total")),
  ),
  counter(
    "kubelet_runtime_operations_total",
    "Cumulative number of runtime operations by operation type.",
    ["operation_type"],
    ({ counts }) => renamed(counts.counts("kubelet_runtime_operations_total")),
  ),
  counted("kubelet_started_containers_errors_total", "Cumulative number of errors when starting containers", [
    "code",
    "container_type",
  ]),
  counted("kubelet_started_containers_total", "Cumulative number of containers started", ["container_type"]),
  counted("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods", []),
  counted("kubelet_started_pods_total", "Cumulative number of pods started", []),
  ofVolume("available_bytes", "Number of available bytes in the volume", ({ availableBytes }) => availableBytes),
  ofVolume("capacity_bytes", "Capacity in bytes of the volume", ({ capacityBytes }) => capacityBytes),
  gauge(
    "kubelet_volume_stats_health_status_abnormal",
    "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
    CLAIM,
    ({ volumes }) =>
      volumes.flatMap(({ namespace, claim, isAbnormal }) =>
        isAbnormal === undefined ? [] : [{ labels: [namespace, claim], value: Number(isAbnormal) }],
      ),
  ),
  ofVolume("inodes", "Maximum number of inodes in the volume", ({ inodes }) => inodes),
  ofVolume("inodes_free", "Number of free inodes in the volume", ({ inodesFree }) => inodesFree),
  ofVolume("inodes_used", "Number of used inodes in the volume", ({ inodesUsed }) => inodesUsed),
  ofVolume("used_bytes", "Number of used bytes in the volume", ({ usedBytes }) => usedBytes),
  gauge(
    "kubelet_working_pods",
    "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
    ["config", "lifecycle", "static"],
    working,
  ),
];

const PROCESS: readonly Metric<Source>[] = [
  counter(
    "process_cpu_seconds_total",
    "Total user and system CPU time spent in seconds.",
    [],
    one(({ process }) => process.cpuSeconds),
  ),
  gauge(
    "process_max_fds",
    "Maximum number of open file descriptors.",
    [],
    one(({ process }) => process.maxDescriptors),
  ),
  gauge(
    "process_open_fds",
    "Number of open file descriptors.",
    [],
    one(({ process }) => process.openDescriptors),
  ),
  gauge(
    "process_resident_memory_bytes",
    "Resident memory size in bytes.",
    [],
    one(({ process }) => process.residentBytes),
  ),
  gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
    [],
    one(({ process }) => process.startedAtMs / 1000),
  ),
  gauge(
    "process_virtual_memory_bytes",
    "Virtual memory size in bytes.",
    [],
    one(({ process }) => process.virtualBytes),
  ),
];

const ofTunnel =
  (figure: (tunnel: TunnelFigures) => number | undefined) =>
  ({ board: { tunnel } }: Source): Samples =>
    tunnel === undefined ? [] : [{ labels: [], value: figure(tunnel) }];

const BOARD: readonly Metric<Source>[] = [
  gauge(
    "picolet_agent_memory_anonymous_bytes",
    "Anonymous memory of the agent: what the kernel cannot drop.",
    [],
    one(({ board }) => board.anonymousBytes),
  ),
  gauge(
    "picolet_agent_memory_budget_bytes",
    "Budget of the agent's anonymous memory.",
    [],
    one(({ board }) => board.memoryBudgetBytes),
  ),
  gauge("picolet_build_info", "The agent's version. The value is always 1.", ["version"], ({ board }) => [
    { labels: [board.version], value: 1 },
  ]),
  gauge(
    "picolet_component_containers",
    "Number of containers that are running components.",
    [],
    one(({ pods }) => sumOf(pods, ({ isComponent, running }) => (isComponent ? running : 0))),
  ),
  counted("picolet_component_starts_total", "Cumulative number of components started.", []),
  gauge(
    "picolet_eviction_distance",
    "Bytes, inodes or processes that are left until the hard eviction threshold of the signal is met.",
    ["eviction_signal"],
    ({ board }) => [...board.evictionDistances].map(([signal, value]) => ({ labels: [signal], value })),
  ),
  gauge(
    "picolet_flash_agent_budget_bytes",
    "Budget of the bytes that the agent writes in a day.",
    [],
    one(({ board }) => board.flashAgentBudgetBytes),
  ),
  gauge(
    "picolet_flash_written_today_bytes",
    "Bytes written to the node's disks since midnight UTC, by the agent or by all programs.",
    ["writer"],
    ({ board }) => [
      { labels: ["agent"], value: board.flashAgentTodayBytes },
      { labels: ["all"], value: board.flashTodayBytes },
    ],
  ),
  gauge(
    "picolet_node_condition",
    "Conditions of the node; 1 while the condition is True.",
    ["condition"],
    ({ board }) => board.conditions.map(([type, isTrue]) => ({ labels: [type], value: isTrue ? 1 : 0 })),
  ),
  gauge(
    "picolet_store_durable",
    "1 while the agent's store keeps what is written to it, 0 while it is in memory only or cannot be written to.",
    [],
    one(({ board }) => (board.isStoreDurable ? 1 : 0)),
  ),
  gauge(
    "picolet_store_size_bytes",
    "Size of the agent's store on the disk.",
    [],
    one(({ board }) => board.storeBytes),
  ),
  counter(
    "picolet_telemetry_dropped_records_total",
    "Records of components' telemetry that were dropped because there was no room.",
    [],
    one(({ board }) => board.telemetryDroppedRecords),
  ),
  counter(
    "picolet_telemetry_forwarded_records_total",
    "Records of components' telemetry that the hub has acknowledged.",
    [],
    one(({ board }) => board.telemetryForwardedRecords),
  ),
  gauge(
    "picolet_telemetry_queued_records",
    "Records of components' telemetry that wait for the hub.",
    [],
    one(({ board }) => board.telemetryQueuedRecords),
  ),
  gauge(
    "picolet_tunnel_connected",
    "1 while there is a session with a hub.",
    [],
    ofTunnel(({ isConnected }) => (isConnected ? 1 : 0)),
  ),
  gauge(
    "picolet_tunnel_pending_statuses",
    "Statuses of pods that the hub has not acknowledged yet.",
    [],
    ofTunnel(({ pendingStatuses }) => pendingStatuses),
  ),
  counter(
    "picolet_tunnel_received_bytes_total",
    "Bytes received from hubs, without TLS and TCP.",
    [],
    ofTunnel(({ receivedBytes }) => receivedBytes),
  ),
  gauge(
    "picolet_tunnel_round_trip_seconds",
    "Round-trip time of the last heartbeat.",
    [],
    ofTunnel(({ rttSeconds }) => rttSeconds),
  ),
  counter(
    "picolet_tunnel_sent_bytes_total",
    "Bytes sent to hubs, without TLS and TCP.",
    [],
    ofTunnel(({ sentBytes }) => sentBytes),
  ),
  counter(
    "picolet_tunnel_sessions_total",
    "Sessions with hubs.",
    [],
    ofTunnel(({ sessions }) => sessions),
  ),
];

export const KUBELET_METRICS: readonly Metric<Source>[] = [...KUBELET, ...PLUGINS, ...PROCESS, ...BOARD];
