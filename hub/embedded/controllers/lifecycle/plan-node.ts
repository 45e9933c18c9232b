/**
 * Plans conditions and taints from a node's heartbeats. Pure. Rules of pkg/controller/nodelifecycle (Kubernetes 1.34).
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Condition, conditionOf, type NodeObject, type Taint, tolerates } from "../../api/typed-objects.ts";

const NOT_READY = "node.kubernetes.io/not-ready";
const UNREACHABLE = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE = "node.kubernetes.io/unschedulable";
/** The conditions that keep new pods away, by the status that does. */
const PRESSURES: readonly (readonly [condition: string, taint: string])[] = [
  ["MemoryPressure", "node.kubernetes.io/memory-pressure"],
  ["DiskPressure", "node.kubernetes.io/disk-pressure"],
  ["PIDPressure", "node.kubernetes.io/pid-pressure"],
  ["NetworkUnavailable", "node.kubernetes.io/network-unavailable"],
];
/** Taints that the controllers set and remove; all others are the users'. */
const OURS: ReadonlySet<string> = new Set([
  NOT_READY,
  UNREACHABLE,
  UNSCHEDULABLE,
  ...PRESSURES.map(([, taint]) => taint),
]);
/** Conditions that are unknown once nothing is heard of the node. */
const HEARD = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/** "True", "False" or "Unknown"; a node that has not said anything is "False". */
export const readiness = (node: NodeObject): string => conditionOf(node.status?.conditions, "Ready")?.status ?? "False";

/** @returns the conditions of a node that was not heard of in time, undefined when they say so already */
export function silentConditions(node: NodeObject, now: string): readonly Condition[] | undefined {
  const before = node.status?.conditions ?? [];
  const after = [...before];
  for (const type of HEARD) {
    const existing = conditionOf(before, type);
    if (existing?.status === "Unknown") continue;
    const silent: Condition = {
      type,
      status: "Unknown",
      reason: existing === undefined ? "NodeStatusNeverUpdated" : "NodeStatusUnknown",
      message: existing === undefined ? "Kubelet never posted node status." : "Kubelet stopped posting node status.",
      lastHeartbeatTime: existing?.lastHeartbeatTime ?? node.metadata.creationTimestamp ?? now,
      lastTransitionTime: now,
    };
    const index = before.findIndex((each) => each.type === type);
    if (index < 0) after.push(silent);
    else after[index] = silent;
  }
  return after.some((each, index) => each !== before[index]) ? after : undefined;
}

/**
 * @param mayEvict whether NoExecute taints may be there: not while every node is away, for then it is we who are cut
 * off
 */
export function taintsFor(node: NodeObject, mayEvict: boolean, now: string): readonly Taint[] {
  const before = node.spec?.taints ?? [];
  const wanted: Taint[] = [];
  const ready = readiness(node);
  const condition = ready === "True" ? undefined : ready === "Unknown" ? UNREACHABLE : NOT_READY;
  if (condition !== undefined) wanted.push({ key: condition, effect: "NoSchedule" });
  for (const [type, key] of PRESSURES) {
    if (conditionOf(node.status?.conditions, type)?.status === "True") wanted.push({ key, effect: "NoSchedule" });
  }
  if (node.spec?.unschedulable === true) wanted.push({ key: UNSCHEDULABLE, effect: "NoSchedule" });
  if (condition !== undefined && mayEvict) wanted.push({ key: condition, effect: "NoExecute" });
  const same = (left: Taint, right: Taint): boolean => left.key === right.key && left.effect === right.effect;
  const kept = before.filter((taint) => !OURS.has(taint.key) || wanted.some((each) => same(each, taint)));
  const added = wanted.filter((each) => !kept.some((taint) => same(each, taint)));
  return [...kept, ...added.map((taint) => ({ ...taint, timeAdded: now }))];
}

export const isSameTaints = (left: readonly Taint[], right: readonly Taint[]): boolean =>
  left.length === right.length &&
  left.every(({ key, effect, value }, index) => {
    const other = right[index];
    return other?.key === key && other.effect === effect && (other.value ?? "") === (value ?? "");
  });

/**
 * When a pod has to leave a node for its NoExecute taints.
 * @param sinceMs when a taint was first seen, for one that does not say when it was added
 * @returns milliseconds of the wall clock; undefined: it may stay
 */
export function evictionTime(
  pod: Pod,
  taints: readonly Taint[],
  sinceMs: (taint: Taint) => number,
): number | undefined {
  let earliest: number | undefined;
  for (const taint of taints) {
    if (taint.effect !== "NoExecute") continue;
    const tolerations = (pod.spec.tolerations ?? []).filter((each) => tolerates(each, taint));
    const addedAt = Date.parse(taint.timeAdded ?? "");
    const since = Number.isNaN(addedAt) ? sinceMs(taint) : addedAt;
    const limits = tolerations.flatMap(({ tolerationSeconds }) => tolerationSeconds ?? []);
    if (tolerations.length > 0 && limits.length === 0) continue;
    const seconds = tolerations.length === 0 ? 0 : Math.max(0, Math.min(...limits));
    const time = since + seconds * 1000;
    earliest = Math.min(time, earliest ?? time);
  }
  return earliest;
}
