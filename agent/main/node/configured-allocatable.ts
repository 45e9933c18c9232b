import type { Configuration } from "../../config/configuration.ts";
import type { NodeCapacity } from "../../node/machine.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import { parseCpuList } from "../../plan/node/cpu-list.ts";
import { effectiveReserved, type NodeAllocatable, nodeAllocatable } from "../../plan/node/node-allocatable.ts";

/** @returns Node Allocatable for this machine's configuration, which was validated against the machine */
export function configuredAllocatable(
  configuration: Configuration,
  capacity: NodeCapacity,
  maxPids: number | undefined,
): NodeAllocatable {
  const reservedCpus = parseCpuList(configuration.reservedSystemCPUs)?.length ?? 0;
  const thresholds = evictionThresholds(configuration);
  return nodeAllocatable({ capacity, maxPids, ...effectiveReserved(configuration, reservedCpus), thresholds });
}
