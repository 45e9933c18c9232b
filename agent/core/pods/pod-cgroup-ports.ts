/** The cgroups of pods, for changing them while something runs in them. `agent/resources` implements it. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** -1: no limit. */
export type PodCgroupValues = Required<Readonly<Record<"cpuShares" | "cpuQuotaUs" | "memoryLimitBytes", number>>>;

export interface PodResources {
  /** What the pod's cgroup is to have by what it is granted. */
  wanted(pod: DesiredPod): CgroupValues;
  /** What it has; `undefined` when the pod has no cgroup of its own. */
  current(pod: DesiredPod): Promise<PodCgroupValues | undefined>;
  /** Only what is named changes. @throws what the kernel refuses */
  write(pod: DesiredPod, values: CgroupValues): Promise<void>;
  /** Bytes in use in the pod's cgroup, or in that of one of its containers; `undefined` when nobody knows. */
  memoryUsage(pod: DesiredPod, containerId?: string): Promise<number | undefined>;
}
