/** Metrics of this process, by the names of Prometheus' client libraries. */
import { readdirSync, readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { counter, gauge, type Metric } from "@picolet/protocol/metrics/metrics.ts";

const one = (value: number | undefined) => [{ labels: [], value }];
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

export const PROCESS_METRICS: readonly Metric<unknown>[] = [
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
