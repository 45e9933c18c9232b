import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Topology, TopologyComponents, TopologyInit } from "./topology.ts";

/** The kubelet's. */
const STATE_FILES = ["cpu_manager_state", "memory_manager_state"];

/**
 * Loaded only where a policy asks for it, or has left a state file, which says what the pods that run still have: one
 * that another policy has written is refused.
 */
export async function makePlacement(components: TopologyComponents, init: TopologyInit): Promise<Topology | undefined> {
  const { cpuManagerPolicy, memoryManagerPolicy, topologyManagerPolicy } = init.configuration;
  const isOff = cpuManagerPolicy === "none" && memoryManagerPolicy === "None" && topologyManagerPolicy === "none";
  if (isOff && !STATE_FILES.some((name) => existsSync(join(init.rootDir, name)))) return undefined;
  const { makeTopology } = await import("./topology.ts");
  return await makeTopology(components, init);
}
