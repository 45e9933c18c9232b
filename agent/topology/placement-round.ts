import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Hint, ResourceHints } from "./numa-hints.ts";

/** What one pod is given by one manager: begun anew for each pod, and thrown away when it cannot be had. */
export interface PlacementRound {
  hints(container: Container): ResourceHints;
  podHints(): ResourceHints;
  /** @throws `AdmissionFailure` */
  allocate(container: Container, affinity: Hint): void;
}

export interface PlacementManager {
  begin(pod: DesiredPod): PlacementRound;
}

/** Why a pod cannot have what it asks for; its message is part of what the pod's status says. */
export class AdmissionFailure extends Error {
  override readonly name = "AdmissionFailure";
  /** The pod's `status.reason` where it is not UnexpectedAdmissionError. */
  readonly reason: string | undefined;

  constructor(message: string, reason?: string) {
    super(message);
    this.reason = reason;
  }
}
