/** Gathers the figures of `/metrics` and `/metrics/cadvisor` from all parts of the agent, when they are scraped. */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { describeError, ignore, isCancelled } from "@picolet/protocol/errors.ts";
import { metricsText } from "@picolet/protocol/metrics/metrics.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { anonBytes } from "../../budget/own-memory.ts";
import type { PodUsage } from "../../core/node/usage.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import { isComponentPod } from "../../core/pods/pod-runtime.ts";
import { CADVISOR_METRICS, type CadvisorFigures, type CgroupFigures } from "../../metrics/cadvisor-metrics.ts";
import {
  type BoardFigures,
  KUBELET_METRICS,
  type KubeletFigures,
  type LogFigures,
  type PodFigures,
  type ProcessFigures,
  type VolumeFigures,
} from "../../metrics/kubelet-metrics.ts";
import { evictionDistances } from "../../plan/eviction/eviction-distances.ts";
import { filesystemObservations, usageObservations } from "../../plan/eviction/eviction-signals.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import { CgroupDetailsReader } from "../../stats/cgroup-details.ts";
import { usageOf } from "../../stats/filesystem-sampler.ts";
import { machineUptimeMs, networkInterfaces } from "../../stats/machine-usage.ts";
import type { StatsSampler } from "../../stats/usage-stats.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";
import type { AgentBase } from "../base/agent-base.ts";
import { cgroupFoldersOf } from "../node/node-usage.ts";
import type { MetricsParts, NodeMetrics } from "./node-metrics.ts";

const PROC = "/proc";
const NEW = millis(0);
/** What is shared with another scrape of the same seconds. */
const SHARED = seconds(2);
const KIND_VERSIONS = { v1: 1, v2: 2, none: undefined } as const;

export function makeMetrics(base: AgentBase, parts: MetricsParts): NodeMetrics {
  const details = new CgroupDetailsReader(cgroupFoldersOf(base.node.cgroups.hierarchies));
  return async (table, format, signal) =>
    table === "kubelet"
      ? metricsText(KUBELET_METRICS, await kubeletFigures(base, parts, signal), format)
      : metricsText(CADVISOR_METRICS, await cadvisorFigures(base, parts, details, signal), format);
}

async function kubeletFigures(base: AgentBase, parts: MetricsParts, signal: AbortSignal): Promise<KubeletFigures> {
  const { ports, init, startedAt, node, cluster } = base;
  const { view } = parts;
  const pods = view.pods();
  const now = ports.clock.wall().getTime();
  const expires = cluster.link?.certificateExpiresMs();
  return {
    nodeName: init.configuration.nodeName,
    counts: ports.counts,
    cgroupVersion: KIND_VERSIONS[node.cgroups.hierarchies.kind],
    mirrorPods: cluster.link === undefined ? 0 : pods.filter(isStatic).length,
    certificateSeconds: expires === undefined ? undefined : (expires - now) / 1000,
    startedAfterSeconds: Math.max(0, machineUptimeMs(PROC) - (now - startedAt.getTime())) / 1000,
    pods: pods.map((pod) => podFigures(pod)),
    volumes: [...(await volumeFigures(base, pods)), ...(await driverVolumeFigures(parts, pods))],
    logs: logFigures(parts, pods),
    process: processFigures(startedAt),
    board: await boardFigures(base, parts, signal),
  };
}

const isStatic = ({ desired }: AgentPod): boolean => desired.source !== "api";

const isTrue = ({ status }: { readonly status: string }): boolean => status === "True";

function podFigures(pod: AgentPod): PodFigures {
  const { desired, status, containers, terminatingSinceMs } = pod;
  const { namespace, name, uid = desired.uid } = desired.pod.metadata;
  const { spec } = desired.pod;
  const isOver = status?.phase === "Succeeded" || status?.phase === "Failed";
  const inState = (kind: string): number => containers.filter(({ state }) => state.kind === kind).length;
  return {
    ...{ namespace, pod: name, uid, isStatic: isStatic(pod), isOver, isComponent: isComponentPod(desired) },
    config: terminatingSinceMs === undefined ? "desired" : "orphan",
    lifecycle: terminatingSinceMs !== undefined ? "terminating" : isOver ? "terminated" : "sync",
    hasSandbox: status?.conditions?.some((each) => each.type === "PodReadyToStartContainers" && isTrue(each)) === true,
    containers: spec.containers.length + (spec.initContainers?.length ?? 0),
    ephemeralContainers: spec.ephemeralContainers?.length ?? 0,
    ...{ running: inState("running"), created: inState("created"), exited: inState("exited") },
  };
}

