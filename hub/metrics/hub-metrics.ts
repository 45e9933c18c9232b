/** The hub's own metrics, a line each. Nothing is counted here: the figures are read when a client scrapes. */
import { readdirSync, readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import type { LabelledCounts, LabelledLatencies, Latencies } from "@picolet/hub-core/counts.ts";
import { counter, gauge, histogram, type Metric, type Sample } from "@picolet/protocol/metrics/metrics.ts";
import { VERSION } from "@picolet/protocol/version.ts";

export interface TunnelFigures {
  readonly load: {
    readonly live: number;
    readonly greeting: number;
    readonly writing: number;
    readonly waiting: number;
  };
  readonly counts: {
    readonly sessions: number;
    readonly ends: LabelledCounts;
    readonly refusals: LabelledCounts;
    readonly statusWrites: Latencies;
    readonly desiredAcks: Latencies;
    readonly opened: LabelledLatencies;
    readonly notOpened: LabelledCounts;
    traffic(of: "bytes" | "frames"): Iterable<Sample<number>>;
  };
}

/** Figures of the embedded API server. */
export interface ApiServerFigures {
  readonly load: {
    readonly seats: number;
    readonly waiting: number;
    readonly bytes: number;
    readonly streams: number;
  };
  readonly counts: { readonly requests: LabelledCounts; readonly durations: LabelledLatencies };
}

/** Figures of the samples that boards push. */
export interface SampleFigures {
  /** Boards of which there are samples. */
  readonly boards: number;
  readonly pods: number;
  readonly received: number;
  readonly refused: number;
}

/** Where the hub's metrics come from. */
export interface HubFigures {
  readonly tunnel: TunnelFigures;
  readonly connections: { readonly connections: number; readonly pending: number };
  /** The status of the condition Ready of each board's Node. */
  readonly readiness: () => Iterable<string>;
  /** By verb and result, and by verb. */
  readonly calls: { readonly results: LabelledCounts; readonly durations: LabelledLatencies };
  /** By claim and result. */
  readonly certificates: LabelledCounts;
  readonly rollouts: { readonly phases: ReadonlyMap<string, number> };
  readonly telemetry: { readonly bytes: number; readonly dropped: number };
  readonly samples: SampleFigures;
  /** Undefined: the hub is in front of another API server. */
  readonly apiServer: ApiServerFigures | undefined;
}

const one = (value: number | undefined): readonly Sample<number>[] => [{ labels: [], value }];

/** The states of boards, so that each has a series: an alert on one that is missing would never be raised. */
const BOARD_STATES = { True: "ready", False: "not_ready", Unknown: "unknown" } as const;

function* boardStates({ readiness }: HubFigures): Iterable<Sample<number>> {
  const counts = new Map<string, number>(Object.values(BOARD_STATES).map((state) => [state, 0]));
  for (const ready of readiness()) {
    const state = ready === "True" || ready === "False" ? BOARD_STATES[ready] : BOARD_STATES.Unknown;
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  for (const [state, value] of counts) yield { labels: [state], value };
}

/** Metrics of a hub with the embedded API server alone. */
const ofApiServer =
  <Value>(figure: (figures: ApiServerFigures) => Iterable<Sample<Value>>) =>
  ({ apiServer }: HubFigures): Iterable<Sample<Value>> =>
    apiServer === undefined ? [] : figure(apiServer);

const MICROSECONDS = 1e6;
const MILLISECONDS = 1000;

/** Undefined where /proc does not say. */
function openFiles(): number | undefined {
  try {
    // The folder itself is open while it is read.
    return readdirSync("/proc/self/fd").length - 1;
  } catch {
    return undefined;
  }
}

/** Undefined: there is no such limit. */
function maxOpenFiles(): number | undefined {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / MICROSECONDS;
}

/** By the names of Prometheus' client libraries. */
const PROCESS_METRICS: readonly Metric<unknown>[] = [
  counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", [], () => one(cpuSeconds())),
  gauge("process_resident_memory_bytes", "Resident memory size in bytes.", [], () => one(process.memoryUsage.rss())),
  gauge("process_open_fds", "Number of open file descriptors.", [], () => one(openFiles())),
  gauge("process_max_fds", "Maximum number of open file descriptors.", [], () => one(maxOpenFiles())),
  gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", [], () =>
    one(performance.timeOrigin / MILLISECONDS),
  ),
  gauge("nodejs_heap_size_used_bytes", "Process heap size used from Node.js in bytes.", [], () =>
    one(process.memoryUsage().heapUsed),
  ),
  counter("nodejs_eventloop_active_seconds_total", "Seconds in which the event loop did something.", [], () =>
    one(performance.eventLoopUtilization().active / MILLISECONDS),
  ),
];

export const HUB_METRICS: readonly Metric<HubFigures>[] = [
  gauge("picolet_hub_build_info", "1, with the version of the hub.", ["version"], () => [
    { labels: [VERSION], value: 1 },
  ]),
  gauge(
    "picolet_hub_boards",
    "Boards of the fleet by the condition Ready of their Nodes, over all replicas.",
    ["state"],
    boardStates,
  ),
  gauge(
    "picolet_hub_sessions",
    "Sessions of boards with this replica: live, or greeting before the welcome.",
    ["state"],
    ({ tunnel: { load } }) => [
      { labels: ["live"], value: load.live },
      { labels: ["greeting"], value: load.greeting },
    ],
  ),
  counter("picolet_hub_sessions_started_total", "Sessions of boards that were welcomed.", [], ({ tunnel }) =>
    one(tunnel.counts.sessions),
  ),
  counter(
    "picolet_hub_sessions_ended_total",
    "Sessions of boards that ended, by the code of the reason.",
    ["code"],
    ({ tunnel }) => tunnel.counts.ends.samples(),
  ),
  counter(
    "picolet_hub_sessions_refused_total",
    "Tunnels that were refused before a session, by the HTTP status.",
    ["status"],
    ({ tunnel }) => tunnel.counts.refusals.samples(),
  ),
  counter(
    "picolet_hub_tunnel_bytes_total",
    "Bytes of frames in the tunnels by direction and kind of frame or message.",
    ["direction", "kind"],
    ({ tunnel }) => tunnel.counts.traffic("bytes"),
  ),
  counter(
    "picolet_hub_tunnel_frames_total",
    "Frames in the tunnels by direction and kind of frame or message.",
    ["direction", "kind"],
    ({ tunnel }) => tunnel.counts.traffic("frames"),
  ),
  gauge(
    "picolet_hub_writes",
    "Writes of boards to the API server: active, or waiting for a place.",
    ["state"],
    ({ tunnel: { load } }) => [
      { labels: ["active"], value: load.writing },
      { labels: ["waiting"], value: load.waiting },
    ],
  ),
  histogram(
    "picolet_hub_status_write_duration_seconds",
    "From the arrival of statuses to their being in the API server.",
    [],
    ({ tunnel }) => [{ labels: [], value: tunnel.counts.statusWrites }],
  ),
  histogram(
    "picolet_hub_desired_ack_duration_seconds",
    "From a revision of a desired set to its acknowledgement by the board.",
    [],
    ({ tunnel }) => [{ labels: [], value: tunnel.counts.desiredAcks }],
  ),
  histogram(
    "picolet_hub_stream_open_duration_seconds",
    "Until a board accepted a stream that the hub opened, by kind.",
    ["kind"],
    ({ tunnel }) => tunnel.counts.opened.samples(),
  ),
  counter(
    "picolet_hub_stream_open_failures_total",
    "Streams to boards that could not be opened, by kind and code.",
    ["kind", "code"],
    ({ tunnel }) => tunnel.counts.notOpened.samples(),
  ),
  gauge(
    "picolet_hub_board_port_connections",
    "Connections to the boards' port: identified, or pending without an identity yet.",
    ["state"],
    ({ connections: { connections, pending } }) => [
      { labels: ["identified"], value: connections - pending },
      { labels: ["pending"], value: pending },
    ],
  ),
  counter(
    "picolet_hub_certificate_claims_total",
    "Claims of keys to a board's name, for joining and renewal: granted, or the code of the refusal.",
    ["claim", "result"],
    ({ certificates }) => certificates.samples(),
  ),
  counter(
    "picolet_hub_api_calls_total",
    "Calls of the hub to its API server by verb and result.",
    ["verb", "result"],
    ({ calls }) => calls.results.samples(),
  ),
  histogram(
    "picolet_hub_api_call_duration_seconds",
    "Duration of calls of the hub to its API server by verb.",
    ["verb"],
    ({ calls }) => calls.durations.samples(),
  ),
  gauge("picolet_hub_rollouts", "Rollouts of updates by phase.", ["phase"], ({ rollouts }) =>
    [...rollouts.phases].map(([phase, value]) => ({ labels: [phase], value })),
  ),
  gauge("picolet_hub_telemetry_bytes", "Size of the kept telemetry of components.", [], ({ telemetry }) =>
    one(telemetry.bytes),
  ),
  counter(
    "picolet_hub_telemetry_batches_dropped_total",
    "Batches of telemetry that went for size or age.",
    [],
    ({ telemetry }) => one(telemetry.dropped),
  ),
  gauge("picolet_hub_sampled_boards", "Boards of which this replica has a sample of usage.", [], ({ samples }) =>
    one(samples.boards),
  ),
  gauge("picolet_hub_sampled_pods", "Pods in the newest samples of these boards.", [], ({ samples }) =>
    one(samples.pods),
  ),
  counter("picolet_hub_samples_received_total", "Samples of usage that boards sent.", [], ({ samples }) =>
    one(samples.received),
  ),
  counter(
    "picolet_hub_samples_refused_total",
    "Samples that could not be read, or whose time is in the future.",
    [],
    ({ samples }) => one(samples.refused),
  ),
  counter(
    "picolet_hub_api_server_requests_total",
    "Requests by HTTP to the embedded API server by verb (other: no resource) and status.",
    ["verb", "code"],
    ofApiServer(({ counts }) => counts.requests.samples()),
  ),
  histogram(
    "picolet_hub_api_server_request_duration_seconds",
    "Duration of requests by HTTP to the embedded API server by verb.",
    ["verb"],
    ofApiServer(({ counts }) => counts.durations.samples()),
  ),
  gauge(
    "picolet_hub_api_server_requests",
    "Requests to the embedded API server: active, waiting for their turn, or long-running streams and watches.",
    ["state"],
    ofApiServer(({ load }) => [
      { labels: ["active"], value: load.seats },
      { labels: ["waiting"], value: load.waiting },
      { labels: ["streams"], value: load.streams },
    ]),
  ),
  ...PROCESS_METRICS,
];
