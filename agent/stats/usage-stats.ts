import { cancelled } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, ignore, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";
import {
  type Clock,
  type Log,
  type Millis,
  type MonotonicMs,
  millis,
  NEVER,
  type PodUid,
  seconds,
} from "@picolet/protocol/ports.ts";
import type { NodeStats } from "../core/node/node-stats.ts";
import type { PodDiskUsage, PodUsage, Usage } from "../core/node/usage.ts";
import { rfc3339 } from "../core/pods/pod-object.ts";
import { isComponentPod } from "../core/pods/pod-runtime.ts";
import type { TimedUsage } from "./cgroup-sampler.ts";
import type { FilesystemSample } from "./filesystem-sampler.ts";
import { machineUptimeMs, maxProcesses, networkInterfaces, ownCgroup, ownUsage } from "./machine-usage.ts";
import {
  containerDetails,
  cpuAndMemory,
  inputOutput,
  type MountedVolume,
  network,
  nodeFilesystems,
  type PodDetails,
  podDetails,
} from "./summary.ts";

/** The samples that statistics need beyond `UsageSampler`. */
export interface StatsSampler {
  sample(maxAge: Millis, signal: AbortSignal): Promise<TimedUsage>;
  /** Undefined: there is no such cgroup. */
  cgroup(path: string, sample: TimedUsage): Usage | undefined;
  /** The processes directly in a cgroup. */
  processes(path: string): readonly number[];
  filesystems(maxAge: Millis, signal: AbortSignal): Promise<FilesystemSample>;
  disk(maxAge: Millis, signal: AbortSignal): Promise<ReadonlyMap<PodUid, PodDiskUsage>>;
  /** The last results of `disk`, without a new measurement. */
  measuredDisk(): ReadonlyMap<PodUid, PodDiskUsage>;
}

export interface UsageStatsComponents {
  readonly sampler: StatsSampler;
  /** A pod's volumes that are file systems of their own: in memory. */
  readonly mountedVolumes: (pod: PodUsage["pod"]) => Promise<readonly MountedVolume[]>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface UsageStatsInit {
  readonly nodeName: string;
  readonly startedAt: Date;
  /** The kubelet's `volumeStatsAggPeriod`: how old figures of the disk may be; negative: volumes are not shown. */
  readonly volumePeriod: Millis;
  /** Only tests name another one. */
  readonly proc?: string;
}

const NODE_KEY = "";
/** No path of a cgroup. */
const AGENT_KEY = "agent";
const PODS_KEY = "pods";
const NEW = millis(0);
/** The period instead of 0, and for disk usage other than volumes if volumes are not measured. */
const DEFAULT_VOLUME_PERIOD = seconds(60);
/** An answer waits so long for a measurement; with large folders the next one has it. */
const DISK_PATIENCE = seconds(2);

/** Presents samples as the kubelet does, and keeps only the CPU time of the last one. */
export class UsageStats implements NodeStats {
  readonly #components: UsageStatsComponents;
  readonly #init: UsageStatsInit;
  readonly #proc: string;
  readonly #rates = new UsageRates();

  constructor(components: UsageStatsComponents, init: UsageStatsInit) {
    this.#components = components;
    this.#init = init;
    this.#proc = init.proc ?? "/proc";
  }

