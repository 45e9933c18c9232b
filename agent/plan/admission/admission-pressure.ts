/** Decides which pods a node under pressure takes (the kubelet's eviction manager as an admission handler). Pure. */
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PressureCondition } from "../../core/node/node-pressure.ts";
import type { Rejection } from "../../core/pods/pod-admission.ts";
import { toleratesTaint } from "./admission-node.ts";
import { isCritical } from "./critical-pods.ts";

export type Pressure = PressureCondition["type"];

/** Flash that wears out is nothing that a pod that is refused would mend: the kubelet knows these three. */
const REFUSING: readonly Pressure[] = ["MemoryPressure", "DiskPressure", "PIDPressure"];
const MEMORY_TAINT = { key: "node.kubernetes.io/memory-pressure", effect: "NoSchedule" };

/** The conditions that are in force, of those that keep pods away; in the kubelet's order. */
export function activePressures(conditions: readonly PressureCondition[]): readonly Pressure[] {
  return REFUSING.filter((type) => conditions.some((each) => each.type === type && each.status === "True"));
}

/** @param pressures those in force. Short of memory alone, the node takes what has asked for some of it. */
export function pressureRejection(desired: DesiredPod, pressures: readonly Pressure[]): Rejection | undefined {
  if (pressures.length === 0 || isCritical(desired)) return undefined;
  const { pod } = desired;
  const isMemoryAlone = pressures.length === 1 && pressures[0] === "MemoryPressure";
  if (isMemoryAlone && (qosClass(pod) !== "BestEffort" || toleratesTaint(pod, MEMORY_TAINT))) return undefined;
  return { reason: "Evicted", message: `The node had condition: [${pressures.join(" ")}]. ` };
}
