import { statfs } from "node:fs/promises";
import { type Clock, millis } from "../../protocol/ports.ts";
import type { DesiredPod, ObservedContainer } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { AgentPod } from "../core/agent-pod.ts";
import type { NodeStats } from "../core/node-stats.ts";
import { rfc3339 } from "../core/pod-object.ts";
import { COMPONENT_RUNTIME_CLASS } from "../core/pod-ports.ts";
import { type CgroupReader, readUsage, type Usage } from "./cgroup-usage.ts";
import { machineUsage, type NetworkInterface, networkInterfaces, processLimits } from "./machine-usage.ts";
import { resourceMetrics } from "./resource-metrics.ts";
import { MIN_INTERVAL_MS, UsageRates } from "./usage-rates.ts";

export interface UsageStatsComponents {
  readonly cgroups: CgroupReader;
  readonly pods: () => readonly AgentPod[];
  /** cgroupfs path of a pod's cgroup, its containers' are below it by their ids; "": it has none. */
  readonly podCgroup: (pod: DesiredPod) => string;
  readonly clock: Clock;
}

export interface UsageStatsInit {
  readonly nodeName: string;
  /** On the file system that is the node's. */
  readonly rootDir: string;
  readonly startedAt: Date;
  /** Only tests name another one. */
  readonly proc?: string;
}

export interface ContainerUsage {
  readonly container: ObservedContainer;
  readonly startedAtMs: number;
  readonly path: string;
  readonly usage: Usage;
}

export interface PodUsage {
  readonly pod: AgentPod;
  readonly path: string;
  /** Undefined: it has no cgroup of its own. */
  readonly usage: Usage | undefined;
  readonly containers: readonly ContainerUsage[];
}

export interface NodeUsage {
  readonly atMs: number;
  readonly node: Usage;
  readonly pods: readonly PodUsage[];
}

const NODE_KEY = "";

/** Reads what is used when it is asked, and keeps nothing but the last look's CPU time. */
export class UsageStats implements NodeStats {
  readonly #components: UsageStatsComponents;
  readonly #init: UsageStatsInit;
  readonly #proc: string;
  readonly #rates: UsageRates;

  constructor(components: UsageStatsComponents, init: UsageStatsInit) {
    this.#components = components;
    this.#init = init;
    this.#proc = init.proc ?? "/proc";
    this.#rates = new UsageRates(components);
  }