/** Claims whose volume is a folder or device of this node, which are mounted at the pod's folder. */
async function volumeFigures({ init }: AgentBase, pods: readonly AgentPod[]): Promise<readonly VolumeFigures[]> {
  const paths = new PodPaths({ rootDir: init.args.rootDir, podLogsDir: init.configuration.podLogsDir });
  const found = new Map<string, VolumeFigures>();
  for (const { desired } of pods) {
    const { namespace } = desired.pod.metadata;
    for (const { persistentVolumeClaim: source } of desired.pod.spec.volumes ?? []) {
      const claim = source?.claimName;
      if (claim === undefined || found.has(`${namespace}/${claim}`)) continue;
      const folder = firstIn(paths.localVolumes(desired.uid));
      const statistics = folder && (await statfs(folder).catch(ignore("a volume that is not mounted has no figures")));
      if (statistics) found.set(`${namespace}/${claim}`, { namespace, claim, ...usageOf(statistics) });
    }
  }
  return [...found.values()];
}

/** Claims whose volume a driver provides, as the driver reports it; once a claim. */
async function driverVolumeFigures(
  { usage }: MetricsParts,
  pods: readonly AgentPod[],
): Promise<readonly VolumeFigures[]> {
  const found = new Map<string, VolumeFigures>();
  for (const volumes of await Promise.all(pods.map((pod) => usage.driverVolumes(pod)))) {
    for (const { pvcRef, usage: figures, isAbnormal } of volumes) {
      if (pvcRef === undefined) continue;
      const { namespace, name: claim } = pvcRef;
      const health = isAbnormal === undefined ? {} : { isAbnormal };
      found.set(`${namespace}/${claim}`, { namespace, claim, ...figures, ...health });
    }
  }
  return [...found.values()];
}

/** Undefined: there is no such folder, or more than one volume, of which none is known to be the claim's. */
function firstIn(folder: string): string | undefined {
  try {
    const [name, ...others] = readdirSync(folder);
    return name === undefined || others.length > 0 ? undefined : join(folder, name);
  } catch {
    return undefined;
  }
}

/** As they were measured last; no scrape walks the disk. */
function logFigures({ usage }: MetricsParts, pods: readonly AgentPod[]): readonly LogFigures[] {
  const measured = usage.measuredDisk();
  return pods.flatMap(({ desired }) => {
    const { namespace, name: pod, uid = desired.uid } = desired.pod.metadata;
    const logs = measured.get(desired.uid)?.logs ?? new Map<string, never>();
    return [...logs].map(([container, { bytes }]) => ({ namespace, pod, uid, container, bytes }));
  });
}

function processFigures(startedAt: Date): ProcessFigures {
  const { user, system } = process.cpuUsage();
  const status = readOrNothing(`${PROC}/self/status`);
  const limits = readOrNothing(`${PROC}/self/limits`);
  const virtual = /^VmSize:\s+(\d+)/m.exec(status)?.[1];
  const most = /^Max open files +(\d+)/m.exec(limits)?.[1];
  return {
    cpuSeconds: (user + system) / 1e6,
    startedAtMs: startedAt.getTime(),
    residentBytes: process.memoryUsage.rss(),
    virtualBytes: virtual === undefined ? undefined : Number(virtual) * KIBIBYTE,
    openDescriptors: countIn(`${PROC}/self/fd`),
    maxDescriptors: most === undefined ? undefined : Number(most),
  };
}

