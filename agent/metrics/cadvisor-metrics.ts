/**
 * `/metrics/cadvisor`: the usage of cgroups, with cAdvisor's names, labels, types and help (its
 * docs/storage/prometheus.md), as a kubelet shows them. A pod's cgroup has no container and no image; what stands above
 * all pods has no pod. Loaded with the first scrape.
 */
import { counter, gauge, type Metric, type Sample } from "@picolet/protocol/metrics/metrics.ts";
import type { CgroupDetails, DeviceTraffic } from "../core/node/cgroup-details.ts";
import type { FilesystemUsage, PressureStalls, Usage } from "../core/node/usage.ts";

export interface CgroupFigures {
  /** Its path; the root is `/`. */
  readonly id: string;
  readonly container: string;
  readonly image: string;
  /** The runtime's id of a container. */
  readonly name: string;
  readonly namespace: string;
  readonly pod: string;
  readonly startedAtMs: number | undefined;
  readonly usage: Usage;
  readonly details: CgroupDetails;
  /** Interfaces of the pod's network namespace, or of the machine; empty: it has none of its own. */
  readonly interfaces: readonly InterfaceFigures[];
  /** The node's file systems by their device, for the root alone. */
  readonly filesystems: readonly (readonly [device: string, usage: FilesystemUsage])[];
}

export interface InterfaceFigures {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxPackets: number;
  readonly rxErrors: number;
  readonly rxDropped: number;
  readonly txBytes: number;
  readonly txPackets: number;
  readonly txErrors: number;
  readonly txDropped: number;
}

export interface MachineFigures {
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly cpus: number;
  readonly physicalCores: number | undefined;
  readonly sockets: number | undefined;
  readonly memoryBytes: number;
  readonly swapBytes: number;
}

export interface CadvisorFigures {
  /** Wall time of the sample. */
  readonly atMs: number;
  readonly machine: MachineFigures;
  readonly kernelVersion: string;
  readonly osVersion: string;
  readonly version: string;
  readonly cgroups: readonly CgroupFigures[];
}

/** Undefined: nothing could be read. */
type Source = CadvisorFigures | undefined;
type Samples = Iterable<Sample<number>>;
type Figure = (cgroup: CgroupFigures) => number | undefined;
type Rows = (cgroup: CgroupFigures) => Iterable<readonly [labels: readonly string[], value: number | undefined]>;

const LABELS = ["container", "id", "image", "name", "namespace", "pod"];
const MACHINE_LABELS = ["boot_id", "machine_id", "system_uuid"];
const MICROSECONDS = 1e6;

const labelsOf = ({ container, id, image, name, namespace, pod }: CgroupFigures): readonly string[] => [
  ...[container, id, image, name, namespace, pod],
];

function each(figure: Figure, isTimed = true): (source: Source) => Samples {
  return function* (source) {
    for (const cgroup of source?.cgroups ?? [])
      yield { labels: labelsOf(cgroup), value: figure(cgroup), atMs: isTimed ? source?.atMs : undefined };
  };
}

function rows(of: Rows): (source: Source) => Samples {
  return function* (source) {
    for (const cgroup of source?.cgroups ?? [])
      for (const [labels, value] of of(cgroup))
        yield { labels: [...labelsOf(cgroup), ...labels], value, atMs: source?.atMs };
  };
}

const machine = (figure: (machine: MachineFigures) => number | undefined) =>
  function* (source: Source): Samples {
    if (source === undefined) return;
    const { bootID, machineID, systemUUID } = source.machine;
    yield { labels: [bootID, machineID, systemUUID], value: figure(source.machine) };
  };

const ofDetails =
  (name: keyof Omit<CgroupDetails, "traffic">): Figure =>
  ({ details }) =>
    details[name];
const ofUsage =
  (name: "memoryBytes" | "workingSetBytes" | "rssBytes" | "swapBytes"): Figure =>
  ({ usage }) =>
    usage[name];

const ofTraffic = (field: "readBytes" | "writtenBytes" | "reads" | "writes"): Rows =>
  function* ({ details }) {
    for (const traffic of details.traffic ?? []) yield [[traffic.device], traffic[field]];
  };

