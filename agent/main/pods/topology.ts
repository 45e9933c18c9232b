/** CPUs, memory and NUMA nodes for containers alone: what the configuration asks for of the kubelet's managers. */
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import type { PodObserver } from "../../core/pods/pod-observer.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { DesiredStore } from "../../core/store/store-ports.ts";
import type { Machine } from "../../node/machine.ts";
import { parseCpuList } from "../../plan/node/cpu-list.ts";
import type { NodeAllocatable } from "../../plan/node/node-allocatable.ts";
import type { HeldMemory, PodResourcesComponents } from "../../pod-resources/pod-resources.ts";
import type { StatusManager } from "../../status/status-manager.ts";
import { ContainerPlacements } from "../../topology/container-placements.ts";
import { CpuGroups } from "../../topology/cpu-groups.ts";
import { cpuPolicyOptions, topologyPolicyOptions } from "../../topology/cpu-policy-options.ts";
import { CPU_STATE_FILE, readCpuState } from "../../topology/cpu-state.ts";
import { CpusetReconciler, type PlacedContainer } from "../../topology/cpuset-reconciler.ts";
import { type MachineTopology, readMachineTopology } from "../../topology/machine-topology.ts";
import { MEMORY_STATE_FILE, readMemoryState } from "../../topology/memory-state.ts";
import type { NumaInfo, TopologyPolicyName } from "../../topology/numa-hints.ts";
import type { PlacementManager } from "../../topology/placement-round.ts";
import { reservedMemory } from "../../topology/reserved-memory.ts";
import { StaticCpus } from "../../topology/static-cpus.ts";
import { StaticMemory } from "../../topology/static-memory.ts";

export interface TopologyComponents {
  readonly log: Log;
  /** The devices of a pod that asks for some. */
  readonly devices: { managerFor(pod: DesiredPod): PlacementManager | undefined };
}

export interface TopologyInit {
  readonly configuration: Configuration;
  readonly rootDir: string;
  readonly machine: Pick<Machine, "cpus">;
  readonly share: Pick<NodeAllocatable, "kubeReserved" | "systemReserved">;
}

export interface PlacedPods {
  readonly router: RuntimeRouter;
  readonly observer: PodObserver;
  readonly statuses: StatusManager;
  readonly desired: Pick<DesiredStore, "desired">;
  readonly clock: Clock;
}

export interface Topology {
  /** Undefined: both managers do nothing. */
  readonly placement: ContainerPlacement | undefined;
  readonly parts: (pods: PlacedPods) => readonly Component[];
  /** CPUs and memory that containers have, or can have, for themselves alone. */
  readonly held: {
    readonly memory: PodResourcesComponents["memory"];
    readonly allocatable: PodResourcesComponents["allocatable"];
  };
}

/** @throws `invalid`, `conflict` with the kubelet's words for what is wrong with the configuration or a state file */
export async function makeTopology({ log, devices }: TopologyComponents, init: TopologyInit): Promise<Topology> {
  const { configuration, rootDir, machine } = init;
  const { topologyManagerPolicy, topologyManagerScope, cpuManagerReconcilePeriod, featureGates } = configuration;
  const topology = await readMachineTopology(machine.cpus);
  const policy = topologyManagerPolicy as TopologyPolicyName;
  const numa = numaInfo(configuration, topology);
  const cpuStateFile = join(rootDir, CPU_STATE_FILE);
  const memoryStateFile = join(rootDir, MEMORY_STATE_FILE);
  const cpus = staticCpus(init, topology, cpuStateFile);
  const memory = staticMemory(init, topology, memoryStateFile);
  const held = heldBy(topology, cpus, memory);
  const pinsNothing = cpus === undefined && memory === undefined;
  if (pinsNothing && policy === "none") return { placement: undefined, parts: () => [], held };
  const placement = new ContainerPlacements(
    { log },
    {
      devices: (pod) => devices.managerFor(pod),
      policy,
      numa,
      scope: topologyManagerScope === "pod" ? "pod" : "container",
      withoutQuota: featureGates.DisableCPUQuotaWithExclusiveCPUs !== false,
      ...{ cpus, memory, cpuStateFile, memoryStateFile },
    },
  );
  if (pinsNothing) return { placement, parts: () => [], held };
  const parts = (pods: PlacedPods) => [
    new CpusetReconciler(
      {
        placements: placement,
        running: () => runningContainers(pods),
        isOver: (uid) => isOver(uid, pods),
        clock: pods.clock,
        log,
      },
      { period: cpuManagerReconcilePeriod },
    ),
  ];
  return { placement, parts, held };
}

