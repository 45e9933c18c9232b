/** A pod's events, with the kubelet's reasons and messages. */
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pod-identity.ts";
import type { EventRecorder } from "../core/store.ts";

export class PodEvents {
  readonly #recorder: EventRecorder;

  constructor(recorder: EventRecorder) {
    this.#recorder = recorder;
  }

  /** @param container the container concerned, if it is one alone. */
  record(desired: DesiredPod, type: "Normal" | "Warning", reason: string, message: string, container?: string): void {
    const { metadata, spec } = desired.pod;
    const { namespace, name } = metadata;
    const list = spec.initContainers?.some((each) => each.name === container) ? "initContainers" : "containers";
    const fieldPath = container === undefined ? "" : `spec.${list}{${container}}`;
    this.#recorder.record({
      regarding: { kind: "Pod", namespace, name, uid: apiUidOf(desired), fieldPath },
      type,
      reason,
      message,
    });
  }
}