  async summary({ onlyCpuAndMemory }: { readonly onlyCpuAndMemory: boolean }, signal: AbortSignal): Promise<unknown> {
    let look = await this.#look();
    if (!this.#rates.known(keysOf(look).keys())) {
      this.#rates.take(keysOf(look));
      await this.#components.clock.sleep(millis(MIN_INTERVAL_MS), signal);
      look = await this.#look();
    }
    const rates = this.#rates.take(keysOf(look));
    const node = {
      nodeName: this.#init.nodeName,
      startTime: rfc3339(this.#init.startedAt.getTime()),
      ...cpuAndMemory(look.node, rates.get(NODE_KEY), look.atMs),
      ...(onlyCpuAndMemory ? {} : await this.#nodeDetails(look.atMs)),
    };
    const pods: unknown[] = [];
    for (const each of look.pods) pods.push(await this.#pod(each, rates, { onlyCpuAndMemory, atMs: look.atMs }));
    return { node, pods };
  }

  async resourceMetrics(): Promise<Iterable<string>> {
    return resourceMetrics(await this.#look());
  }

  async #look(): Promise<NodeUsage> {
    const { clock, pods } = this.#components;
    const atMs = clock.wall().getTime();
    const node = await machineUsage(this.#proc);
    const used: PodUsage[] = [];
    for (const pod of pods()) {
      const found = await this.#podUsage(pod);
      if (found.usage !== undefined || found.containers.length > 0) used.push(found);
    }
    return { atMs, node, pods: used };
  }

  async #podUsage(pod: AgentPod): Promise<PodUsage> {
    const { cgroups, podCgroup } = this.#components;
    const path = podCgroup(pod.desired);
    if (path === "") return { pod, path, usage: undefined, containers: [] };
    const containers: ContainerUsage[] = [];
    for (const container of pod.containers) {
      if (container.state.kind !== "running") continue;
      const own = `${path}/${container.id}`;
      const usage = await readUsage(cgroups, own);
      if (usage !== undefined)
        containers.push({ container, startedAtMs: container.state.startedAtMs, path: own, usage });
    }
    return { pod, path, usage: await readUsage(cgroups, path), containers };
  }

  async #nodeDetails(atMs: number): Promise<object> {
    const time = rfc3339(atMs);
    const interfaces = await networkInterfaces(this.#proc, undefined);
    const { blocks, bavail, bfree, bsize, files, ffree } = await statfs(this.#init.rootDir);
    return {
      network: network(interfaces, time),
      fs: {
        time,
        availableBytes: bavail * bsize,
        capacityBytes: blocks * bsize,
        usedBytes: (blocks - bfree) * bsize,
        inodesFree: ffree,
        inodes: files,
        inodesUsed: files - ffree,
      },
      rlimit: { time, ...(await processLimits(this.#proc)) },
    };
  }

  async #pod(
    { pod, path, usage, containers }: PodUsage,
    rates: ReadonlyMap<string, number | undefined>,
    { onlyCpuAndMemory, atMs }: { readonly onlyCpuAndMemory: boolean; readonly atMs: number },
  ): Promise<object> {
    const { metadata, spec } = pod.desired.pod;
    const { name, namespace, uid = pod.desired.uid } = metadata;
    const [first] = containers;
    const onHostNetwork = spec.hostNetwork === true || spec.runtimeClassName === COMPONENT_RUNTIME_CLASS;
    const details = onlyCpuAndMemory || first === undefined ? {} : await this.#podDetails(first, onHostNetwork, atMs);
    const startTime = pod.status?.startTime ?? metadata.creationTimestamp;
    return {
      podRef: { name, namespace, uid },
      ...(startTime === undefined ? {} : { startTime }),
      containers: containers.map((each) => ({
        name: each.container.name,
        startTime: rfc3339(each.startedAtMs),
        ...cpuAndMemory(each.usage, rates.get(each.path), atMs),
      })),
      ...(usage === undefined ? {} : cpuAndMemory(usage, rates.get(path), atMs)),
      ...details,
    };
  }

  /** What only one of its processes can tell. */
  async #podDetails({ path }: ContainerUsage, onHostNetwork: boolean, atMs: number): Promise<object> {
    const text = (await this.#components.cgroups.read(path, "memory", "cgroup.procs")) ?? "";
    const [pid] = text.split("\n");
    if (pid === undefined || pid === "" || onHostNetwork) return {};
    const interfaces = await networkInterfaces(this.#proc, Number(pid));
    return interfaces.length === 0 ? {} : { network: network(interfaces, rfc3339(atMs)) };
  }
}

function keysOf({ node, pods }: NodeUsage): ReadonlyMap<string, number> {
  const keys = new Map([[NODE_KEY, node.cpuNanoseconds]]);
  for (const { path, usage, containers } of pods) {
    if (usage !== undefined) keys.set(path, usage.cpuNanoseconds);
    for (const each of containers) keys.set(each.path, each.usage.cpuNanoseconds);
  }
  return keys;
}

function cpuAndMemory(usage: Usage, nanoCores: number | undefined, atMs: number) {
  const time = rfc3339(atMs);
  const { memoryLimitBytes, workingSetBytes, memoryBytes, rssBytes, pageFaults, majorPageFaults } = usage;
  return {
    cpu: {
      time,
      ...(nanoCores === undefined ? {} : { usageNanoCores: nanoCores }),
      usageCoreNanoSeconds: usage.cpuNanoseconds,
    },
    memory: {
      time,
      ...(memoryLimitBytes === undefined ? {} : { availableBytes: Math.max(0, memoryLimitBytes - workingSetBytes) }),
      ...{ usageBytes: memoryBytes, workingSetBytes, rssBytes, pageFaults, majorPageFaults },
    },
  };
}

/** The first is the default one, as the kubelet has it. */
function network(interfaces: readonly NetworkInterface[], time: string): object {
  return { time, ...interfaces[0], interfaces };
}
