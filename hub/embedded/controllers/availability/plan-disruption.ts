/** Plans the status of PodDisruptionBudgets. Pure. Rules of Kubernetes 1.34. Evictions are the API server's. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { selects } from "../../api/label-selector.ts";
import { type Condition, hasEnded, isPodReady, type LabelSelector } from "../../api/typed-objects.ts";

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
 * Expected are the pods that are there: no workload here has a scale of its own but the DaemonSet, which has none
 * either.
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
