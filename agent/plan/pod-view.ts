/** The planner's input and output for one pod. */
import type { PodStatus, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { ResourceStatus } from "@picolet/protocol/pod/pod-status.ts";
import type { Millis, MonotonicMs, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodLeave, Rejection } from "../core/pods/pod-admission.ts";
import type { ProbeResult } from "../core/pods/probe-ports.ts";
import type { CrashBackoffLimits } from "./crash-backoff.ts";
import type { Replacement } from "./run-memory.ts";
import type { Failures } from "./worker-memory.ts";
import type { PodResizeView, WorkerState } from "./worker-state.ts";

export interface PodView {
  readonly desired: DesiredPod;
  /** Another incarnation of the same name that has to be gone first. */
  readonly blockedBy: PodUid | undefined;
  /** Why the node rejects the new pod; `undefined`: it takes it, or the pod is not new. */
  readonly rejection: Rejection | undefined;
  /** True when a runtime must be chosen before anything of it starts. */
  readonly undecided?: boolean | undefined;
  /** Set when the pod continues in another runtime than the inspected one, which must release it. */
  readonly leaving?: PodLeave | undefined;
  readonly worker: WorkerState;
  /** `undefined`: the runtime could not be asked yet. */
  readonly observed: ObservedPod | undefined;
  /** True when this agent has made folders, volumes and cgroup for this version of `desired`. */
  readonly prepared: boolean;
  /** True when files of its volumes are refreshed while the pod runs: a new agent must prepare a running pod again. */
  readonly hasRefreshedVolumes: boolean;
  /** `containerHash` by container name. */
  readonly hashes: ReadonlyMap<string, string>;
  readonly failures: Failures;
  readonly resize: PodResizeView;
  /** The disk is full: nothing dead is kept for its log alone. */
  readonly reclaim?: boolean | undefined;
  /** Probe results of running containers, by container id. A missing container has no probes. */
  readonly probes: ReadonlyMap<string, ProbeResult>;
  /** Termination messages of ended containers, by container id, without empty ones. */
  readonly messages: ReadonlyMap<string, string>;
  /** As last written for this uid, also by an agent before this one. */
  readonly previous: PodStatus | undefined;
  /** `allocatedResourcesStatus` by container name. Missing: no container has devices. */
  readonly deviceHealth?: ReadonlyMap<string, readonly ResourceStatus[]> | undefined;
  /** True while drivers have resource claims prepared for the pod: it is not over before they are taken back. */
  readonly holdsClaims?: boolean | undefined;
  /** Before `://` in container ids. */
  readonly runtime: string;
  /** The node's own addresses; those of a pod on the host's network. */
  readonly hostIps: readonly string[];
  /** True when the pod's runtime supports recursive read-only mounts. */
  readonly recursiveReadOnly: boolean;
  readonly backoff: CrashBackoffLimits;
  readonly monotonic: MonotonicMs;
  /** Milliseconds since the epoch, for showing. */
  readonly wallMs: number;
}

/** One container that runs with other resources than it was granted. */
export interface ContainerResize {
  readonly containerId: string;
  readonly name: string;
  readonly attempt: number;
  readonly from: ResourceRequirements;
  readonly to: ResourceRequirements;
}

/** One step for the worker. All are idempotent; the worker stops at the first that fails of those that `isBarrier`. */
export type PlanAction =
  /** Chooses the runtime. All other steps wait for it. */
  | { readonly kind: "choose" }
  /** Folders, volumes, cgroup. */
  | { readonly kind: "prepare" }
  | { readonly kind: "createSandbox"; readonly attempt: number }
  /** Done when its postStart hook is. */
  | {
      readonly kind: "startContainer";
      readonly name: string;
      /** True when the rest of the plan waits for another round if it fails. */
      readonly init: boolean;
      readonly attempt: number;
      readonly backoff: Millis;
    }
  | StopContainer
  /** The pod's cgroup and these containers of it. */
  | { readonly kind: "resize"; readonly containers: readonly ContainerResize[] }
  | { readonly kind: "removeContainer"; readonly containerId: string }
  | { readonly kind: "stopSandbox"; readonly sandboxId: string }
  | { readonly kind: "removeSandbox"; readonly sandboxId: string }
  /** Has drivers take back the pod's resource claims, when nothing of it runs. */
  | { readonly kind: "unprepare" }
  /** Takes away what `prepare` made. */
  | { readonly kind: "cleanup" }
  /** Tells the store that nothing is left. */
  | { readonly kind: "forget" };

export type StopCause = "podEnds" | "changed" | "resized" | "unknownState" | "liveness" | "startup" | "hookFailed";

/** Several in a row are carried out at once. Its preStop hook comes first, and its time is part of the grace period. */
export interface StopContainer {
  readonly kind: "stopContainer";
  readonly containerId: string;
  readonly name: string;
  /** Counts from the begin of the stop in any round, or from when it was shortened. 0 kills at once. */
  readonly gracePeriod: Millis;
  /** True when the container runs, so that its preStop hook can run. */
  readonly running: boolean;
  /** Ids of containers that must end before it is stopped, within the grace period. */
  readonly after: readonly string[];
  /** The run that the successor replaces; `undefined`: no successor follows. */
  readonly replaces: { readonly attempt: number; readonly why: Replacement } | undefined;
  /** Message of the event `Killing`. */
  readonly message: string;
  /** Why it is stopped; "podEnds": the pod ends, or leaves its runtime, for which there is a reason of its own. */
  readonly cause: StopCause;
}

export interface Plan {
  readonly next: WorkerState;
  readonly actions: readonly PlanAction[];
  /** Keys of steps that are left out now because they failed. */
  readonly held: readonly string[];
  /** Containers that wait for their back-off to be over, each with the attempt that is due then. */
  readonly backingOff?: readonly { readonly name: string; readonly attempt: number }[];
  /** When to plan again if nothing happens before. */
  readonly wakeAt?: MonotonicMs;
  /** When the pod's `activeDeadlineSeconds` are over: then nothing of this plan is worth waiting for. */
  readonly deadlineAt?: MonotonicMs;
}

export type PlanPod = (view: PodView) => Plan;

/** The key of a step's failures. */
export function stepOf(action: PlanAction): string {
  switch (action.kind) {
    case "startContainer":
      return `start ${action.name}`;
    case "stopContainer":
    case "removeContainer":
      return `${action.kind} ${action.containerId}`;
    case "stopSandbox":
    case "removeSandbox":
      return `${action.kind} ${action.sandboxId}`;
    case "choose":
    case "prepare":
    case "createSandbox":
    case "resize":
    case "unprepare":
    case "cleanup":
    case "forget":
      return action.kind;
  }
}

/** @returns whether later actions of a plan need this one to succeed */
export function isBarrier(action: PlanAction): boolean {
  switch (action.kind) {
    case "startContainer":
      return action.init;
    case "stopContainer":
    case "resize":
    case "removeContainer":
      return false;
    case "choose":
    case "prepare":
    case "createSandbox":
    case "stopSandbox":
    case "removeSandbox":
    case "unprepare":
    case "cleanup":
    case "forget":
      return true;
  }
}

/** Receives the workers' views; `agent/status` implements it. */
export interface PodStatusRecorder {
  /** @returns the last status of this pod, also of an earlier agent */
  previous(uid: PodUid): PodStatus | undefined;
  /** @param view with the worker's state after planning */
  publish(view: PodView): void;
  /** Writes published statuses to the disk, so that the next agent knows them. */
  flush(): void;
  /** Nothing of the pod is left on this node. */
  finish(desired: DesiredPod): void;
}
