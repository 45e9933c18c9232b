/** Derives the parts of a pod's status about changes of its resources, as in the kubelet (KEP 1287). Pure. */

import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { formatQuantity, quantityOf } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, ContainerStatus, PodCondition, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodView } from "./pod-view.ts";
import { type Amounts, actuatedResources, amountsOf, type Resizable, resizesOf } from "./resize.ts";
import type { RunMemories } from "./run-memory.ts";

type Resources = Pick<ContainerStatus, "resources" | "allocatedResources">;
type ResizeCondition = "PodResizePending" | "PodResizeInProgress";

/** The least that the kernel counts: what is below is shown as it was asked for. */
const MIN_CPU_LIMIT = 10n;
const MIN_CPU_REQUEST = 2n;
/** At most; boards have pages of 4 or 16 KiB. */
const PAGE_BYTES = 65_536n;
const SHARES_PER_CPU = 1024n;
const MILLI_PER_CPU = 1000n;
const NO_RUNS: RunMemories = new Map();

/** @returns the actual resources of a running container, the granted ones of any other */
export function shownResources(view: PodView, container: Container, run: ObservedContainer): Resources {
  const { resources: granted } = container;
  const allocated = granted.requests === undefined ? {} : { allocatedResources: granted.requests };
  if (run.state.kind !== "running") return { ...allocated, resources: granted };
  const runs = view.worker.kind === "active" ? view.worker.runs : NO_RUNS;
  const actuated = actuatedResources(view, runs, run, container);
  return { ...allocated, resources: actualResources(granted, actuated, run) };
}

function actualResources(
  granted: ResourceRequirements,
  actuated: ResourceRequirements,
  { cgroup = {} }: ObservedContainer,
): ResourceRequirements {
  const { cpuShares, cpuQuotaUs = -1, cpuPeriodUs, memoryLimitBytes = -1 } = cgroup;
  const cpu = amountsOf(actuated, "cpu");
  const memory = amountsOf(actuated, "memory");
  const quota = cpuQuotaUs > 0 && cpuPeriodUs !== undefined ? milliOfQuota(cpuQuotaUs, cpuPeriodUs) : undefined;
  const reported: Record<Resizable, Partial<Amounts>> = {
    cpu: {
      ...above(cpu.request, cpuShares === undefined ? undefined : milliOfShares(cpuShares), MIN_CPU_REQUEST, "request"),
      ...above(cpu.limit, quota, MIN_CPU_LIMIT, "limit"),
    },
    memory: above(memory.limit, reportedBytes(memory.limit, memoryLimitBytes), 0n, "limit"),
  };
  return {
    ...granted,
    ...(granted.requests === undefined ? {} : { requests: shown(granted, actuated, reported, "request") }),
    ...(granted.limits === undefined ? {} : { limits: shown(granted, actuated, reported, "limit") }),
  };
}

/** The kernel counts whole pages. */
function reportedBytes(known: bigint, reported: number): bigint | undefined {
  if (reported <= 0) return undefined;
  const missing = known - BigInt(reported);
  return missing >= 0n && missing < PAGE_BYTES ? known : BigInt(reported);
}

const milliOfShares = (shares: number): bigint =>
  (BigInt(shares) * MILLI_PER_CPU + SHARES_PER_CPU - 1n) / SHARES_PER_CPU;
const milliOfQuota = (quotaUs: number, periodUs: number): bigint =>
  (BigInt(quotaUs) * MILLI_PER_CPU) / BigInt(periodUs);

/** Only what is another amount than is known, and more than both of them count at the least. */
function above(known: bigint, reported: bigint | undefined, least: bigint, which: keyof Amounts): Partial<Amounts> {
  const isNew = reported !== undefined && reported !== known && (reported > least || known > least);
  return isNew ? { [which]: reported } : {};
}

function shown(
  granted: ResourceRequirements,
  actuated: ResourceRequirements,
  reported: Readonly<Record<Resizable, Partial<Amounts>>>,
  which: keyof Amounts,
): Record<string, string> {
  const part = `${which}s` as const;
  const all: Record<string, string> = { ...granted[part] };
  for (const resource of ["cpu", "memory"] as const) {
    const amount = reported[resource][which];
    const text = amount === undefined ? actuated[part]?.[resource] : textOf(resource, amount);
    if (text === undefined) delete all[resource];
    else all[resource] = text;
  }
  return all;
}

const textOf = (resource: Resizable, amount: bigint): string =>
  resource === "cpu"
    ? formatQuantity(quantityOf(`${amount}m`))
    : formatQuantity({ ...quantityOf(String(amount)), format: "BinarySI" });

/** While a pod is ending nothing is resized any more: what was said of it stays until it is over. */
export function resizeConditions(view: PodView, isOver: boolean): readonly PodCondition[] {
  if (isOver) return [];
  if (view.worker.kind !== "active" || view.observed === undefined) {
    return (view.previous?.conditions ?? []).filter(({ type }) => isResizeCondition(type));
  }
  const { pending } = view.resize;
  const reported = pending === undefined ? [] : [condition(view, "PodResizePending", pending)];
  if (!isResizing(view)) return reported;
  const before = view.previous?.conditions?.find(({ type }) => type === "PodResizeInProgress");
  const failure = view.failures.get("resize");
  const generation = view.resize.generation ?? before?.observedGeneration ?? view.desired.pod.metadata.generation;
  const error = failure === undefined ? {} : { reason: "Error", message: failure.message };
  return [...reported, condition(view, "PodResizeInProgress", { ...error, generation })];
}

/** @returns whether a running container has other resources than it was granted */
export function isResizing(view: PodView): boolean {
  if (view.worker.kind !== "active" || view.observed === undefined) return false;
  const { inPlace, awaitsRestart } = resizesOf(view, view.observed);
  return inPlace.length > 0 || awaitsRestart || view.failures.has("resize");
}

export const isResizeCondition = (type: string): type is ResizeCondition =>
  type === "PodResizePending" || type === "PodResizeInProgress";

/** Its time is that of the last change of reason. */
function condition(
  { previous, wallMs }: PodView,
  type: ResizeCondition,
  { reason, message, generation }: { reason?: string; message?: string; generation: number | undefined },
): PodCondition {
  const before = previous?.conditions?.find((each) => each.type === type);
  const now = kubeTime(wallMs);
  const isSame = before !== undefined && before.reason === reason;
  return {
    type,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    status: "True",
    lastProbeTime: isSame && before.message === message ? (before.lastProbeTime ?? now) : now,
    lastTransitionTime: isSame ? (before.lastTransitionTime ?? now) : now,
    ...(reason === undefined ? {} : { reason }),
    ...(message === undefined ? {} : { message }),
  };
}

/** Message of the event ResizeCompleted. */
export function resizeCompletedMessage({ desired: { pod } }: Pick<PodView, "desired">): string {
  const summary = (containers: readonly Container[]) =>
    containers.map(({ name, resources: { limits, requests, claims } }) => ({
      name,
      resources: { limits: sorted(limits), requests: sorted(requests), claims },
    }));
  const { initContainers = [], containers } = pod.spec;
  const init = initContainers.length === 0 ? {} : { initContainers: summary(initContainers) };
  return `Pod resize completed: ${JSON.stringify({ ...init, containers: summary(containers) })}`;
}

function sorted(texts: Readonly<Record<string, string>> | undefined): Record<string, string> | undefined {
  const entries = Object.entries(texts ?? {}).toSorted(([left], [right]) => (left < right ? -1 : 1));
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}
