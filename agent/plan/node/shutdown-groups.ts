/** Groups pods by the time at which they end when the node shuts down (pkg/kubelet/nodeshutdown). Pure. */
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { SYSTEM_CRITICAL_PRIORITY } from "../admission/critical-pods.ts";

/** Bounds the end of the pods from this priority on, and the wait of the next group for them. */
export interface ShutdownPeriod {
  readonly priority: number;
  readonly period: Millis;
}

export interface ShutdownConfiguration {
  readonly shutdownGracePeriod: number;
  readonly shutdownGracePeriodCriticalPods: number;
  readonly shutdownGracePeriodByPodPriority: readonly {
    readonly priority: number;
    readonly shutdownGracePeriodSeconds: number;
  }[];
}

/** Lowest priority first, which goes first. Empty: pods are left to themselves when the node goes down. */
export function shutdownPeriods(configuration: ShutdownConfiguration): readonly ShutdownPeriod[] {
  const { shutdownGracePeriod: total, shutdownGracePeriodCriticalPods: critical } = configuration;
  const byPriority = configuration.shutdownGracePeriodByPodPriority;
  if (byPriority.length > 0) {
    return byPriority
      .map(({ priority, shutdownGracePeriodSeconds }) => ({ priority, period: seconds(shutdownGracePeriodSeconds) }))
      .toSorted((left, right) => left.priority - right.priority);
  }
  if (total <= 0 || critical > total) return [];
  return [
    { priority: 0, period: wholeSeconds(total - critical) },
    { priority: SYSTEM_CRITICAL_PRIORITY, period: wholeSeconds(critical) },
  ];
}

/** Critical pods end after the others, and have as long. */
export const samePeriod = (period: Millis): readonly ShutdownPeriod[] => [
  { priority: 0, period },
  { priority: SYSTEM_CRITICAL_PRIORITY, period },
];

const wholeSeconds = (duration: number): Millis => seconds(Math.floor(duration / 1000));

export const totalPeriod = (periods: readonly ShutdownPeriod[]): Millis =>
  millis(periods.reduce((sum, { period }) => sum + period, 0));

export interface ShutdownGroup extends ShutdownPeriod {
  readonly pods: readonly DesiredPod[];
}

/** Those that have pods, in the order of `periods`. A pod belongs to the highest that is not above its priority. */
export function shutdownGroups(
  periods: readonly ShutdownPeriod[],
  pods: readonly DesiredPod[],
): readonly ShutdownGroup[] {
  const indexOf = ({ pod }: DesiredPod): number =>
    Math.max(
      0,
      periods.findLastIndex(({ priority }) => priority <= (pod.spec.priority ?? 0)),
    );
  const byIndex = Map.groupBy(pods, indexOf);
  return periods.flatMap((period, index) => {
    const members = byIndex.get(index);
    return members === undefined ? [] : [{ ...period, pods: members }];
  });
}
