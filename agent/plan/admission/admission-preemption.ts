/**
 * Selects the pods to end so that a critical pod has room: as few as possible, the lowest quality of service first, of
 * equal ones those that request least (the kubelet's CriticalPodAdmissionHandler). Pure.
 */

import type { QosClass } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { requestOf } from "./admission-resources.ts";
import { isPreemptable } from "./critical-pods.ts";

export interface Requirement {
  readonly resource: string;
  readonly amount: bigint;
}

export type Victims =
  | { readonly ok: true; readonly pods: readonly DesiredPod[] }
  /** Not even all that may be ended would do. */
  | { readonly ok: false; readonly missing: readonly Requirement[] };

export function chooseVictims(
  preemptor: DesiredPod,
  others: readonly DesiredPod[],
  requirements: readonly Requirement[],
): Victims {
  const candidates = others.filter((other) => isPreemptable(preemptor, other));
  const missing = without(requirements, candidates);
  if (missing.length > 0) return { ok: false, missing };
  const of = (wanted: QosClass): readonly DesiredPod[] => candidates.filter(({ pod }) => qosClass(pod) === wanted);
  const bestEffort = of("BestEffort");
  const burstable = of("Burstable");
  const guaranteed = fewest(of("Guaranteed"), without(requirements, [...bestEffort, ...burstable]));
  const someBurstable = fewest(burstable, without(requirements, [...bestEffort, ...guaranteed]));
  const someBestEffort = fewest(bestEffort, without(requirements, [...someBurstable, ...guaranteed]));
  return { ok: true, pods: [...someBestEffort, ...someBurstable, ...guaranteed] };
}

/** As the kubelet writes them in its messages. */
export const describeRequirements = (requirements: readonly Requirement[]): string =>
  `[${requirements.map(({ resource, amount }) => `(res: ${resource}, q: ${amount}), `).join("")}]`;

/** What is still required when those pods are gone. */
function without(requirements: readonly Requirement[], pods: readonly DesiredPod[]): readonly Requirement[] {
  return requirements.flatMap(({ resource, amount }) => {
    const left = pods.reduce((rest, { pod }) => rest - requestOf(pod, resource), amount);
    return left > 0n ? [{ resource, amount: left }] : [];
  });
}

/** One after the other that brings nearest to what is required. There are enough. */
function fewest(pods: readonly DesiredPod[], requirements: readonly Requirement[]): readonly DesiredPod[] {
  const left = [...pods];
  const chosen: DesiredPod[] = [];
  for (let rest = requirements; rest.length > 0 && left.length > 0; ) {
    let best = 0;
    let bestDistance = Number.POSITIVE_INFINITY;
    for (const [index, candidate] of left.entries()) {
      const away = distance(rest, candidate);
      const current = left[best];
      const isSmaller = current !== undefined && away === bestDistance && requestsLess(candidate, current);
      if (away < bestDistance || isSmaller) {
        best = index;
        bestDistance = away;
      }
    }
    const victims = left.splice(best, 1);
    chosen.push(...victims);
    rest = without(rest, victims);
  }
  return chosen;
}

/** By what part of each requirement is left, so that all of them count alike. */
function distance(requirements: readonly Requirement[], { pod }: DesiredPod): number {
  return requirements.reduce((sum, { resource, amount }) => {
    const left = amount - requestOf(pod, resource);
    return left > 0n ? sum + (Number(left) / Number(amount)) ** 2 : sum;
  }, 0);
}

function requestsLess(left: DesiredPod, right: DesiredPod): boolean {
  for (const resource of ["memory", "cpu"]) {
    const [own, other] = [requestOf(left.pod, resource), requestOf(right.pod, resource)];
    if (own !== other) return own < other;
  }
  return true;
}
