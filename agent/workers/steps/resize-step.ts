import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodCgroupValues, PodResources } from "../../core/pods/pod-cgroup-ports.ts";
import type { ContainerResize } from "../../plan/pod-view.ts";
import { amountsOf, orderResizes, type Resizable, replaceResource } from "../../plan/resize.ts";

export interface ResizeOrder {
  readonly pod: DesiredPod;
  readonly containers: readonly ContainerResize[];
  /** Writes all CPU and memory resources of one container. */
  readonly update: (container: ContainerResize, resources: ResourceRequirements) => Promise<void>;
}

/** The current and the next value of one control of the pod's cgroup. */
interface Change {
  readonly now: number;
  readonly next: number;
  readonly values: CgroupValues;
}

/**
 * Gives a running pod its granted resources (pkg/kubelet/kuberuntime, doPodResizeAction). Memory comes before CPU. The
 * pod's cgroup grows before its containers and shrinks after them; limits grow before requests and shrink after them.
 * A resize that fails in the middle starts again and skips what is done.
 */
export async function resizePod(resources: PodResources | undefined, order: ResizeOrder): Promise<void> {
  const { pod, containers } = order;
  const current = await resources?.current(pod);
  const wanted = resources?.wanted(pod) ?? {};
  const resizer = new Resizer(resources, order);
  if (resources !== undefined && current !== undefined) await refuseTooLittle(resources, order, current, wanted);
  const memory = changesOf("memory", current, wanted);
  const afterMemory = await resizer.resize("memory", containers, memory);
  await resizer.resize("cpu", afterMemory, changesOf("cpu", current, wanted));
  const { memoryMinBytes, memoryLowBytes } = wanted;
  if (memoryMinBytes !== undefined) await resources?.write(pod, { memoryMinBytes, memoryLowBytes });
}

class Resizer {
  readonly #resources: PodResources | undefined;
  readonly #order: ResizeOrder;

  constructor(resources: PodResources | undefined, order: ResizeOrder) {
    this.#resources = resources;
    this.#order = order;
  }

  /** @returns the containers with their new resources */
  async resize(
    resource: Resizable,
    containers: readonly ContainerResize[],
    changes: readonly Change[],
  ): Promise<readonly ContainerResize[]> {
    for (const each of changes) if (isGrowth(each)) await this.#write(each);
    const updated = new Map<string, ContainerResize>();
    for (const each of orderResizes(resource, containers)) {
      const from = replaceResource(resource, each.from, each.to);
      await this.#order.update(each, from);
      updated.set(each.containerId, { ...each, from });
    }
    for (const each of changes.toReversed()) if (!isGrowth(each) && each.next !== each.now) await this.#write(each);
    return containers.map((each) => updated.get(each.containerId) ?? each);
  }

  async #write({ values }: Change): Promise<void> {
    await this.#resources?.write(this.#order.pod, values);
  }
}

const isGrowth = ({ now, next }: Change): boolean => height(next) > height(now);
const height = (limit: number): number => (limit < 0 ? Number.POSITIVE_INFINITY : limit);

/** Lists limits before requests. A limit that is no longer granted stays, as in the kubelet. */
function changesOf(resource: Resizable, current: PodCgroupValues | undefined, wanted: CgroupValues): readonly Change[] {
  if (current === undefined) return [];
  const { cpuShares = current.cpuShares, cpuQuotaUs = current.cpuQuotaUs, cpuPeriodUs } = wanted;
  const { memoryLimitBytes = current.memoryLimitBytes } = wanted;
  if (resource === "memory") {
    return [{ now: current.memoryLimitBytes, next: memoryLimitBytes, values: { memoryLimitBytes } }];
  }
  return [
    { now: current.cpuQuotaUs, next: cpuQuotaUs, values: { cpuQuotaUs, cpuPeriodUs } },
    { now: current.cpuShares, next: cpuShares, values: { cpuShares } },
  ];
}

/** Best effort: usage may grow a moment later, and then the kernel refuses. */
async function refuseTooLittle(
  resources: PodResources,
  { pod, containers }: ResizeOrder,
  current: PodCgroupValues,
  { memoryLimitBytes: limit }: CgroupValues,
): Promise<void> {
  const problems: string[] = [];
  if (limit !== undefined && height(limit) < height(current.memoryLimitBytes)) {
    const usage = await resources.memoryUsage(pod);
    if (usage === undefined) problems.push("missing pod memory usage");
    else if (usage >= limit) {
      problems.push(`attempting to set pod memory limit (${limit}) below current usage (${usage})`);
    }
  }
  for (const { containerId, name, from, to } of containers) {
    const [before, after] = [amountsOf(from, "memory").limit, amountsOf(to, "memory").limit];
    if (after === 0n || (before !== 0n && after >= before)) continue;
    const usage = await resources.memoryUsage(pod, containerId);
    if (usage === undefined) problems.push(`missing container ${JSON.stringify(name)} memory usage`);
    else if (BigInt(usage) >= after) {
      const what = `container ${JSON.stringify(name)} memory limit (${after})`;
      problems.push(`attempting to set ${what} below current usage (${usage})`);
    }
  }
  if (problems.length === 0) return;
  const all = problems.length === 1 ? problems[0] : `[${problems.join(", ")}]`;
  throw new PicoletError("failed", `cannot decrease memory limits: ${all}`, { retryable: true });
}
