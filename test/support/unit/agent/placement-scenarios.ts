/** Sequences of pods on machines of several shapes, each with what a kubelet decided, and the same machines for us. */
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { ContainerPlacements } from "@picolet/agent/topology/container-placements.ts";
import { CpuGroups } from "@picolet/agent/topology/cpu-groups.ts";
import { cpuPolicyOptions } from "@picolet/agent/topology/cpu-policy-options.ts";
import { NO_CPUS } from "@picolet/agent/topology/cpu-set.ts";
import type { NumaNode } from "@picolet/agent/topology/machine-topology.ts";
import type { MemoryEntries } from "@picolet/agent/topology/memory-state.ts";
import type { MachineMemory } from "@picolet/agent/topology/memory-tables.ts";
import type { TopologyPolicyName } from "@picolet/agent/topology/numa-hints.ts";
import { reservedMemory } from "@picolet/agent/topology/reserved-memory.ts";
import { StaticCpus } from "@picolet/agent/topology/static-cpus.ts";
import { StaticMemory } from "@picolet/agent/topology/static-memory.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { RecordedLog } from "../ports/recorders.ts";

export interface ScenarioMachine {
  /** By CPU: NUMA node, socket, core, uncore cache. */
  readonly cpus: Readonly<Record<string, readonly [number, number, number, number]>>;
  readonly nodes: readonly NumaNode[];
}

export interface ScenarioContainer {
  readonly name: string;
  readonly kind: "app" | "init" | "sidecar";
  readonly limits: Readonly<Record<string, string>>;
}

export interface PlacementScenario {
  readonly machine: string;
  readonly options: Readonly<Record<string, string>>;
  readonly policy: TopologyPolicyName;
  readonly scope: "container" | "pod";
  /** `prefer-closest-numa-nodes`. */
  readonly closest: boolean;
  readonly reservedCpus: number;
  readonly steps: readonly PlacementStep[];
}

/** One pod comes or goes, and what is whose then. */
export interface PlacementStep {
  readonly uid: string;
  /** Missing: it goes. */
  readonly admit?: readonly ScenarioContainer[];
  /** Reason and message; null: it was taken. */
  readonly refused: readonly [string, string] | null;
  readonly shared: string;
  readonly cpus: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Recorded for the last step only, as `free` is. */
  readonly memory?: MemoryEntries;
  readonly free?: MachineMemory;
}

/** Each decision is written down for good, which takes a disk some milliseconds. */
const MEMORY_FOLDER = "/dev/shm";
const RESERVED_MEMORY = "256Mi";

export interface PlacementBoard extends Disposable {
  readonly placements: ContainerPlacements;
  readonly cpus: StaticCpus;
  readonly memory: StaticMemory;
  readonly machine: CpuGroups;
  readonly folder: string;
}

export type BoardInit = Omit<PlacementScenario, "machine" | "steps">;

export function placementBoard({ cpus: places, nodes }: ScenarioMachine, init: BoardInit): PlacementBoard {
  const folder = mkdtempSync(join(MEMORY_FOLDER, "picolet-topology-"));
  const all = Object.entries(places).map(([cpu, [numaNode, socket, core, uncoreCache]]) => {
    return [Number(cpu), { numaNode, socket, core, uncoreCache }] as const;
  });
  const machine = new CpuGroups(new Map(all));
  const options = cpuPolicyOptions(init.options);
  const reservedCount = init.reservedCpus;
  const cpus = new StaticCpus({ machine, options, reservedCount, reservedCpus: NO_CPUS, state: undefined });
  const ids = nodes.map(({ id }) => id);
  const reservations = ids.map((numaNode) => ({ numaNode, limits: { memory: RESERVED_MEMORY } }));
  const memory = new StaticMemory({ nodes, reserved: reservedMemory(reservations, ids), state: undefined });
  const distances = new Map(
    nodes.map(({ id, distances: own }) => [id, new Map(ids.map((to, index) => [to, own?.[index] ?? 0]))]),
  );
  const placements = new ContainerPlacements(
    { log: new RecordedLog() },
    {
      ...{ policy: init.policy, scope: init.scope, cpus, memory, withoutQuota: true },
      numa: init.closest ? { nodes: ids, distances } : { nodes: ids },
      cpuStateFile: join(folder, "cpu_manager_state"),
      memoryStateFile: join(folder, "memory_manager_state"),
    },
  );
  const dispose = (): void => rmSync(folder, { recursive: true });
  return { placements, cpus, memory, machine, folder, [Symbol.dispose]: dispose };
}

/** A guaranteed pod. */
export function scenarioPod(uid: string, containers: readonly ScenarioContainer[]): DesiredPod {
  const specOf = ({ name, kind, limits }: ScenarioContainer) => ({
    ...{ name, image: "i", resources: { limits, requests: limits } },
    ...(kind === "sidecar" ? { restartPolicy: "Always" } : {}),
  });
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: uid, namespace: "default", uid },
    spec: {
      initContainers: containers.filter(({ kind }) => kind !== "app").map(specOf),
      containers: containers.filter(({ kind }) => kind === "app").map(specOf),
    },
  };
  return { uid: podUid(uid), pod, source: "api" } as unknown as DesiredPod;
}
