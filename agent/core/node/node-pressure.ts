/**
 * What the node is short of. Whoever finds out tells it as a condition of the node; the node's status and admission
 * listen.
 */

/** One condition of the node beside Ready. All texts are the kubelet's where it has the condition. */
export interface PressureCondition {
  readonly type: "MemoryPressure" | "DiskPressure" | "PIDPressure" | "FlashWearPressure" | "SecretsUnreadable";
  readonly status: "True" | "False" | "Unknown";
  /** CamelCase: `KubeletHasSufficientMemory` … */
  readonly reason: string;
  readonly message: string;
}
