/** The boards' figures as metrics, a line each: for `/federate`, and for the kubelet endpoint of one node. */
import { counter, gauge, type Metric, type Sample } from "@picolet/protocol/metrics/metrics.ts";
import type { BoardFigures, FilesystemFigures, NodeFigures } from "@picolet/protocol/telemetry/usage-sample.ts";
import type { BoardUsage, ContainerUsage, Counter } from "./board-samples.ts";

/** Called once for each metric. */
export type FleetUsage = () => Iterable<readonly [node: string, usage: BoardUsage]>;
type Samples = Iterable<Sample<number>>;
type Collect = (fleet: FleetUsage) => Samples;

const NODE = ["node"];
const POD = ["namespace", "node", "pod"];
const CONTAINER = ["container", "namespace", "node", "pod"];
const FILESYSTEM = ["filesystem", "node"];

const cpuSeconds = ({ cpuMs }: Counter): number => cpuMs / 1000;
const workingSet = ({ workingSetBytes }: Counter): number => workingSetBytes;

const ofNodes = (figure: (board: BoardUsage) => number | undefined): Collect =>
  function* (fleet) {
    for (const [node, board] of fleet()) yield { labels: [node], value: figure(board), atMs: board.atMs };
  };

const ofPods = (figure: (usage: Counter) => number): Collect =>
  function* (fleet) {
    for (const [node, { pods, atMs }] of fleet()) {
      for (const { pod, usage } of pods)
        if (usage !== undefined) yield { labels: [pod.namespace, node, pod.name], value: figure(usage), atMs };
    }
  };

const ofContainers = (figure: (usage: ContainerUsage) => number): Collect =>
  function* (fleet) {
    for (const [node, { pods, atMs }] of fleet()) {
      for (const { pod, containers } of pods) {
        for (const usage of containers)
          yield { labels: [usage.container.name, pod.namespace, node, pod.name], value: figure(usage), atMs };
      }
    }
  };

const ofUsage = (figure: (usage: Counter) => number): Collect =>
  ofNodes(({ usage }) => (usage === undefined ? undefined : figure(usage)));

const ofNodeFigure = (name: keyof NodeFigures): Collect => ofNodes(({ node }) => node[name]);

const ofBoardFigure = (name: keyof BoardFigures, scale = 1): Collect =>
  ofNodes(({ board }) => {
    const value = board[name];
    return value === undefined ? undefined : value / scale;
  });

const ofFilesystems = (name: keyof FilesystemFigures): Collect =>
  function* (fleet) {
    for (const [node, { filesystems, atMs }] of fleet()) {
      for (const [filesystem, figures] of Object.entries(filesystems))
        yield { labels: [filesystem, node], value: figures[name], atMs };
    }
  };

const DISTANCES: readonly (readonly [signal: string, figure: keyof BoardFigures])[] = [
  ["memory.available", "memoryDistanceBytes"],
  ["nodefs.available", "nodefsDistanceBytes"],
  ["imagefs.available", "imagefsDistanceBytes"],
];

const evictionDistances: Collect = function* (fleet) {
  for (const [node, { board, atMs }] of fleet()) {
    for (const [signal, figure] of DISTANCES) yield { labels: [node, signal], value: board[figure], atMs };
  }
};

/** Names, types and help are the kubelet's. */
const KUBELET_METRICS: readonly Metric<FleetUsage>[] = [
  counter(
    "node_cpu_usage_seconds_total",
    "Cumulative cpu time consumed by the node in core-seconds",
    NODE,
    ofUsage(cpuSeconds),
  ),
  gauge("node_memory_working_set_bytes", "Current working set of the node in bytes", NODE, ofUsage(workingSet)),
  gauge(
    "node_swap_usage_bytes",
    "Current swap usage of the node in bytes. Reported only on non-windows systems",
    NODE,
    ofNodeFigure("swapBytes"),
  ),
  counter(
    "pod_cpu_usage_seconds_total",
    "Cumulative cpu time consumed by the pod in core-seconds",
    POD,
    ofPods(cpuSeconds),
  ),
  gauge("pod_memory_working_set_bytes", "Current working set of the pod in bytes", POD, ofPods(workingSet)),
  counter(
    "container_cpu_usage_seconds_total",
    "Cumulative cpu time consumed by the container in core-seconds",
    CONTAINER,
    ofContainers(cpuSeconds),
  ),
  gauge(
    "container_memory_working_set_bytes",
    "Current working set of the container in bytes",
    CONTAINER,
    ofContainers(workingSet),
  ),
  gauge(
    "container_start_time_seconds",
    "Start time of the container since unix epoch in seconds",
    CONTAINER,
    ofContainers(({ container }) => container.sinceSeconds),
  ),
];

