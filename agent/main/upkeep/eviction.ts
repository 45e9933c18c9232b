/** Puts together the eviction of pods. */
import { join } from "node:path";
import { seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Configuration } from "../../config/configuration.ts";
import { EvictionManager, type EvictionManagerComponents } from "../../eviction/eviction-manager.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";
import type { CgroupTree } from "../../resources/cgroup-tree.ts";
import type { PodCgroups } from "../../resources/pod-cgroups.ts";
import { CgroupMemoryEvents } from "../../stats/cgroup-memory-events.ts";
import { HeldStalls } from "../../stats/held-stalls.ts";
import { MemoryGauge } from "../../stats/memory-gauge.ts";
import { ProtectedCache } from "../../stats/protected-cache.ts";
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
  const folders = cgroupFoldersOf(hierarchies);
  const gauge = new MemoryGauge(folders, {
    allPodsCgroup,
    protectedCache: new ProtectedCache({ cgroups: folders, clock: ports.clock }, { allPodsCgroup }),
    maxPids: countsPids ? maxPids : undefined,
  });
  const held = new HeldStalls(folders);
  const podPaths = (): readonly string[] => ports.pods().flatMap(({ desired }) => pathOf(podCgroups, desired));
  const maxSeconds = configuration.evictionMaxPodGracePeriod;
  return new EvictionManager(
    {
      ...ports,
      memory: (range) => gauge.read(range),
      memoryEvents: memoryEventsOf(hierarchies, allPodsCgroup),
      heldStalls: !configuration.cgroupsPerQOS ? undefined : (now) => held.totalUs(podPaths(), now),
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

/** None for a pod whose uid cannot be the name of a cgroup: it never ran. */
function pathOf(podCgroups: PodCgroups, pod: DesiredPod): readonly string[] {
  try {
    return [podCgroups.pathOf(pod)].filter((path) => path !== "");
  } catch {
    return [];
  }
}

const memoryEventsOf = (hierarchies: CgroupHierarchies, path: string): CgroupMemoryEvents | undefined =>
  hierarchies.kind !== "v2" || path === ""
    ? undefined
    : new CgroupMemoryEvents(join(hierarchies.mountPoint, path, "memory.events"));