  async summary({ onlyCpuAndMemory }: { readonly onlyCpuAndMemory: boolean }, signal: AbortSignal): Promise<unknown> {
    const { sampler, clock } = this.#components;
    const disk = onlyCpuAndMemory ? undefined : this.#disk(signal);
    disk?.catch(ignore("it is awaited below"));
    let sample = await sampler.sample(NEW, signal);
    let agent = this.#agent(sample);
    if (!this.#rates.known(keysOf(sample, agent).keys(), sample.at)) {
      this.#rates.take(keysOf(sample, agent), sample.at);
      await clock.sleep(millis(MIN_INTERVAL_MS), signal);
      sample = await sampler.sample(NEW, signal);
      agent = this.#agent(sample);
    }
    const rates = this.#rates.take(keysOf(sample, agent), sample.at);
    const filesystems = onlyCpuAndMemory ? undefined : await sampler.filesystems(NEW, signal);
    const { atMs } = sample;
    const node = {
      nodeName: this.#init.nodeName,
      startTime: rfc3339(atMs - machineUptimeMs(this.#proc)),
      ...cpuAndMemory({ usage: sample.node, nanoCores: rates.get(NODE_KEY), atMs }),
      systemContainers: this.#systemContainers(sample, agent, rates),
      ...(filesystems === undefined ? {} : this.#nodeDetails(sample, filesystems)),
    };
    const measured = await disk;
    const pods: unknown[] = [];
    for (const each of sample.pods) {
      const details = filesystems && (await this.#details(each, filesystems, measured));
      pods.push(podOf(each, details, rates, sample));
    }
    return { node, pods };
  }

  async resourceMetrics(signal: AbortSignal, format?: MetricsFormat): Promise<Iterable<string>> {
    const { metricsText } = await import("@picolet/protocol/metrics/metrics.ts");
    const { RESOURCE_METRICS } = await import("../metrics/agent-metrics.ts");
    return metricsText(RESOURCE_METRICS, await this.#usageForMetrics(signal), format);
  }

  async #usageForMetrics(signal: AbortSignal): Promise<TimedUsage | undefined> {
    try {
      return await this.#components.sampler.sample(NEW, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#components.log.warn("cannot sample the usage of pods", { error: describeError(error) });
      return undefined;
    }
  }

  /** The agent itself: its cgroup, or where it has none of its own its process. */
  #agent(sample: TimedUsage): Usage {
    const path = ownCgroup(this.#proc);
    return (path === undefined ? undefined : this.#components.sampler.cgroup(path, sample)) ?? ownUsage(this.#proc);
  }

  #systemContainers(
    sample: TimedUsage,
    agent: Usage,
    rates: ReadonlyMap<string, number | undefined>,
  ): readonly object[] {
    const { atMs, allPods } = sample;
    const { startedAt } = this.#init;
    const bootedAt = rfc3339(atMs - machineUptimeMs(this.#proc));
    const kubelet = {
      ...{ name: "kubelet", startTime: rfc3339(startedAt.getTime()) },
      ...cpuAndMemory({ usage: agent, nanoCores: rates.get(AGENT_KEY), atMs }),
    };
    if (allPods === undefined) return [kubelet];
    const nanoCores = rates.get(PODS_KEY);
    return [kubelet, { name: "pods", startTime: bootedAt, ...cpuAndMemory({ usage: allPods, nanoCores, atMs }) }];
  }

  #nodeDetails({ atMs, node }: TimedUsage, filesystems: FilesystemSample): object {
    return {
      ...inputOutput(node, atMs),
      ...network(networkInterfaces(this.#proc, undefined), atMs),
      ...nodeFilesystems(filesystems),
      rlimit: { time: rfc3339(atMs), maxpid: maxProcesses(this.#proc), curproc: node.pids },
    };
  }

  /** A measurement that takes too long goes on for the next answer. */
  async #disk(signal: AbortSignal): Promise<ReadonlyMap<PodUid, PodDiskUsage>> {
    const { sampler, clock, log } = this.#components;
    const { volumePeriod } = this.#init;
    const measuring = sampler.disk(volumePeriod > 0 ? volumePeriod : DEFAULT_VOLUME_PERIOD, NEVER);
    try {
      return await withDeadline(clock, DISK_PATIENCE, "measure what pods have on disk", () => measuring, signal);
    } catch (error) {
      if (signal.aborted) throw cancelled("the summary");
      if (!isPicoletError(error, "deadline_exceeded"))
        log.warn("cannot measure what pods have on disk", { error: describeError(error) });
      return sampler.measuredDisk();
    }
  }

  async #details(
    { pod, containers }: PodUsage,
    filesystems: FilesystemSample,
    disk: ReadonlyMap<PodUid, PodDiskUsage> | undefined,
  ): Promise<PodDetails> {
    const { sampler, mountedVolumes } = this.#components;
    const { spec } = pod.desired.pod;
    const showVolumes = this.#init.volumePeriod >= 0;
    const processes = containers.map(({ path, usage }) => ({ all: sampler.processes(path), usage }));
    const onHostNetwork = spec.hostNetwork === true || isComponentPod(pod.desired);
    const pid = onHostNetwork ? undefined : processes.flatMap(({ all }) => all)[0];
    return {
      interfaces: pid === undefined ? [] : networkInterfaces(this.#proc, pid),
      processes:
        processes.length === 0
          ? undefined
          : processes.reduce((sum, { all, usage }) => sum + (all.length || (usage.pids ?? 0)), 0),
      disk: disk?.get(pod.desired.uid),
      showVolumes,
      mounted: showVolumes ? await mountedVolumes(pod) : [],
      filesystems,
    };
  }
}

function podOf(
  each: PodUsage,
  details: PodDetails | undefined,
  rates: ReadonlyMap<string, number | undefined>,
  sample: TimedUsage,
): object {
  const { pod, path, usage, containers } = each;
  const { name, namespace, uid = pod.desired.uid, creationTimestamp } = pod.desired.pod.metadata;
  const startTime = pod.status?.startTime ?? creationTimestamp;
  const { atMs } = sample;
  return {
    podRef: { name, namespace, uid },
    ...(startTime === undefined ? {} : { startTime }),
    containers: containers.map((container) => ({
      name: container.container.name,
      startTime: rfc3339(container.startedAtMs),
      ...cpuAndMemory({ usage: container.usage, nanoCores: rates.get(container.path), atMs }),
      ...(details === undefined ? {} : containerDetails(container, details, sample)),
    })),
    ...(usage === undefined ? {} : cpuAndMemory({ usage, nanoCores: rates.get(path), atMs })),
    ...(details === undefined ? {} : podDetails(each, details, sample)),
  };
}

function keysOf({ node, allPods, pods }: TimedUsage, agent: Usage): ReadonlyMap<string, number> {
  const keys = new Map([
    [NODE_KEY, node.cpuNanoseconds],
    [AGENT_KEY, agent.cpuNanoseconds],
  ]);
  if (allPods !== undefined) keys.set(PODS_KEY, allPods.cpuNanoseconds);
  for (const { path, usage, containers } of pods) {
    if (usage !== undefined) keys.set(path, usage.cpuNanoseconds);
    for (const each of containers) keys.set(each.path, each.usage.cpuNanoseconds);
  }
  return keys;
}

interface CpuSample {
  readonly at: MonotonicMs;
  readonly cpuNanoseconds: number;
}

/** The shortest time between two samples of a rate; the kernel's ticks blur a shorter one. */
const MIN_INTERVAL_MS = 500;
/** A sample is compared with until it is this old; then the newest replaces it. */
const REFRESH_MS = 10_000;
/** The longest time between two samples of a rate; a longer one does not describe the present. */
const MAX_INTERVAL_MS = 120_000;
const MS_PER_SECOND = 1000;

/** Makes rates from cumulative counters. */
class UsageRates {
  /** The last samples by key; bounded by the keys of the last call. */
  #samples = new Map<string, CpuSample>();

  /** @returns whether a sample at `now` gives a rate for each key */
  known(keys: Iterable<string>, now: MonotonicMs): boolean {
    return [...keys].every((key) => {
      const age = now - (this.#samples.get(key)?.at ?? Number.NEGATIVE_INFINITY);
      return age >= MIN_INTERVAL_MS && age <= MAX_INTERVAL_MS;
    });
  }

  /**
   * @param at the monotonic time of the sample
   * @returns nanocores; undefined for a key without an earlier sample. Keys that `used` lacks are forgotten.
   */
  take(used: ReadonlyMap<string, number>, at: MonotonicMs): ReadonlyMap<string, number | undefined> {
    const next = new Map<string, CpuSample>();
    const rates = new Map<string, number | undefined>();
    for (const [key, cpuNanoseconds] of used) {
      const before = this.#samples.get(key);
      const age = before === undefined ? 0 : at - before.at;
      const now = { at, cpuNanoseconds };
      const usable = before !== undefined && age >= MIN_INTERVAL_MS && age <= MAX_INTERVAL_MS;
      // The counter of a cgroup that was made again starts at 0.
      const from = before === undefined || before.cpuNanoseconds > cpuNanoseconds ? 0 : before.cpuNanoseconds;
      rates.set(key, usable ? Math.round(((cpuNanoseconds - from) / age) * MS_PER_SECOND) : undefined);
      next.set(key, before === undefined || from !== before.cpuNanoseconds || age > REFRESH_MS ? now : before);
    }
    this.#samples = next;
    return rates;
  }
}
