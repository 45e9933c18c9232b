import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { Plan } from "../plan/pod-view.ts";
import type { PodEvents } from "./ports/pod-events.ts";

/** The kubelet's events of containers that wait before they start again, once for each wait. */
export class BackOffEvents {
  readonly #events: PodEvents;
  /** Of each container the attempt whose wait has been told of. */
  readonly #told = new Map<string, number>();

  constructor(events: PodEvents) {
    this.#events = events;
  }

  tell(desired: DesiredPod, { backingOff = [] }: Plan): void {
    for (const { name, attempt } of backingOff) {
      if (this.#told.get(name) === attempt) continue;
      this.#told.set(name, attempt);
      const { namespace, name: pod } = desired.pod.metadata;
      const message = `Back-off restarting failed container ${name} in pod ${pod}_${namespace}(${apiUidOf(desired)})`;
      this.#events.record(desired, "Warning", "BackOff", message, name);
    }
  }
}
