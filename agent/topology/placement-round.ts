import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Rejection } from "../core/pods/pod-admission.ts";
import type { Hint, ResourceHints } from "./numa-hints.ts";

/** One manager's assignment for one pod: made for each pod, and dropped if the pod cannot have it. */
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

/** The rejection of the pod, in the kubelet's words. */
export function rejectionOf({ reason, message }: AdmissionFailure): Rejection {
  if (reason !== undefined) return { reason, message };
  return {
    reason: "UnexpectedAdmissionError",
    message: `Allocate failed due to ${message}, which is unexpected`,
  };
}
