/**
 * How the resources of containers that run become those that the node has granted, by the kubelet's rules of 1.34
 * (pkg/kubelet/kuberuntime, computePodResizeAction; KEP 1287). Pure.
 */

import { parseQuantity, quantityMilliValue, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, PodStatus, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { resizableContainers } from "./allocation.ts";
import { newestRun } from "./newest-run.ts";
import type { ContainerResize, PodView } from "./pod-view.ts";
import type { RunMemories } from "./run-memory.ts";

/** The resources that change in place. */
export type Resizable = "cpu" | "memory";

/** Requests and limits of one resource; 0 is none. CPU in thousandths, memory in bytes. */
export interface Amounts {
  readonly request: bigint;
  readonly limit: bigint;
}

export function amountsOf({ requests, limits }: ResourceRequirements, resource: Resizable): Amounts {
  const amount = (text: string | undefined): bigint => {
    const parsed = text === undefined ? undefined : parseQuantity(text);
    if (parsed?.ok !== true) return 0n;
    return resource === "cpu" ? quantityMilliValue(parsed.quantity) : quantityValue(parsed.quantity);
  };
  return { request: amount(requests?.[resource]), limit: amount(limits?.[resource]) };
}

export function isResized(resource: Resizable, from: ResourceRequirements, to: ResourceRequirements): boolean {
  const isSame =
    from.requests?.[resource] === to.requests?.[resource] && from.limits?.[resource] === to.limits?.[resource];
  // Nearly always: nothing is parsed then.
  if (isSame) return false;
  const [before, after] = [amountsOf(from, resource), amountsOf(to, resource)];
  return before.request !== after.request || before.limit !== after.limit;
}

/** `to`, but for the resource that is not this one, which is as in `from`. */
export function replaceResource(
  resource: Resizable,
  from: ResourceRequirements,
  to: ResourceRequirements,
): ResourceRequirements {
  const other = resource === "cpu" ? "memory" : "cpu";
  return {
    ...to,
    requests: texts({ ...to.requests, [other]: from.requests?.[other] }),
    limits: texts({ ...to.limits, [other]: from.limits?.[other] }),
  };
}

const texts = (all: Readonly<Record<string, string | undefined>>): Record<string, string> =>
  Object.fromEntries(Object.entries(all).flatMap(([name, text]) => (text === undefined ? [] : [[name, text]])));

/**
 * @returns the resources of a run: those of this agent's last update, else of the last status, else those at its
 * creation. If all are unknown, the granted ones.
 */
export function actuatedResources(
  { previous, runtime }: Pick<PodView, "previous" | "runtime">,
  runs: RunMemories,
  run: ObservedContainer,
  container: Container,
): ResourceRequirements {
  const memory = runs.get(run.name);
  const updated = memory?.attempt === run.attempt ? memory.resources : undefined;
  if (updated !== undefined) return updated;
  const { resources: made } = run;
  const reported = reportedResources(previous, `${runtime}://${run.id}`);
  if (reported === undefined || made === undefined) return reported ?? made ?? container.resources;
  // Resources that need a restart are those at the creation, even if the runtime reports others.
  return RESIZABLE.filter((each) => takesRestart(container, each)).reduce(
    (actual, each) => replaceResource(each, actual, made),
    reported,
  );
}

const RESIZABLE: readonly Resizable[] = ["cpu", "memory"];

const takesRestart = ({ resizePolicy = [] }: Container, resource: Resizable): boolean =>
  resizePolicy.some((each) => each.resourceName === resource && each.restartPolicy === "RestartContainer");

function reportedResources(previous: PodStatus | undefined, containerID: string): ResourceRequirements | undefined {
  const { initContainerStatuses = [], containerStatuses = [] } = previous ?? {};
  const reported = [...initContainerStatuses, ...containerStatuses].find((each) => each.containerID === containerID);
  return reported?.state.running === undefined ? undefined : reported.resources;
}

/** `undefined`: it has what it is granted. */
export function resizeOf(
  view: PodView,
  runs: RunMemories,
  run: ObservedContainer,
  container: Container,
): ContainerResize | undefined {
  if (run.state.kind !== "running") return undefined;
  const from = actuatedResources(view, runs, run, container);
  const to = container.resources;
  if (!isResized("cpu", from, to) && !isResized("memory", from, to)) return undefined;
  return { containerId: run.id, name: run.name, attempt: run.attempt, from, to };
}

/** @returns whether the container's resize policy asks for a restart for this change */
export const needsRestart = (container: Container, { from, to }: ContainerResize): boolean =>
  RESIZABLE.some((each) => takesRestart(container, each) && isResized(each, from, to));

export interface PodResizes {
  readonly inPlace: readonly ContainerResize[];
  /** True when a running container must be stopped for it first. */
  readonly awaitsRestart: boolean;
}

/** Those of all containers that run and whose resources may change while they do. */
export function resizesOf(view: PodView, observed: ObservedPod): PodResizes {
  const runs: RunMemories = view.worker.kind === "active" ? view.worker.runs : new Map();
  const inPlace: ContainerResize[] = [];
  let awaitsRestart = false;
  for (const container of resizableContainers(view.desired.pod)) {
    const run = newestRun(observed, container.name);
    const resize = run && resizeOf(view, runs, run, container);
    if (resize === undefined) continue;
    if (needsRestart(container, resize)) awaitsRestart = true;
    else inPlace.push(resize);
  }
  return { inPlace, awaitsRestart };
}

/** Decreases first, so that what one container gives up is there for the next. */
export const orderResizes = (resource: Resizable, resizes: readonly ContainerResize[]): readonly ContainerResize[] =>
  resizes
    .filter(({ from, to }) => isResized(resource, from, to))
    .toSorted((left, right) => Number(isIncrease(resource, left)) - Number(isIncrease(resource, right)));

function isIncrease(resource: Resizable, { from, to }: ContainerResize): boolean {
  const [before, after] = [amountsOf(from, resource), amountsOf(to, resource)];
  return after.limit === before.limit ? after.request > before.request : after.limit > before.limit;
}
