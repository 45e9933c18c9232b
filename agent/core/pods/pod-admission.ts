/** Whether the node takes a pod, and who may end one that it has taken. */
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Of a pod's status, which fails with it. */
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
   * Whether a pod that the node has taken gets other resources. Asked again whenever something has changed.
   * @param requested as it is wanted; `allocated` as it has been granted so far
   * @param others as for `admit`
   */
  resize(requested: DesiredPod, allocated: DesiredPod, others: readonly DesiredPod[]): ResizeVerdict;
}

export type ResizeVerdict =
  | { readonly kind: "granted" }
  /** Of the condition PodResizePending: what may fit later, and what never will. */
  | { readonly kind: "pending"; readonly reason: "Deferred" | "Infeasible"; readonly message: string };

/** How a pod is ended that its source still wants: eviction, a shutdown of the node. Its status stays. */
export interface PodEnd {
  /** `Evicted`, `Terminated`, `NodeShutdown`, `Preempting` … */
  readonly reason: string;
  readonly message: string;
  /** At most; the pod's own when it is shorter. 0 kills at once. `undefined`: the pod's own. */
  readonly gracePeriod?: Millis | undefined;
  /** For the condition DisruptionTarget: `TerminationByKubelet`; none when it is missing. */
  readonly disruption?: { readonly reason: string; readonly message: string } | undefined;
}

/** How a pod leaves a runtime, to go on in another one. */
export interface PodLeave {
  /** Of its containers, at most; the pod's own when it is shorter. `undefined`: the pod's own. */
  readonly gracePeriod?: Millis | undefined;
}

export interface PodMover {
  /**
   * Tells the pod, which the store says is to be run by another runtime now, how long it may take to leave the one that
   * has it. It goes on in the other one by itself, also when nobody tells it anything.
   * @returns when nothing of it runs in the runtime it leaves any more; at once for a pod that is unknown or over, or
   * does not leave. @throws `cancelled` alone
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
  /** Whether all that its components need is on this node, ready to be started. Cheap: asked in need. */
  canSwitch(uid: PodUid): boolean;
  /** Whether it is switched, and the runtime that it leaves has it still; nothing runs as components then. */
  isLeaving(uid: PodUid): boolean;
  /**
   * From now on it is run as components: on disk when it returns. @throws `resource_exhausted` when the disk is full
   */
  choose(uid: PodUid, message: string): void;
}
