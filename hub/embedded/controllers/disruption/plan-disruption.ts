/** PodDisruptionBudgets: what they allow, and whether a pod may be evicted. Pure. Rules of Kubernetes 1.34. */
import type { Pod } from "../../../../protocol/pod.ts";
import type { KubeObject } from "../../../core/kube-client.ts";
import { selects } from "../label-selector.ts";
import { type Condition, hasEnded, isPodReady, type LabelSelector } from "../objects.ts";

export interface DisruptionBudget extends KubeObject {
  readonly spec?: {
    readonly selector?: LabelSelector;
    readonly minAvailable?: number | string;
    readonly maxUnavailable?: number | string;
    readonly unhealthyPodEvictionPolicy?: "IfHealthyBudget" | "AlwaysAllow";
  };
  readonly status?: BudgetStatus;
}

export interface BudgetStatus {
  readonly observedGeneration?: number;
  /** Pods whose eviction was allowed a moment ago, by name, and when. */
  readonly disruptedPods?: Readonly<Record<string, string>>;
  readonly disruptionsAllowed: number;
  readonly currentHealthy: number;
  readonly desiredHealthy: number;
  readonly expectedPods: number;
  readonly conditions?: readonly Condition[];
}

/** Kubernetes': an eviction that was allowed and is not seen to happen for so long does not count any more. */
const DELETION_TIMEOUT_MS = 120_000;

const share = (value: number | string, total: number): number => {
  const percent = /^(\d+)%$/.exec(String(value))?.[1];
  return percent === undefined ? Number(value) : Math.ceil((Number(percent) * total) / 100);
};

/** @param pods of the budget's namespace */
export const coveredPods = (budget: DisruptionBudget, pods: readonly Pod[]): readonly Pod[] =>
  pods.filter((pod) => !hasEnded(pod) && selects(budget.spec?.selector, pod.metadata.labels));

/**
 * Expected are the pods that are there: no workload here has a scale of its own but the DaemonSet, which has none either.
 * @param pods those that it covers
 */
export function budgetStatus(budget: DisruptionBudget, pods: readonly Pod[], now: Date): BudgetStatus {
  const disruptedPods: Record<string, string> = {};
  for (const [name, time] of Object.entries(budget.status?.disruptedPods ?? {})) {
    const pod = pods.find(({ metadata }) => metadata.name === name);
    const isPending = pod !== undefined && pod.metadata.deletionTimestamp === undefined;
    if (isPending && Date.parse(time) + DELETION_TIMEOUT_MS > now.getTime()) disruptedPods[name] = time;
  }
  const expectedPods = pods.length;
  const { minAvailable, maxUnavailable } = budget.spec ?? {};
  const desiredHealthy =
    maxUnavailable !== undefined
      ? Math.max(0, expectedPods - share(maxUnavailable, expectedPods))
      : share(minAvailable ?? 1, expectedPods);
  const currentHealthy = pods.filter(
    (pod) =>
      isPodReady(pod) && pod.metadata.deletionTimestamp === undefined && disruptedPods[pod.metadata.name] === undefined,
  ).length;
  return {
    observedGeneration: budget.metadata.generation ?? 0,
    ...(Object.keys(disruptedPods).length === 0 ? {} : { disruptedPods }),
    disruptionsAllowed: expectedPods === 0 ? 0 : Math.max(0, currentHealthy - desiredHealthy),
    currentHealthy,
    desiredHealthy,
    expectedPods,
  };
}

export type EvictionVerdict =
  /** @property budget with the status that counts this eviction, to be written before the pod is deleted */
  | { readonly kind: "allowed"; readonly budget: DisruptionBudget | undefined }
  /** 429 Too Many Requests. @property detail the cause of the Status, of the type DisruptionBudget */
  | { readonly kind: "refused"; readonly message: string; readonly detail: string }
  /** 500: more than one budget covers the pod. */
  | { readonly kind: "ambiguous"; readonly message: string };

const REFUSED = "Cannot evict pod as it would violate the pod's disruption budget.";

/** @param budgets of the pod's namespace */
export function judgeEviction(pod: Pod, budgets: readonly DisruptionBudget[], now: Date): EvictionVerdict {
  const isIdle = hasEnded(pod) || pod.status?.phase === "Pending" || pod.metadata.deletionTimestamp !== undefined;
  if (isIdle) return { kind: "allowed", budget: undefined };
  const covering = budgets.filter((budget) => selects(budget.spec?.selector, pod.metadata.labels));
  if (covering.length > 1) {
    const message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    return { kind: "ambiguous", message };
  }
  const [budget] = covering;
  if (budget === undefined) return { kind: "allowed", budget: undefined };
  const { name, generation = 0 } = budget.metadata;
  const status = budget.status;
  if (!isPodReady(pod)) {
    const isMet = status !== undefined && status.currentHealthy >= status.desiredHealthy && status.desiredHealthy > 0;
    if (isMet || budget.spec?.unhealthyPodEvictionPolicy === "AlwaysAllow")
      return { kind: "allowed", budget: undefined };
  }
  if (status === undefined || (status.observedGeneration ?? 0) < generation) {
    const detail = `The disruption budget ${name} is still being processed by the server.`;
    return { kind: "refused", message: REFUSED, detail };
  }
  if (status.disruptionsAllowed <= 0) {
    const detail = `The disruption budget ${name} needs ${status.desiredHealthy} healthy pods and has ${status.currentHealthy} currently`;
    return { kind: "refused", message: REFUSED, detail };
  }
  const counted: BudgetStatus = {
    ...status,
    disruptionsAllowed: status.disruptionsAllowed - 1,
    disruptedPods: { ...status.disruptedPods, [pod.metadata.name]: now.toISOString().replace(/\.\d+Z$/, "Z") },
  };
  return { kind: "allowed", budget: { ...budget, status: counted } };
}