const ofFilesystem = (figure: (usage: FilesystemUsage) => number): Rows =>
  function* ({ filesystems }) {
    for (const [device, usage] of filesystems) yield [[device], figure(usage)];
  };

const ofInterface = (field: keyof Omit<InterfaceFigures, "name">): Rows =>
  function* ({ interfaces }) {
    for (const found of interfaces) yield [[found.name], found[field]];
  };

const stalled =
  (resource: keyof PressureStalls, kind: "some" | "full"): Figure =>
  ({ usage }) => {
    const stall = usage.pressure?.[resource]?.[kind];
    return stall === undefined ? undefined : stall.totalUs / MICROSECONDS;
  };

/** cAdvisor's order of operations. */
function* operations({ details }: CgroupFigures): Iterable<readonly [readonly string[], number]> {
  for (const { device, major, minor, readBytes, writtenBytes } of details.traffic ?? ([] as readonly DeviceTraffic[])) {
    yield [[device, major, minor, "Read"], readBytes];
    yield [[device, major, minor, "Write"], writtenBytes];
  }
}

/** A container's own faults are not told from those below it: no container has a cgroup below its own. */
function* memoryFailures({ usage }: CgroupFigures): Iterable<readonly [readonly string[], number]> {
  for (const scope of ["container", "hierarchy"]) {
    yield [["pgfault", scope], usage.pageFaults];
    yield [["pgmajfault", scope], usage.majorPageFaults];
  }
}

const pressure = (resource: keyof PressureStalls, of: string): readonly Metric<Source>[] => [
  counter(
    `container_pressure_${resource}_stalled_seconds_total`,
    `Total time duration no tasks in the container could make progress due to ${of} congestion.`,
    LABELS,
    each(stalled(resource, "full")),
  ),
  counter(
    `container_pressure_${resource}_waiting_seconds_total`,
    `Total time duration tasks in the container have waited due to ${of} congestion.`,
    LABELS,
    each(stalled(resource, "some")),
  ),
];

const traffic = (name: string, help: string, field: Parameters<typeof ofTraffic>[0]): Metric<Source> =>
  counter(`container_fs_${name}_total`, `Cumulative count of ${help}`, [...LABELS, "device"], rows(ofTraffic(field)));

const network = (name: string, help: string, field: Parameters<typeof ofInterface>[0]): Metric<Source> =>
  counter(
    `container_network_${name}_total`,
    `Cumulative count of ${help}`,
    [...LABELS, "interface"],
    rows(ofInterface(field)),
  );

