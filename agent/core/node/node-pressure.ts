/** The node's pressure conditions. Eviction publishes them; the node's status and admission read them. */

/** One condition of the node beside Ready. All texts are the kubelet's where it has the condition. */
export interface PressureCondition {
  readonly type: "MemoryPressure" | "DiskPressure" | "PIDPressure" | "FlashWearPressure" | "SecretsUnreadable";
  readonly status: "True" | "False" | "Unknown";
  /** CamelCase: `KubeletHasSufficientMemory` … */
  readonly reason: string;
  readonly message: string;
}
