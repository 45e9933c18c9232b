/** The cgroups of pods, for changing them while something runs in them. `agent/resources` implements it. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** -1: no limit. */
export type PodCgroupValues = Required<Readonly<Record<"cpuShares" | "cpuQuotaUs" | "memoryLimitBytes", number>>>;

export interface PodResources {
  /** @returns the values for the pod's cgroup according to its granted resources */
  wanted(pod: DesiredPod): CgroupValues;
  /** @returns the current values; `undefined` when the pod has no cgroup of its own */
  current(pod: DesiredPod): Promise<PodCgroupValues | undefined>;
  /** Only what is named changes. @throws what the kernel refuses */
  write(pod: DesiredPod, values: CgroupValues): Promise<void>;
  /** @returns bytes in use in the cgroup of the pod or of a container; `undefined`: unknown */
  memoryUsage(pod: DesiredPod, containerId?: string): Promise<number | undefined>;
}
