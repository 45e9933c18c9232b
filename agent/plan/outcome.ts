/** Derives the outcome of a pod from its recorded status, or from what ends it. */

import { DISRUPTION_TARGET, isNodeCondition } from "@picolet/protocol/pod/condition-owners.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodEnd, Rejection } from "../core/pods/pod-admission.ts";
import type { PodView } from "./pod-view.ts";
import type { Outcome, WorkerState } from "./worker-state.ts";

export const DEADLINE_EXCEEDED: Outcome = {
  phase: "Failed",
  reason: "DeadlineExceeded",
  message: "Pod was active on the node longer than the specified deadline",
};

export const rejectionOutcome = ({ reason, message }: Rejection): Outcome => ({
  phase: "Failed",
  reason,
  message: `Pod was rejected: ${message}`,
  rejected: true,
});

export const podEndOutcome = ({ reason, message, disruption }: PodEnd): Outcome => ({
  phase: "Failed",
  reason,
  message,
  ...(disruption === undefined ? {} : { disruption }),
});

/**
 * Reads a pod's outcome from its status. The reason is written before a stop begins, and the phase changes only when
 * nothing runs any more, so that an agent that takes over in the middle continues the end.
 */
export function recordedOutcome(status: PodStatus | undefined): Outcome | undefined {
  if (status === undefined) return undefined;
  const { phase, reason = "", message = "", startTime, containerStatuses, conditions = [] } = status;
  const isOver = phase === "Succeeded" || phase === "Failed";
  // An invalid pod has a reason, and was never started.
  if (!isOver && (reason === "" || startTime === undefined)) return undefined;
  const disruption = conditions.find((each) => each.type === DISRUPTION_TARGET && isNodeCondition(each));
  const reported = disruption && { reason: disruption.reason ?? "", message: disruption.message ?? "" };
  return {
    phase: isOver ? phase : "Failed",
    reason,
    message,
    ...(reported === undefined ? {} : { disruption: reported }),
    ...(isOver && reason !== "" && containerStatuses === undefined ? { rejected: true } : {}),
  };
}

/**
 * True when a pod that this agent has not inspected yet counts against the node's room, judged by its previous status.
 * An ended pod of the API server stays ended; a pod of the node's own sources may run again.
 */
export function wasAdmitted({ source }: DesiredPod, status: PodStatus | undefined): boolean {
  if (status?.startTime === undefined || recordedOutcome(status)?.rejected === true) return false;
  return source !== "api" || (status.phase !== "Succeeded" && status.phase !== "Failed");
}

/** True for a rejected pod of the node's own sources: it is judged again, because no controller replaces it. */
export const needsReadmission = ({ source }: DesiredPod, status: PodStatus | undefined): boolean =>
  source !== "api" && recordedOutcome(status)?.rejected === true;

/** When the pod will have been active for as long as it may; `undefined`: there is no such time. */
export function deadlineOf({ desired }: PodView, state: WorkerState): MonotonicMs | undefined {
  const { activeDeadlineSeconds } = desired.pod.spec;
  if (activeDeadlineSeconds === undefined || state.kind !== "active") return undefined;
  return (state.since + activeDeadlineSeconds * 1000) as MonotonicMs;
}

/**
 * When the node took the pod up, by this agent's clock; another agent did it at the wall clock's time in its status.
 */
export function activeSince({ previous, monotonic, wallMs }: PodView): MonotonicMs {
  const startedAtMs = previous?.startTime === undefined ? wallMs : Date.parse(previous.startTime);
  // A clock that was set back gives no duration.
  return (monotonic - Math.max(0, wallMs - startedAtMs)) as MonotonicMs;
}