function heldBy(
  { cpus: all }: MachineTopology,
  cpus: StaticCpus | undefined,
  memory: StaticMemory | undefined,
): Topology["held"] {
  const tables = (): HeldMemory[] =>
    Object.entries(memory?.state.machine ?? {}).flatMap(([node, { memoryMap }]) =>
      Object.entries(memoryMap)
        .map(([type, { allocatable: bytes }]) => ({ type, bytes, nodes: [Number(node)] }))
        .filter(({ bytes }) => bytes > 0),
    );
  return {
    memory: (uid, container) =>
      (memory?.state.entries[uid]?.[container] ?? []).map(({ type, size, numaAffinity }) => ({
        ...{ type, bytes: size, nodes: numaAffinity },
      })),
    allocatable: () => ({
      cpus: cpus === undefined ? [] : [...all.keys()].filter((id) => !cpus.reserved.has(id)),
      memory: tables(),
    }),
  };
}

/** The policies `none` do nothing, but a file of another policy is refused by them, too. */
function staticCpus({ configuration, share }: TopologyInit, topology: MachineTopology, stateFile: string) {
  const { cpuManagerPolicy: policy, cpuManagerPolicyOptions } = configuration;
  if (policy !== "static") {
    readCpuState(stateFile, policy);
    return undefined;
  }
  const milli = (share.kubeReserved.get("cpu") ?? 0n) + (share.systemReserved.get("cpu") ?? 0n);
  const options = cpuPolicyOptions(cpuManagerPolicyOptions);
  const machine = new CpuGroups(topology.cpus, topology.capacities);
  if (options.alignBySocket && machine.ids("socket").length > machine.ids("numaNode").length) {
    throw wrong("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA");
  }
  const reservedCpus = new Set(parseCpuList(configuration.reservedSystemCPUs) ?? []);
  const state = readCpuState(stateFile, policy);
  return new StaticCpus({ machine, options, reservedCount: Math.ceil(Number(milli) / 1000), reservedCpus, state });
}

function staticMemory({ configuration }: TopologyInit, { nodes }: MachineTopology, stateFile: string) {
  const { memoryManagerPolicy: policy } = configuration;
  if (policy !== "Static") {
    readMemoryState(stateFile, policy);
    return undefined;
  }
  const reserved = reservedMemory(
    configuration.reservedMemory,
    nodes.map(({ id }) => id),
  );
  return new StaticMemory({ nodes, reserved, state: readMemoryState(stateFile, policy) });
}

function numaInfo(
  { topologyManagerPolicy, topologyManagerPolicyOptions }: Configuration,
  { nodes }: MachineTopology,
): NumaInfo {
  const ids = nodes.map(({ id }) => id);
  if (topologyManagerPolicy === "none") return { nodes: ids };
  const { preferClosestNuma, maxNumaNodes } = topologyPolicyOptions(topologyManagerPolicyOptions);
  if (ids.length > maxNumaNodes) throw wrong(`unsupported on machines with more than ${maxNumaNodes} NUMA Nodes`);
  if (!preferClosestNuma) return { nodes: ids };
  const distances = nodes.map(({ id, distances: own }): [number, ReadonlyMap<number, number>] => {
    if (own === undefined) throw wrong("cannot discover NUMA topology: error getting NUMA distances from cadvisor");
    return [id, new Map(ids.map((to, index) => [to, own[index] ?? 0]))];
  });
  return { nodes: ids, distances: new Map(distances) };
}

function* runningContainers({ statuses, router, observer }: PlacedPods): Iterable<PlacedContainer> {
  for (const { view } of statuses.pods.values()) {
    const { desired: pod, observed } = view;
    const running = (observed?.containers ?? []).filter(({ state }) => state.kind === "running");
    if (running.length === 0) continue;
    // A new pod is not listed yet.
    const holder = router.adapters.find((each) => observer.listing(each)?.has(pod.uid) === true);
    const adapter = holder ?? router.adapterFor(pod);
    for (const { name, id } of running) yield { pod, name, id, adapter };
  }
}

function isOver(uid: PodUid, { statuses, router, observer, desired }: PlacedPods): boolean | undefined {
  const entry = statuses.pods.get(uid);
  const { phase } = entry?.status ?? {};
  const runs = entry?.view.observed?.containers.some(({ state }) => state.kind === "running");
  if (phase === "Succeeded" || phase === "Failed") return runs === false;
  const listings = router.adapters.map((adapter) => observer.listing(adapter));
  if (listings.includes(undefined)) return undefined;
  const { pods, removed } = desired.desired.current;
  return entry === undefined && !pods.has(uid) && !removed.has(uid) && !listings.some((each) => each?.has(uid));
}

const wrong = (message: string): PicoletError => new PicoletError("invalid", message);
