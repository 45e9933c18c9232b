/** Resources of containers and sandboxes as the kubelet sends them. Pure. */
import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
  oomScoreAdj,
  swapShareBytes,
} from "@picolet/protocol/cgroup/cgroup-values.ts";
import { hugePageLimits, hugePagesIn } from "@picolet/protocol/cgroup/huge-pages.ts";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { podLimits, podRequests, type Quantities } from "@picolet/protocol/pod/pod-resources.ts";
import type { Cpuset } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { LinuxContainerResources } from "../wire/cri-messages.ts";
import type { InputOf } from "../wire/protobuf.ts";
import type { RuntimeMachine } from "./runtime-machine.ts";

export interface ResourceSettings {
  readonly cgroups: CgroupSettings;
  /** The node's memory. */
  readonly memoryCapacityBytes: number;
  /** The kubelet's `memorySwap.swapBehavior` is LimitedSwap: burstable pods may swap their share. */
  readonly limitedSwap: boolean;
  /** The kubelet's `singleProcessOOMKill`: an OOM kill in a container ends one process of it, not all. */
  readonly singleProcessOomKill: boolean;
  readonly machine: RuntimeMachine;
}

type Resources = InputOf<typeof LinuxContainerResources>;
type Texts = Readonly<Record<string, string>>;

export function containerResources(
  pod: Pod,
  container: Container,
  settings: ResourceSettings,
  cpuset?: Cpuset,
): Resources {
  const values = containerCgroupValues(container, settings.cgroups, pod);
  return {
    ...limits(values),
    ...(cpuset?.exclusive === true && values.cpuQuotaUs !== undefined ? { cpuQuota: -1 } : {}),
    ...cpusetResources(cpuset),
    oomScoreAdj: oomScoreAdj(pod, container, settings.memoryCapacityBytes),
    hugepageLimits: hugePages(pod, container, settings.machine),
    ...(settings.machine.swapAccounting && !settings.machine.unifiedCgroups
      ? { memorySwapLimitInBytes: values.memoryLimitBytes }
      : {}),
    unified: unifiedValues(pod, container, values, settings),
  };
}

export const cpusetResources = (cpuset: Cpuset | undefined): Resources =>
  cpuset === undefined ? {} : { cpusetCpus: cpuset.cpus, cpusetMems: cpuset.mems };

/** The resources of all containers of a pod together, for runtimes that make a machine of each sandbox. */
export function sandboxResources(pod: Pod, settings: ResourceSettings): Resources {
  const { overhead: _, ...spec } = pod.spec;
  const bare = { ...pod, spec };
  const resources = { requests: textsOf(podRequests(bare)), limits: textsOf(podLimits(bare)) };
  return { ...limits(containerCgroupValues({ resources }, settings.cgroups)), ...oomGroup(settings) };
}

/** `undefined`: the pod's RuntimeClass takes nothing for itself. */
export function overheadResources({ spec }: Pod, settings: ResourceSettings): Resources | undefined {
  if (spec.overhead === undefined) return undefined;
  const resources = { requests: spec.overhead, limits: spec.overhead };
  return { ...limits(containerCgroupValues({ resources }, settings.cgroups)), ...oomGroup(settings) };
}

const limits = (values: CgroupValues): Resources => ({
  cpuPeriod: values.cpuPeriodUs,
  cpuQuota: values.cpuQuotaUs,
  cpuShares: values.cpuShares,
  memoryLimitInBytes: values.memoryLimitBytes,
});

/** The values that only cgroup v2 has. Each time all of them are named, so that an update removes the former ones. */
function unifiedValues(
  pod: Pod,
  container: Container,
  { memoryMinBytes, memoryLowBytes, memoryHighBytes }: CgroupValues,
  settings: ResourceSettings,
): ReadonlyMap<string, string> {
  const values = new Map(oomGroup(settings).unified);
  const { swapAccounting, unifiedCgroups, swapBytes } = settings.machine;
  if (!unifiedCgroups) return values;
  if (memoryMinBytes !== undefined) values.set("memory.min", String(memoryMinBytes));
  if (memoryLowBytes !== undefined) values.set("memory.low", String(memoryLowBytes));
  if (memoryHighBytes !== undefined) values.set("memory.high", memoryHighBytes < 0 ? "max" : String(memoryHighBytes));
  if (!swapAccounting) return values;
  const { limitedSwap: limited, memoryCapacityBytes } = settings;
  const share = swapShareBytes(pod, container, { limited, swapBytes, memoryCapacityBytes });
  return values.set("memory.swap.max", String(share));
}

const oomGroup = ({ machine, singleProcessOomKill }: ResourceSettings): { unified: ReadonlyMap<string, string> } => ({
  unified: new Map(machine.unifiedCgroups && !singleProcessOomKill ? [["memory.oom.group", "1"]] : []),
});

/**
 * Returns every page size of the machine, with 0 for those that are not requested; a container's own before those of
 * its pod.
 */
function hugePages(pod: Pod, container: Container, { hugePageSizes }: RuntimeMachine): Resources["hugepageLimits"] {
  const wanted = [...hugePagesIn(pod.spec.resources?.limits), ...hugePagesIn(container.resources.limits)];
  return Object.entries(hugePageLimits(wanted, hugePageSizes)).map(([pageSize, limit]) => ({ pageSize, limit }));
}

const textsOf = (quantities: Quantities): Texts =>
  Object.fromEntries([...quantities].map(([name, quantity]) => [name, formatQuantity(quantity)]));
