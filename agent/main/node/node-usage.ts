/** The one collection of what the node and its pods use, put together. */
import type { Clock, Log, Millis } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter, SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";
import { CgroupSampler } from "../../stats/cgroup-sampler.ts";
import type { CgroupFolders } from "../../stats/cgroup-usage.ts";
import { FilesystemSampler } from "../../stats/filesystem-sampler.ts";
import type { MountedVolume } from "../../stats/summary.ts";
import type { StatsSampler } from "../../stats/usage-stats.ts";
import { DiskUsageSampler } from "../../volumes/ephemeral-storage/disk-usage-sampler.ts";
import { readWritableLayers } from "../../volumes/ephemeral-storage/writable-layers.ts";
import { PodPaths } from "../../volumes/files/pod-paths.ts";

export interface NodeUsageComponents {
  readonly hierarchies: CgroupHierarchies;
  readonly pods: () => readonly AgentPod[];
  /** cgroupfs path; "": none. */
  readonly podCgroup: (pod: DesiredPod) => string;
  /** Missing: there are none. */
  readonly driverVolumes?: NodeUsageSampler["driverVolumes"];
  /** Containers' first. */
  readonly adapters: readonly RuntimeAdapter[];
  readonly clock: Clock;
  readonly log: Log;
}

export interface NodeUsageInit {
  readonly rootDir: string;
  readonly podLogsDir: string;
  /** cgroupfs path of the cgroup above those of pods; "": there is none. */
  readonly allPodsCgroup: string;
  readonly cgroupsPerQOS: boolean;
}

/** `UsageSampler`, with what statistics and the limits of single pods want besides. */
export interface NodeUsageSampler extends StatsSampler {
  readonly disk: DiskUsageSampler["disk"];
  /** Volumes of CSI drivers, as these report them. */
  readonly driverVolumes: (pod: AgentPod) => Promise<readonly MountedVolume[]>;
}

export function makeNodeUsageSampler(components: NodeUsageComponents, init: NodeUsageInit): NodeUsageSampler {
  const { hierarchies, adapters } = components;
  const shared = (signal: AbortSignal) => sharedUsages(components, signal);
  const cgroups = new CgroupSampler({ ...components, shared, cgroups: cgroupFoldersOf(hierarchies) }, init);
  const filesystems = new FilesystemSampler({ ...components, images: adapters[0]?.images }, init);
  const disks = new DiskUsageSampler({ ...components, writtenFolders: readWritableLayers, paths: new PodPaths(init) });
  return {
    sample: (maxAge, signal) => cgroups.sample(maxAge, signal),
    cgroup: (path, look) => cgroups.cgroup(path, look),
    processes: (path) => cgroups.processes(path),
    filesystems: (maxAge: Millis, signal) => filesystems.filesystems(maxAge, signal),
    disk: (maxAge, signal, only) => disks.disk(maxAge, signal, only),
    measuredDisk: () => disks.measured(),
    driverVolumes: async (pod) => (await components.driverVolumes?.(pod)) ?? [],
  };
}

/** A runtime that does not answer leaves its containers without figures, like a container that has just started. */
async function sharedUsages(
  { adapters, log }: Pick<NodeUsageComponents, "adapters" | "log">,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, SharedUsage>> {
  const found: (readonly [string, SharedUsage])[] = [];
  for (const adapter of adapters) {
    try {
      found.push(...((await adapter.sharedUsage?.(signal)) ?? []));
    } catch (error) {
      if (!signal.aborted) log.warn("what containers of shared processes use is not known", { error });
    }
  }
  return new Map(found);
}

export function cgroupFoldersOf(hierarchies: CgroupHierarchies): CgroupFolders {
  const { kind } = hierarchies;
  switch (kind) {
    case "v1":
      return { kind, folder: (name) => hierarchies.controllers.get(name === "io" ? "blkio" : name) };
    case "v2": {
      const { mountPoint, controllers } = hierarchies;
      return { kind, folder: (name) => (name === "cpuacct" || controllers.has(name) ? mountPoint : undefined) };
    }
    case "none":
      return { kind, folder: () => undefined };
  }
}
