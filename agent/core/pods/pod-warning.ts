import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { EventRecorder } from "../store/store-ports.ts";
import { apiUidOf } from "./pod-identity.ts";

/** A warning as an event of the pod as a whole. */
export function warnOfPod(events: EventRecorder, pod: DesiredPod, reason: string, message: string): void {
  const { namespace, name } = pod.pod.metadata;
  const regarding = { kind: "Pod", namespace, name, uid: apiUidOf(pod), fieldPath: "" } as const;
  events.record({ regarding, type: "Warning", reason, message });
}
