/** The conditions that the eviction manager answers for, in the kubelet's words. Pure. */
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { PressureType } from "../plan/eviction/eviction-signals.ts";

type Wording = Readonly<Record<"True" | "False", readonly [reason: string, message: string]>>;

const WORDING: Readonly<Record<PressureType, Wording>> = {
  MemoryPressure: {
    True: ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
    False: ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
  },
  DiskPressure: {
    True: ["KubeletHasDiskPressure", "kubelet has disk pressure"],
    False: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
  },
  PIDPressure: {
    True: ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
    False: ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
  },
};

const TYPES = ["MemoryPressure", "DiskPressure", "PIDPressure"] as const;

/** In the kubelet's order. */
export function pressureConditions(active: ReadonlySet<PressureType>): readonly PressureCondition[] {
  return TYPES.map((type) => {
    const status = active.has(type) ? "True" : "False";
    const [reason, message] = WORDING[type][status];
    return { type, status, reason, message };
  });
}
