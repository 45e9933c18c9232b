/** Resources of containers and sandboxes as the kubelet sends them. Pure. */
import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
  oomScoreAdj,
} from "../../protocol/cgroup-values.ts";
import type { Container, Pod } from "../../protocol/pod.ts";
import { podLimits, podRequests, type Quantities } from "../../protocol/pod-resources.ts";
import { qosClass } from "../../protocol/qos.ts";
import { formatQuantity, parseQuantity, quantityValue } from "../../protocol/quantity.ts";
import type { LinuxContainerResources } from "./cri-messages.ts";
import { hugePageName, type RuntimeMachine } from "./runtime-machine.ts";
import type { InputOf } from "./wire/protobuf.ts";

export interface ResourceSettings {
  readonly cgroups: CgroupSettings;
  /** Of the node. */
  readonly memoryCapacityBytes: number;
  /** The kubelet's `memorySwap.swapBehavior` is LimitedSwap: burstable pods may swap their share. */
  readonly limitedSwap: boolean;
  /** The kubelet's `singleProcessOOMKill`: an OOM kill in a container ends one process of it, not all. */
  readonly singleProcessOomKill: boolean;
  readonly machine: RuntimeMachine;
}

type Resources = InputOf<typeof LinuxContainerResources>;
type Texts = Readonly<Record<string, string>>;

const HUGE_PAGES = "hugepages-";
/** Pods that the node or the cluster cannot do without swap nothing. */
const CRITICAL_PRIORITY = 2_000_000_000;

export function containerResources(pod: Pod, container: Container, settings: ResourceSettings): Resources {
  const values = containerCgroupValues(container, settings.cgroups, pod.spec.resources);
  return {
    ...limits(values),
    oomScoreAdj: oomScoreAdj(pod, container, settings.memoryCapacityBytes),
    hugepageLimits: hugePageLimits(pod, container, settings.machine),
    ...(settings.machine.swapAccounting && !settings.machine.unifiedCgroups
      ? { memorySwapLimitInBytes: values.memoryLimitBytes }
      : {}),
    unified: unifiedValues(pod, container, settings),
  };
}

/** What all containers of a pod may have together, for runtimes that make a machine of each sandbox. */
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

/** What cgroup v2 alone has. */
function unifiedValues(pod: Pod, container: Container, settings: ResourceSettings): ReadonlyMap<string, string> {
  const values = new Map(oomGroup(settings).unified);
  const { swapAccounting, unifiedCgroups } = settings.machine;
  if (swapAccounting && unifiedCgroups) {
    values.set("memory.swap.max", String(settings.limitedSwap ? swapShare(pod, container, settings) : 0));
  }
  return values;
}

const oomGroup = ({ machine, singleProcessOomKill }: ResourceSettings): { unified: ReadonlyMap<string, string> } => ({
  unified: new Map(machine.unifiedCgroups && !singleProcessOomKill ? [["memory.oom.group", "1"]] : []),
});

/** The same share of the swap that it asks for of the memory. */
function swapShare(pod: Pod, { resources }: Container, settings: ResourceSettings): number {
  const request = bytesOf(resources.requests?.memory);
  const limit = bytesOf(resources.limits?.memory);
  const isCritical = (pod.spec.priority ?? 0) >= CRITICAL_PRIORITY;
  const mayNot = isCritical || qosClass(pod) !== "Burstable" || request === limit;
  if (mayNot || request > settings.memoryCapacityBytes) return 0;
  return Math.floor((request / settings.memoryCapacityBytes) * settings.machine.swapBytes);
}

/** Every size that the machine has, 0 where nobody asks; a container's own before those of its pod. */
function hugePageLimits(
  pod: Pod,
  container: Container,
  { hugePageSizes }: RuntimeMachine,
): Resources["hugepageLimits"] {
  const wanted = new Map([...hugePagesIn(pod.spec.resources?.limits), ...hugePagesIn(container.resources.limits)]);
  return hugePageSizes.map((pageSize) => ({ pageSize, limit: wanted.get(pageSize) ?? 0 }));
}

function* hugePagesIn(texts: Texts | undefined): Iterable<[string, number]> {
  for (const [name, amount] of Object.entries(texts ?? {})) {
    if (name.startsWith(HUGE_PAGES)) yield [hugePageName(bytesOf(name.slice(HUGE_PAGES.length))), bytesOf(amount)];
  }
}

function bytesOf(text: string | undefined): number {
  const result = text === undefined ? undefined : parseQuantity(text);
  return result?.ok === true ? Number(quantityValue(result.quantity)) : 0;
}

const textsOf = (quantities: Quantities): Texts =>
  Object.fromEntries([...quantities].map(([name, quantity]) => [name, formatQuantity(quantity)]));
