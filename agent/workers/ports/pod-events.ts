/** A pod's events, with the kubelet's reasons and messages. */
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containerFieldPath } from "../../core/pods/container-field-path.ts";
import { apiUidOf } from "../../core/pods/pod-identity.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";

export class PodEvents {
  readonly #recorder: EventRecorder;

  constructor(recorder: EventRecorder) {
    this.#recorder = recorder;
  }

  /** @param container the container concerned, if it is one alone. */
  record(desired: DesiredPod, type: "Normal" | "Warning", reason: string, message: string, container?: string): void {
    const { namespace, name } = desired.pod.metadata;
    const fieldPath = container === undefined ? "" : containerFieldPath(desired.pod, container);
    this.#recorder.record({
      regarding: { kind: "Pod", namespace, name, uid: apiUidOf(desired), fieldPath },
      type,
      reason,
      message,
    });
  }
}
