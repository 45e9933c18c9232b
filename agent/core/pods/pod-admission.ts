/** The node's admission of pods, and the ports that end or move admitted pods. */

import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Reason and message in the status of a pod that fails with it. */
export interface Rejection {
  /** The kubelet's: OutOfcpu, OutOfmemory, OutOfpods, NodeAffinity, UnexpectedAdmissionError, SysctlForbidden … */
  readonly reason: string;
  readonly message: string;
}

export interface PodAdmission {
  /**
   * Asked once for each pod, before anything of it starts; not for one of which a runtime has something, or that has a
   * status from before: what ran goes on after a restart.
   * @param others all pods that this node runs or is about to run and that have not ended, this one not among them.
   * @returns `undefined` for one that is taken; pods that it displaces may still be ending then.
   */
  admit(pod: DesiredPod, others: readonly DesiredPod[]): Rejection | undefined;
  /**
   * Decides whether an admitted pod gets other resources. Called again after each change.
   * @param requested the pod as its source wants it; `allocated` with the resources granted so far
   * @param others as for `admit`
   */
  resize(requested: DesiredPod, allocated: DesiredPod, others: readonly DesiredPod[]): ResizeVerdict;
}

export type ResizeVerdict =
  | { readonly kind: "granted" }
  /** For the condition PodResizePending: Deferred may fit later, Infeasible never fits. */
  | { readonly kind: "pending"; readonly reason: "Deferred" | "Infeasible"; readonly message: string };

/** Describes the end of a pod that its source still wants: eviction, shutdown of the node. Its status stays. */
export interface PodEnd {
  /** `Evicted`, `Terminated`, `NodeShutdown`, `Preempting` … */
  readonly reason: string;
  readonly message: string;
  /** Upper limit; 0 kills at once. `undefined`: the pod's own grace period. */
  readonly gracePeriod?: Millis | undefined;
  /** For the condition DisruptionTarget: `TerminationByKubelet`; none when it is missing. */
  readonly disruption?: { readonly reason: string; readonly message: string } | undefined;
  /** With the figures that led to it. Recorded when the end takes effect; missing: reason and message are. */
  readonly decision?: Decision | undefined;
}

/** How a pod leaves a runtime, to go on in another one, or in the same one. */
export interface PodLeave {
  /** Upper limit for its containers; `undefined`: the pod's own grace period. */
  readonly gracePeriod?: Millis | undefined;
  /** All of it begins again in the runtime that it leaves: a new sandbox, init containers, no back-off. */
  readonly comesBack?: boolean | undefined;
  /** The user who asks for it, where the board knows one. */
  readonly user?: string | undefined;
}

export interface PodMover {
  /**
   * Bounds the time in which a pod leaves its runtime, after the store has assigned it to another one. The pod moves
   * without this call too.
   * @returns when nothing of it runs in the old runtime any more; at once for a pod that is unknown or over, or does
   * not leave. @throws `cancelled` alone
   */
  leave(uid: PodUid, how: PodLeave, signal: AbortSignal): Promise<void>;
}

export interface PodEnder {
  /**
   * The pod becomes Failed with that reason; nothing of it starts again. Kept across restarts of the agent through its
   * status.
   * @returns when nothing of it runs any more; at once for a pod that is unknown or over. @throws `cancelled` alone
   */
  end(uid: PodUid, how: PodEnd, signal: AbortSignal): Promise<void>;
}

/** For pods that go on as components where they would have to go for memory. */
export interface PodSwitch extends PodMover {
  /** @returns whether all its components are on this node, ready to start. Cheap: called under memory pressure. */
  canSwitch(uid: PodUid): boolean;
  /** @returns whether it is switched and its old runtime still has it; its components do not run yet */
  isLeaving(uid: PodUid): boolean;
  /**
   * From now on it is run as components: on disk when it returns. @throws `resource_exhausted` when the disk is full
   */
  choose(uid: PodUid, message: string): void;
}
