/**
 * The state of one pod's worker: one value, changed by `transition` (worker-transition.ts) alone. Calls, timers and
 * promises are beside it, in `agent/workers`.
 *
 * ```
 * waiting -> active -> finished -> terminating -> gone
 *    ^  \______|__________^  |          ^
 *    |  \______|_____________|__________/
 *    '-----------------------'  (revived)
 * ```
 */
import type { ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { Millis, MonotonicMs, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Observation, Replacement, RunMemories, SandboxMemory } from "./run-memory.ts";
import { EMPTY_MEMORY, type MemoryEvent, type WorkerMemory } from "./worker-memory.ts";

export type WorkerState = LivingState | GoneState;
export type LivingState = WaitingState | ActiveState | FinishedState | TerminatingState;

/** Another incarnation of the same namespace and name still has traces on the node; nothing of this one may start. */
export interface WaitingState extends WorkerMemory, BeforeEnd {
  readonly kind: "waiting";
  readonly for: PodUid | undefined;
}

export interface ActiveState extends WorkerMemory, BeforeEnd, StepMemory {
  readonly kind: "active";
  /** When the node took the pod up, by this agent's clock; below 0 when that was long before this agent. */
  readonly since: MonotonicMs;
  readonly runs: RunMemories;
  readonly sandbox: SandboxMemory | undefined;
  /** The version of the pod for which folders, volumes and cgroup were made. */
  readonly preparedFor: DesiredPod | undefined;
  /** By container name, the attempt whose back-off was reported. */
  readonly backOffs: ReadonlyMap<string, number>;
  /** The last inspection of which a status was published. */
  readonly observed: ObservedPod | undefined;
}

/** The pod is over or is being ended: what still runs is stopped, nothing starts, containers are kept. */
export interface FinishedState extends WorkerMemory, StepMemory, Ending {
  readonly kind: "finished";
  readonly outcome: Outcome;
}

/** The pod is no longer wanted: all of it is removed. A pod that is wanted again gets a new worker after `gone`. */
export interface TerminatingState extends WorkerMemory, StepMemory, Ending {
  readonly kind: "terminating";
  readonly since: MonotonicMs;
  readonly sinceMs: number;
  /** How the pod was over before its removal. */
  readonly outcome?: Outcome | undefined;
}

/** Nothing of the pod is left. */
export interface GoneState {
  readonly kind: "gone";
}

export interface BeforeEnd {
  readonly resize: ResizeMemory;
  /** The pod is leaving its runtime, to continue in another one, or in a new sandbox of the same one (`comesBack`). */
  readonly leave:
    | { readonly gracePeriod: Millis | undefined; readonly hasLeft: boolean; readonly comesBack: boolean }
    | undefined;
}

export interface StepMemory {
  /** Actions carried out in the previous round, by `identityOf`. One that is planned again had no effect. */
  readonly done: ReadonlySet<string>;
}

export interface Ending {
  /** Upper limit for the containers; `undefined`: the pod's own grace period. */
  readonly gracePeriod: Millis | undefined;
  /** True when nothing of the pod ran in the last inspection. */
  readonly isOver: boolean;
}

export interface Outcome {
  readonly phase: "Succeeded" | "Failed";
  /** Reason in the pod's status; "" when the containers' statuses are sufficient. */
  readonly reason: string;
  readonly message: string;
  /** For the condition DisruptionTarget. */
  readonly disruption?: { readonly reason: string; readonly message: string } | undefined;
  /** True when the node rejected the pod: nothing of it existed, and its containers have no status. */
  readonly rejected?: boolean | undefined;
}

/** Changes of a pod's resources, besides what its containers show. */
export interface PodResizeView {
  /** Why the pod does not have the requested resources. */
  readonly pending: PendingResize | undefined;
  /** False while the pod's cgroup may not have the granted resources. */
  readonly sized: boolean;
  /** `metadata.generation` of the latest grant of this agent. */
  readonly generation: number | undefined;
}

export interface PendingResize {
  readonly reason: "Deferred" | "Infeasible";
  readonly message: string;
  /** The `metadata.generation` of the request. */
  readonly generation: number | undefined;
}

export interface ResizeMemory extends PodResizeView {
  /** "underWay": the end of a granted change was not reported yet. "unknown": only the previous status shows it. */
  readonly progress: "unknown" | "idle" | "underWay";
}

export type PhaseEvent =
  | { readonly kind: "blocked"; readonly by: PodUid }
  /** @see ActiveState for `since`. */
  | { readonly kind: "unblocked"; readonly since: MonotonicMs }
  | ({ readonly kind: "observed" } & Observation)
  | { readonly kind: "sandboxCreated"; readonly attempt: number; readonly monotonic: MonotonicMs }
  | { readonly kind: "started"; readonly name: string; readonly attempt: number; readonly monotonic: MonotonicMs }
  | {
      readonly kind: "replacing";
      readonly name: string;
      readonly attempt: number;
      readonly why: Replacement;
      readonly monotonic: MonotonicMs;
    }
  | {
      readonly kind: "resized";
      readonly name: string;
      readonly attempt: number;
      readonly resources: ResourceRequirements;
      readonly monotonic: MonotonicMs;
    }
  | { readonly kind: "prepared"; readonly pod: DesiredPod }
  | { readonly kind: "backOffReported"; readonly name: string; readonly attempt: number }
  /** All containers are done for good, or the pod's deadline, the node's admission or an earlier agent ends it. */
  | { readonly kind: "finished"; readonly outcome: Outcome }
  /** The node ends the pod, although its source wants it. A second such event can only shorten the grace period. */
  | { readonly kind: "ended"; readonly outcome: Outcome; readonly gracePeriod: Millis | undefined }
  /** A pod that the node has ended for its own sake, or rejected, may run again. */
  | { readonly kind: "revived" }
  | { readonly kind: "removed"; readonly monotonic: MonotonicMs; readonly wallMs: number }
  | { readonly kind: "forgotten" };

export type ProgressEvent =
  /** The pod's source changed it. `isPreparationKept`: what was made for `from` is right for `to`. */
  | {
      readonly kind: "respecified";
      readonly from: DesiredPod;
      readonly to: DesiredPod;
      readonly isPreparationKept: boolean;
    }
  | { readonly kind: "granted"; readonly generation: number | undefined }
  | { readonly kind: "judged"; readonly pending: PendingResize | undefined }
  | { readonly kind: "cgroupSized" }
  /** `wasReported`: the status before showed a change under way. */
  | { readonly kind: "resizeObserved"; readonly isResizing: boolean; readonly wasReported: boolean }
  /** `comesBack`: it is not another runtime that must run the pod, but this one, in a new sandbox. */
  | { readonly kind: "leaveRequested"; readonly gracePeriod: Millis | undefined; readonly comesBack: boolean }
  /** A status of this inspection was published. `isLeaving`: another runtime must run the pod. */
  | { readonly kind: "published"; readonly observed: ObservedPod; readonly isLeaving: boolean }
  | { readonly kind: "stepsTaken"; readonly done: ReadonlySet<string> };

export type WorkerEvent = PhaseEvent | ProgressEvent | MemoryEvent;

const SIZED: ResizeMemory = { pending: undefined, sized: true, generation: undefined, progress: "unknown" };

export const NO_RESIZE: PodResizeView = SIZED;
export const INITIAL_STATE: WaitingState = {
  ...EMPTY_MEMORY,
  kind: "waiting",
  for: undefined,
  resize: SIZED,
  leave: undefined,
};

/** The generation of an object that was never changed: its cgroup was made with the right resources. */
const FIRST_GENERATION = 1;

export function initialState({ pod, source }: DesiredPod): WaitingState {
  const { generation = FIRST_GENERATION } = pod.metadata;
  if (source !== "api" || generation <= FIRST_GENERATION) return INITIAL_STATE;
  // The previous agent may have died while it changed the cgroup.
  return { ...INITIAL_STATE, resize: { ...SIZED, sized: false } };
}
