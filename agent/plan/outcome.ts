/** How a pod is over, or is to be: found out from what was written of it, or from what ends it. */

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
 * What a status says of the pod's end. Before a stop begins its reason is written down while the phase, which may only
 * change when nothing runs any more, is still another one: so an agent that takes over in the middle goes on ending it.
 */
export function recordedOutcome(status: PodStatus | undefined): Outcome | undefined {
  if (status === undefined) return undefined;
  const { phase, reason = "", message = "", startTime, containerStatuses, conditions = [] } = status;
  const isOver = phase === "Succeeded" || phase === "Failed";
  // A pod that nobody could run (it was not valid) has a reason, and has never been taken up.
  if (!isOver && (reason === "" || startTime === undefined)) return undefined;
  const disruption = conditions.find((each) => each.type === DISRUPTION_TARGET && isNodeCondition(each));
  const told = disruption && { reason: disruption.reason ?? "", message: disruption.message ?? "" };
  return {
    phase: isOver ? phase : "Failed",
    reason,
    message,
    ...(told === undefined ? {} : { disruption: told }),
    ...(isOver && reason !== "" && containerStatuses === undefined ? { rejected: true } : {}),
  };
}

/**
 * Whether a pod that the agent has not looked at yet, with that status from before, counts for what else the node can
 * take. What the API server has over stays over; a pod of the node's own may run again.
 */
export function wasAdmitted({ source }: DesiredPod, status: PodStatus | undefined): boolean {
  if (status?.startTime === undefined || recordedOutcome(status)?.rejected === true) return false;
  return source !== "api" || (status.phase !== "Succeeded" && status.phase !== "Failed");
}

/** Whether the node has said no to a pod of its own before, which it is to say again: nobody else makes it anew. */
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
  // A clock that was set back tells nothing.
  return (monotonic - Math.max(0, wallMs - startedAtMs)) as MonotonicMs;
}