/** `/federate`. */
export const FLEET_METRICS: readonly Metric<FleetUsage>[] = [
  ...KUBELET_METRICS,
  gauge(
    "machine_memory_bytes",
    "Amount of memory installed on the machine.",
    NODE,
    ofNodeFigure("memoryCapacityBytes"),
  ),
  gauge("picolet_board_processes", "Processes on the board.", NODE, ofNodeFigure("processes")),
  gauge(
    "picolet_board_filesystem_capacity_bytes",
    "Size of the kubelet's file systems of the board.",
    FILESYSTEM,
    ofFilesystems("capacityBytes"),
  ),
  gauge(
    "picolet_board_filesystem_available_bytes",
    "What is left of the kubelet's file systems of the board.",
    FILESYSTEM,
    ofFilesystems("availableBytes"),
  ),
  gauge(
    "picolet_board_filesystem_used_bytes",
    "What is used of the kubelet's file systems of the board.",
    FILESYSTEM,
    ofFilesystems("usedBytes"),
  ),
  gauge(
    "picolet_board_filesystem_inodes_free",
    "Free inodes of the kubelet's file systems of the board.",
    FILESYSTEM,
    ofFilesystems("inodesFree"),
  ),
  counter(
    "picolet_board_agent_cpu_seconds_total",
    "CPU time of the board's agent.",
    NODE,
    ofBoardFigure("agentCpuMs", 1000),
  ),
  gauge(
    "picolet_board_agent_anonymous_bytes",
    "Anonymous memory of the board's agent.",
    NODE,
    ofBoardFigure("agentAnonymousBytes"),
  ),
  gauge(
    "picolet_board_agent_start_time_seconds",
    "Start time of the board's agent since unix epoch in seconds.",
    NODE,
    ofNodes(({ agentSinceSeconds }) => (agentSinceSeconds === 0 ? undefined : agentSinceSeconds)),
  ),
  counter(
    "picolet_board_tunnel_received_bytes_total",
    "Bytes that the board's agent received through the tunnel.",
    NODE,
    ofBoardFigure("tunnelReceivedBytes"),
  ),
  counter(
    "picolet_board_tunnel_sent_bytes_total",
    "Bytes that the board's agent sent through the tunnel.",
    NODE,
    ofBoardFigure("tunnelSentBytes"),
  ),
  counter(
    "picolet_board_tunnel_sessions_total",
    "Sessions of the tunnel since the board's agent started.",
    NODE,
    ofBoardFigure("tunnelSessions"),
  ),
  gauge(
    "picolet_board_flash_written_today_bytes",
    "Bytes that the board's agent wrote to its disk in this day of its own.",
    NODE,
    ofBoardFigure("flashTodayBytes"),
  ),
  gauge(
    "picolet_board_eviction_distance_bytes",
    "What is left until the board evicts pods, by signal; 0: the threshold is reached.",
    ["node", "signal"],
    evictionDistances,
  ),
  gauge(
    "picolet_board_eviction_distance_processes",
    "Processes that are left until the board evicts pods.",
    NODE,
    ofBoardFigure("processesDistance"),
  ),
];

/** `/metrics/resource` of one node, as its kubelet has it: without the node's name. */
export const NODE_RESOURCE_METRICS: readonly Metric<FleetUsage>[] = [
  ...KUBELET_METRICS.map((metric): Metric<FleetUsage> => {
    const place = metric.labels.indexOf("node");
    return {
      ...metric,
      labels: metric.labels.filter((label) => label !== "node"),
      *collect(fleet) {
        for (const sample of metric.collect(fleet))
          yield { ...sample, labels: sample.labels.filter((_, index) => index !== place) };
      },
    };
  }),
  gauge("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", [], () => [
    { labels: [], value: 0 },
  ]),
];
