import type { CgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { Configuration } from "../../config/configuration.ts";
import {
  type Machine,
  maxPids,
  type NodeCapacity,
  nodeCapacity,
  podCapacity,
  readMachine,
} from "../../node/machine.ts";
import { NodeAddresses } from "../../node/node-addresses.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import { parseCpuList } from "../../plan/node/cpu-list.ts";
import { effectiveReserved, type NodeAllocatable, nodeAllocatable } from "../../plan/node/node-allocatable.ts";
import type { CgroupTree } from "../../resources/cgroup-tree.ts";
import type { AgentInit, AgentPorts } from "./agent-init.ts";
import { detectNodeCgroups, type NodeCgroups } from "./cgroups.ts";

/** Facts and paths of this node, detected once. */
export interface ThisNode {
  readonly machine: Machine;
  readonly capacity: NodeCapacity;
  readonly maxPids: number | undefined;
  readonly share: NodeAllocatable;
  readonly podCgroups: NodeCgroups;
  readonly cgroups: CgroupTree;
  readonly cgroupSettings: CgroupSettings;
  /** cgroupfs path of the cgroup above those of pods; "": there is none. */
  readonly allPodsCgroup: string;
  /** The addresses in statuses; read again regularly. */
  readonly hostIps: () => readonly string[];
}

export async function detectNode(
  ports: AgentPorts,
  { args, configuration }: AgentInit,
  signal: AbortSignal,
): Promise<ThisNode> {
  const machine = await readMachine();
  const capacity = await nodeCapacity(machine, args.rootDir, podCapacity(configuration, machine));
  const pids = await maxPids();
  const share = configuredAllocatable(configuration, capacity, pids);
  const { memoryBytes } = machine;
  const podCgroups = await detectNodeCgroups(ports, { configuration, share, memoryBytes }, signal);
  const addresses = new NodeAddresses(ports.clock);
  return {
    machine,
    capacity,
    maxPids: pids,
    share,
    podCgroups,
    cgroups: podCgroups.tree,
    cgroupSettings: podCgroups.settings,
    allPodsCgroup: configuration.cgroupsPerQOS ? podCgroups.names.tier("Guaranteed") : "",
    hostIps: () => addresses.current,
  };
}

/** @returns Node Allocatable for this machine's configuration, which was validated against the machine */
function configuredAllocatable(
  configuration: Configuration,
  capacity: NodeCapacity,
  maxPids: number | undefined,
): NodeAllocatable {
  const reservedCpus = parseCpuList(configuration.reservedSystemCPUs)?.length ?? 0;
  const thresholds = evictionThresholds(configuration);
  return nodeAllocatable({ capacity, maxPids, ...effectiveReserved(configuration, reservedCpus), thresholds });
}
