/** Who is more important than whom, by the kubelet's rules (pkg/kubelet/types). */
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Kubernetes' SystemCriticalPriority: where the classes system-cluster-critical and system-node-critical begin. */
export const SYSTEM_CRITICAL_PRIORITY = 2_000_000_000;

/** True for a pod that no API server schedules. */
export const isStatic = ({ source }: DesiredPod): boolean => source !== "api";

export const isCritical = (desired: DesiredPod): boolean =>
  isStatic(desired) || (desired.pod.spec.priority ?? 0) >= SYSTEM_CRITICAL_PRIORITY;

/** @returns whether `other` may be ended to make room for `preemptor` */
export function isPreemptable(preemptor: DesiredPod, other: DesiredPod): boolean {
  if (isCritical(preemptor) && !isCritical(other)) return true;
  const own = preemptor.pod.spec.priority;
  const others = other.pod.spec.priority;
  return own !== undefined && others !== undefined && own > others;
}