function readOrNothing(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function countIn(folder: string): number | undefined {
  try {
    return readdirSync(folder).length;
  } catch {
    return undefined;
  }
}

async function boardFigures(base: AgentBase, parts: MetricsParts, signal: AbortSignal): Promise<BoardFigures> {
  const { view, conditions } = parts;
  const { state, bytesSent = 0, bytesReceived = 0, sessions = 0, rttMs, pendingStatuses = 0 } = view.tunnel();
  const flash = view.flash();
  const { queued, dropped, forwarded } = view.telemetry();
  return {
    version: VERSION,
    anonymousBytes: anonBytes(),
    memoryBudgetBytes: base.init.configuration.budget.memoryBytes,
    tunnel:
      state === "disabled"
        ? undefined
        : {
            isConnected: state === "connected",
            sessions,
            sentBytes: bytesSent,
            receivedBytes: bytesReceived,
            rttSeconds: rttMs === null ? undefined : rttMs / 1000,
            pendingStatuses,
          },
    evictionDistances: await distances(base, parts, signal),
    conditions: conditions.current.map((each) => [each.type, isTrue(each)]),
    flashTodayBytes: flash.today.bytes ?? undefined,
    flashAgentTodayBytes: flash.today.agentBytes,
    flashAgentBudgetBytes: flash.agentBudgetBytes,
    telemetryQueuedRecords: queued.records,
    telemetryDroppedRecords: dropped,
    telemetryForwardedRecords: forwarded,
    storeBytes: sizeOf(join(base.init.args.rootDir, "picolet.db")),
    isStoreDurable: base.store.state.current.kind === "durable",
  };
}

/** A scrape without them is better than none. */
async function distances(
  { init, node, ports: { log } }: AgentBase,
  { usage }: MetricsParts,
  signal: AbortSignal,
): Promise<BoardFigures["evictionDistances"]> {
  try {
    const thresholds = evictionThresholds(init.configuration);
    const [sample, filesystems] = await Promise.all([usage.sample(SHARED, signal), usage.filesystems(SHARED, signal)]);
    const observed = [...usageObservations(sample, node.maxPids), ...filesystemObservations(filesystems)];
    return evictionDistances(thresholds, new Map(observed));
  } catch (error) {
    if (isCancelled(error)) throw error;
    log.warn("cannot tell how near the eviction thresholds are", { error: describeError(error) });
    return new Map();
  }
}

function sizeOf(path: string): number | undefined {
  try {
    return statSync(path).size;
  } catch {
    return undefined;
  }
}

async function cadvisorFigures(
  base: AgentBase,
  { usage }: MetricsParts,
  details: CgroupDetailsReader,
  signal: AbortSignal,
): Promise<CadvisorFigures | undefined> {
  const { machine } = base.node;
  try {
    const sample = await usage.sample(NEW, signal);
    const filesystems = await usage.filesystems(SHARED, signal);
    const { allPodsCgroup } = base.node;
    const above = { container: "", image: "", name: "", namespace: "", pod: "", filesystems: [], interfaces: [] };
    const bootedAtMs = sample.atMs - machineUptimeMs(PROC);
    const root: CgroupFigures = {
      ...{ ...above, id: "/", startedAtMs: bootedAtMs, usage: sample.node, details: details.read("", []) },
      interfaces: networkInterfaces(PROC, undefined),
      filesystems: [
        ["nodefs", filesystems.nodefs] as const,
        ...(filesystems.imagefs === filesystems.nodefs ? [] : [["imagefs", filesystems.imagefs] as const]),
      ],
    };
    const all: readonly CgroupFigures[] =
      sample.allPods === undefined || allPodsCgroup === ""
        ? []
        : [
            {
              ...{ ...above, id: allPodsCgroup, startedAtMs: undefined, usage: sample.allPods },
              details: details.read(allPodsCgroup, []),
            },
          ];
    const pods = sample.pods.flatMap((pod) => podCgroups(pod, usage, details));
    return {
      atMs: sample.atMs,
      machine: { ...machine, swapBytes: machine.swapBytes ?? 0, ...processorsOf(readOrNothing(`${PROC}/cpuinfo`)) },
      ...{ kernelVersion: machine.kernelVersion, osVersion: machine.osImage, version: VERSION },
      cgroups: [root, ...all, ...pods],
    };
  } catch (error) {
    if (isCancelled(error)) throw error;
    base.ports.log.warn("cannot sample the usage of cgroups", { error: describeError(error) });
    return undefined;
  }
}

/** Containers that share a process have no cgroup, and so no rows here; /metrics/resource has them. */
function podCgroups(found: PodUsage, usage: StatsSampler, details: CgroupDetailsReader): readonly CgroupFigures[] {
  const { pod, path, containers } = found;
  const { namespace, name } = pod.desired.pod.metadata;
  const own = { namespace, pod: name, filesystems: [] };
  let first: number | undefined;
  const figures = containers
    .filter((each) => each.path !== "")
    .map(({ container, startedAtMs, path: id, usage: its }): CgroupFigures => {
      const processes = usage.processes(id);
      first ??= processes[0];
      return {
        ...{ ...own, id, startedAtMs, usage: its, interfaces: [], details: details.read(id, processes) },
        ...{ container: container.name, image: container.image, name: container.id },
      };
    });
  if (found.usage === undefined || path === "") return figures;
  const isOnHost = pod.desired.pod.spec.hostNetwork === true || isComponentPod(pod.desired) || first === undefined;
  const interfaces = isOnHost ? [] : networkInterfaces(PROC, first);
  const startedAtMs = Date.parse(pod.status?.startTime ?? "") || undefined;
  const blank = { container: "", image: "", name: "" };
  return [
    { ...{ ...own, ...blank, id: path, startedAtMs, usage: found.usage, interfaces }, details: details.read(path, []) },
    ...figures,
  ];
}

/** Undefined on processors whose kernel does not tell them apart. */
function processorsOf(cpuinfo: string): { physicalCores: number | undefined; sockets: number | undefined } {
  const values = (name: string): readonly string[] =>
    [...cpuinfo.matchAll(new RegExp(`^${name}\\s*: (\\d+)`, "gm"))].map(([, value = ""]) => value);
  const sockets = values("physical id");
  const cores = values("core id").map((core, index) => `${sockets[index]}/${core}`);
  return {
    physicalCores: cores.length === 0 ? undefined : new Set(cores).size,
    sockets: sockets.length === 0 ? undefined : new Set(sockets).size,
  };
}
