/** Decides whether a running pod gets other resources (pkg/kubelet/allocation; KEP 1287). Pure. */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Rejection, ResizeVerdict } from "../../core/pods/pod-admission.ts";
import { resizableContainers } from "../allocation.ts";
import { isResized } from "../resize.ts";
import { type Amounts, requestOf } from "./admission-resources.ts";
import { SYSTEM_CRITICAL_PRIORITY } from "./critical-pods.ts";

export interface ResizeView {
  readonly allocatable: Amounts;
  /** Burstable pods may swap their share (the kubelet's `memorySwap.swapBehavior` LimitedSwap). */
  readonly limitedSwap: boolean;
}

/** @returns why the request can never be granted; `undefined`: it may be granted some time */
export function infeasibleResize(
  requested: DesiredPod,
  allocated: DesiredPod,
  view: ResizeView,
): ResizeVerdict | undefined {
  const no = (message: string): ResizeVerdict => ({ kind: "pending", reason: "Infeasible", message });
  if (requested.source !== "api") return no("In-place resize of static-pods is not supported");
  if (view.limitedSwap && swapsInPlace(requested.pod, allocated.pod)) {
    return no("In-place resize of containers with swap is not supported.");
  }
  for (const resource of ["memory", "cpu"]) {
    const wanted = requestOf(requested.pod, resource);
    const capacity = view.allocatable.get(resource) ?? 0n;
    if (wanted <= capacity) continue;
    return no(`Node didn't have enough capacity: ${resource}, requested: ${wanted}, capacity: ${capacity}`);
  }
  return undefined;
}

/** @param rejection the answer to a new pod with the requested resources */
export const resizeVerdict = (rejection: Rejection | undefined): ResizeVerdict =>
  rejection === undefined ? { kind: "granted" } : { kind: "pending", reason: "Deferred", message: rejection.message };

/** A share of the swap goes with the memory that is asked for; that is not changed while something runs. */
function swapsInPlace(requested: Pod, allocated: Pod): boolean {
  const mayNot = qosClass(requested) !== "Burstable" || (requested.spec.priority ?? 0) >= SYSTEM_CRITICAL_PRIORITY;
  if (mayNot) return false;
  const before = new Map(resizableContainers(allocated).map(({ name, resources }) => [name, resources]));
  return resizableContainers(requested).some(({ name, resources, resizePolicy = [] }) => {
    const restarts = resizePolicy.some(
      ({ resourceName, restartPolicy }) => resourceName === "memory" && restartPolicy === "RestartContainer",
    );
    const had = before.get(name) ?? {};
    const changes = isResized("memory", { requests: had.requests }, { requests: resources.requests });
    return changes && !restarts;
  });
}

/** @returns whether a container requests another amount of the resource than it was granted */
export function resizeChanges(resource: "cpu" | "memory", requested: Pod, allocated: Pod): boolean {
  const before = new Map(resizableContainers(allocated).map(({ name, resources }) => [name, resources]));
  return resizableContainers(requested).some(({ name, resources }) =>
    isResized(resource, before.get(name) ?? {}, resources),
  );
}

export interface ResizeRequest {
  readonly requested: DesiredPod;
  readonly allocated: DesiredPod;
  /** `lastTransitionTime` of its condition PodResizePending, if it has one. */
  readonly since: string | undefined;
}

/**
 * The order in which requests are judged: first what asks for no more than before, then by priority, by QoS class, and
 * by how long it has waited.
 */
export function compareResizeRequests(left: ResizeRequest, right: ResizeRequest): number {
  return (
    Number(asksForMore(left)) - Number(asksForMore(right)) ||
    priorityOf(right) - priorityOf(left) ||
    Number(isGuaranteed(right)) - Number(isGuaranteed(left)) ||
    waitOf(left) - waitOf(right)
  );
}

const asksForMore = ({ requested, allocated }: ResizeRequest): boolean =>
  ["cpu", "memory"].some((resource) => requestOf(requested.pod, resource) > requestOf(allocated.pod, resource));
const priorityOf = ({ requested }: ResizeRequest): number => requested.pod.spec.priority ?? 0;
const isGuaranteed = ({ requested }: ResizeRequest): boolean => qosClass(requested.pod) === "Guaranteed";
const waitOf = ({ since }: ResizeRequest): number =>
  since === undefined ? Number.MAX_SAFE_INTEGER : Date.parse(since);
