/** The node's pressure conditions. Eviction publishes them; the node's status and admission read them. */
import type { BoardConditionType } from "./board-health.ts";

export type NodePressure =
  | "MemoryPressure"
  | "DiskPressure"
  | "PIDPressure"
  | "FlashWearPressure"
  | "SecretsUnreadable";

/** One condition of the node beside Ready. All texts are the kubelet's where it has the condition. */
export interface PressureCondition {
  readonly type: NodePressure | BoardConditionType;
  readonly status: "True" | "False" | "Unknown";
  /** CamelCase: `KubeletHasSufficientMemory` … */
  readonly reason: string;
  readonly message: string;
}