export const CADVISOR_METRICS: readonly Metric<Source>[] = [
  gauge(
    "cadvisor_version_info",
    "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    ["cadvisorRevision", "cadvisorVersion", "dockerVersion", "kernelVersion", "osVersion"],
    (source) =>
      source === undefined
        ? []
        : [{ labels: ["", source.version, "", source.kernelVersion, source.osVersion], value: 1 }],
  ),
  counter(
    "container_blkio_device_usage_total",
    "Blkio Device bytes usage",
    [...LABELS, "device", "major", "minor", "operation"],
    rows(operations),
  ),
  counter(
    "container_cpu_cfs_periods_total",
    "Number of elapsed enforcement period intervals.",
    LABELS,
    each(ofDetails("periods")),
  ),
  counter(
    "container_cpu_cfs_throttled_periods_total",
    "Number of throttled period intervals.",
    LABELS,
    each(ofDetails("throttledPeriods")),
  ),
  counter(
    "container_cpu_cfs_throttled_seconds_total",
    "Total time duration the container has been throttled.",
    LABELS,
    each(ofDetails("throttledSeconds")),
  ),
  counter(
    "container_cpu_system_seconds_total",
    "Cumulative system cpu time consumed in seconds.",
    LABELS,
    each(ofDetails("systemSeconds")),
  ),
  counter(
    "container_cpu_usage_seconds_total",
    "Cumulative cpu time consumed in seconds.",
    [...LABELS, "cpu"],
    rows(({ usage }) => [[["total"], usage.cpuNanoseconds / 1e9]]),
  ),
  counter(
    "container_cpu_user_seconds_total",
    "Cumulative user cpu time consumed in seconds.",
    LABELS,
    each(ofDetails("userSeconds")),
  ),
  gauge(
    "container_file_descriptors",
    "Number of open file descriptors for the container.",
    LABELS,
    each(ofDetails("descriptors")),
  ),
  gauge(
    "container_fs_inodes_free",
    "Number of available Inodes",
    [...LABELS, "device"],
    rows(ofFilesystem(({ inodesFree }) => inodesFree)),
  ),
  gauge(
    "container_fs_inodes_total",
    "Number of Inodes",
    [...LABELS, "device"],
    rows(ofFilesystem(({ inodes }) => inodes)),
  ),
  gauge(
    "container_fs_limit_bytes",
    "Number of bytes that can be consumed by the container on this filesystem.",
    [...LABELS, "device"],
    rows(ofFilesystem(({ capacityBytes }) => capacityBytes)),
  ),
  traffic("reads_bytes", "bytes read", "readBytes"),
  traffic("reads", "reads completed", "reads"),
  gauge(
    "container_fs_usage_bytes",
    "Number of bytes that are consumed by the container on this filesystem.",
    [...LABELS, "device"],
    rows(ofFilesystem(({ usedBytes }) => usedBytes)),
  ),
  traffic("writes_bytes", "bytes written", "writtenBytes"),
  traffic("writes", "writes completed", "writes"),
  gauge("container_last_seen", "Last time a container was seen by the exporter", LABELS, function* (source) {
    for (const cgroup of source?.cgroups ?? [])
      yield { labels: labelsOf(cgroup), value: Math.floor((source?.atMs ?? 0) / 1000), atMs: source?.atMs };
  }),
  gauge("container_memory_cache", "Number of bytes of page cache memory.", LABELS, each(ofDetails("cacheBytes"))),
  counter("container_memory_failcnt", "Number of memory usage hits limits", LABELS, each(ofDetails("failures"))),
  counter(
    "container_memory_failures_total",
    "Cumulative count of memory allocation failures.",
    [...LABELS, "failure_type", "scope"],
    rows(memoryFailures),
  ),
  gauge(
    "container_memory_kernel_usage",
    "Size of kernel memory allocated in bytes.",
    LABELS,
    each(ofDetails("kernelBytes")),
  ),
  gauge(
    "container_memory_mapped_file",
    "Size of memory mapped files in bytes.",
    LABELS,
    each(ofDetails("mappedFileBytes")),
  ),
  gauge(
    "container_memory_max_usage_bytes",
    "Maximum memory usage recorded in bytes",
    LABELS,
    each(ofDetails("maxUsageBytes")),
  ),
  gauge("container_memory_rss", "Size of RSS in bytes.", LABELS, each(ofUsage("rssBytes"))),
  gauge("container_memory_swap", "Container swap usage in bytes.", LABELS, each(ofUsage("swapBytes"))),
  gauge(
    "container_memory_total_active_file_bytes",
    "Current total active file in bytes.",
    LABELS,
    each(ofDetails("activeFileBytes")),
  ),
  gauge(
    "container_memory_total_inactive_file_bytes",
    "Current total inactive file in bytes.",
    LABELS,
    each(ofDetails("inactiveFileBytes")),
  ),
  gauge(
    "container_memory_usage_bytes",
    "Current memory usage in bytes, including all memory regardless of when it was accessed",
    LABELS,
    each(ofUsage("memoryBytes")),
  ),
  gauge(
    "container_memory_working_set_bytes",
    "Current working set in bytes.",
    LABELS,
    each(ofUsage("workingSetBytes")),
  ),
  network("receive_bytes", "bytes received", "rxBytes"),
  network("receive_errors", "errors encountered while receiving", "rxErrors"),
  network("receive_packets_dropped", "packets dropped while receiving", "rxDropped"),
  network("receive_packets", "packets received", "rxPackets"),
  network("transmit_bytes", "bytes transmitted", "txBytes"),
  network("transmit_errors", "errors encountered while transmitting", "txErrors"),
  network("transmit_packets_dropped", "packets dropped while transmitting", "txDropped"),
  network("transmit_packets", "packets transmitted", "txPackets"),
  counter(
    "container_oom_events_total",
    "Count of out of memory events observed for the container",
    LABELS,
    each(ofDetails("oomKills")),
  ),
  ...pressure("cpu", "CPU"),
  ...pressure("io", "IO"),
  ...pressure("memory", "memory"),
  gauge(
    "container_processes",
    "Number of processes running inside the container.",
    LABELS,
    each(ofDetails("processes")),
  ),
  gauge(
    "container_scrape_error",
    "1 if there was an error while getting container metrics, 0 otherwise",
    [],
    (source) => [{ labels: [], value: source === undefined ? 1 : 0 }],
  ),
  gauge("container_sockets", "Number of open sockets for the container.", LABELS, each(ofDetails("sockets"))),
  gauge("container_spec_cpu_period", "CPU period of the container.", LABELS, each(ofDetails("cpuPeriodUs"), false)),
  gauge("container_spec_cpu_quota", "CPU quota of the container.", LABELS, each(ofDetails("cpuQuotaUs"), false)),
  gauge("container_spec_cpu_shares", "CPU share of the container.", LABELS, each(ofDetails("cpuShares"), false)),
  gauge(
    "container_spec_memory_limit_bytes",
    "Memory limit for the container.",
    LABELS,
    each(({ details }) => details.memoryLimitBytes ?? 0, false),
  ),
  gauge(
    "container_spec_memory_reservation_limit_bytes",
    "Memory reservation limit for the container.",
    LABELS,
    each(({ details }) => details.memoryReservationBytes ?? 0, false),
  ),
  gauge(
    "container_spec_memory_swap_limit_bytes",
    "Memory swap limit for the container.",
    LABELS,
    each(({ details }) => details.memorySwapLimitBytes ?? 0, false),
  ),
  gauge(
    "container_start_time_seconds",
    "Start time of the container since unix epoch in seconds.",
    LABELS,
    each(({ startedAtMs }) => (startedAtMs === undefined ? undefined : Math.floor(startedAtMs / 1000)), false),
  ),
  gauge(
    "container_threads",
    "Number of threads running inside the container",
    LABELS,
    each(({ usage }) => usage.pids),
  ),
  gauge(
    "container_threads_max",
    "Maximum number of threads allowed inside the container, infinity if value is zero",
    LABELS,
    each(({ details }) => details.maxThreads ?? 0),
  ),
  gauge(
    "container_ulimits_soft",
    "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
    [...LABELS, "ulimit"],
    rows(({ details }) => (details.maxOpenFiles === undefined ? [] : [[["max_open_files"], details.maxOpenFiles]])),
  ),
  gauge(
    "machine_cpu_cores",
    "Number of logical CPU cores.",
    MACHINE_LABELS,
    machine(({ cpus }) => cpus),
  ),
  gauge(
    "machine_cpu_physical_cores",
    "Number of physical CPU cores.",
    MACHINE_LABELS,
    machine(({ physicalCores }) => physicalCores),
  ),
  gauge(
    "machine_cpu_sockets",
    "Number of CPU sockets.",
    MACHINE_LABELS,
    machine(({ sockets }) => sockets),
  ),
  gauge(
    "machine_memory_bytes",
    "Amount of memory installed on the machine.",
    MACHINE_LABELS,
    machine(({ memoryBytes }) => memoryBytes),
  ),
  gauge("machine_scrape_error", "1 if there was an error while getting machine metrics, 0 otherwise.", [], (source) => [
    { labels: [], value: source === undefined ? 1 : 0 },
  ]),
  gauge(
    "machine_swap_bytes",
    "Amount of swap memory available on the machine.",
    MACHINE_LABELS,
    machine(({ swapBytes }) => swapBytes),
  ),
];
