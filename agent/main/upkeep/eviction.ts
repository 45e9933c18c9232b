/** Puts together the eviction of pods. */
import { join } from "node:path";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Configuration } from "../../config/configuration.ts";
import { EvictionManager, type EvictionManagerComponents } from "../../eviction/eviction-manager.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";
import type { CgroupTree } from "../../resources/cgroup-tree.ts";
import type { PodCgroups } from "../../resources/pod-cgroups.ts";
import { CgroupMemoryEvents } from "../../stats/cgroup-memory-events.ts";
import { MemoryGauge } from "../../stats/memory-gauge.ts";
import { cgroupFoldersOf } from "../node/node-usage.ts";

export interface EvictionComponents
  extends Pick<
    EvictionManagerComponents,
    "usage" | "pods" | "ender" | "switcher" | "reclaim" | "release" | "events" | "decisions" | "clock" | "log"
  > {
  readonly cgroups: CgroupTree;
  readonly podCgroups: PodCgroups;
}

export interface EvictionInit {
  readonly configuration: Configuration;
  /** cgroupfs path of the cgroup above those of pods; "": there is none. */
  readonly allPodsCgroup: string;
  readonly maxPids: number | undefined;
}

export function makeEviction(components: EvictionComponents, init: EvictionInit): EvictionManager {
  const { cgroups, podCgroups, ...ports } = components;
  const { configuration, allPodsCgroup, maxPids } = init;
  const { hierarchies } = cgroups;
  const thresholds = evictionThresholds(configuration);
  const countsPids = thresholds.some(({ signal }) => signal === "pid.available");
  const gauge = new MemoryGauge(cgroupFoldersOf(hierarchies), {
    allPodsCgroup,
    maxPids: countsPids ? maxPids : undefined,
  });
  const maxSeconds = configuration.evictionMaxPodGracePeriod;
  return new EvictionManager(
    {
      ...ports,
      memory: (range) => gauge.read(range),
      memoryEvents: memoryEventsOf(hierarchies, allPodsCgroup),
      // Without cgroups of their own pods cannot be distinguished.
      kill: !configuration.cgroupsPerQOS
        ? undefined
        : async (pod, signal) => {
            const path = podCgroups.pathOf(pod);
            if (path !== "") await cgroups.kill(path, signal);
          },
    },
    {
      nodeName: configuration.nodeName,
      thresholds,
      transitionPeriod: configuration.evictionPressureTransitionPeriod,
      maxGracePeriod: maxSeconds < 0 ? undefined : seconds(maxSeconds),
      maxPids,
    },
  );
}

const memoryEventsOf = (hierarchies: CgroupHierarchies, path: string): CgroupMemoryEvents | undefined =>
  hierarchies.kind !== "v2" || path === ""
    ? undefined
    : new CgroupMemoryEvents(join(hierarchies.mountPoint, path, "memory.events"));
