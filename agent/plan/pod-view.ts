/** All that is known of one pod at one moment, and what a planner answers. */
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { Millis, MonotonicMs, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodLeave, Rejection } from "../core/pods/pod-admission.ts";
import type { ProbeResult } from "../core/pods/probe-ports.ts";
import type { CrashBackoffLimits } from "./crash-backoff.ts";
import type { ContainerResize } from "./resize.ts";
import type { Replacement } from "./run-memory.ts";
import type { Failures } from "./worker-memory.ts";
import type { PodResizeView, WorkerState } from "./worker-state.ts";

export interface PodView {
  readonly desired: DesiredPod;
  /** Another incarnation of the same name that has to be gone first. */
  readonly blockedBy: PodUid | undefined;
  /** What the node says to a pod of which nothing has started yet; `undefined`: it takes it, or was not asked now. */
  readonly rejection: Rejection | undefined;
  /** What it is run as has to be chosen before anything of it starts. */
  readonly undecided?: boolean | undefined;
  /** It is to go on in another runtime than the one that was looked at: nothing of it is to be left in this one. */
  readonly leaving?: PodLeave | undefined;
  readonly worker: WorkerState;
  /** `undefined`: the runtime could not be asked yet. */
  readonly observed: ObservedPod | undefined;
  /** Whether folders, volumes and cgroup have been made for this very `desired` by this agent. */
  readonly prepared: boolean;
  /** `containerHash` by container name. */
  readonly hashes: ReadonlyMap<string, string>;
  readonly failures: Failures;
  readonly resize: PodResizeView;
  /** The disk is full: nothing dead is kept for its log alone. */
  readonly reclaim?: boolean | undefined;
  /** What a prober says of running containers, by container id. One that is missing has no probes. */
  readonly probes: ReadonlyMap<string, ProbeResult>;
  /** What ended containers left in their termination message file, by container id; "" is left out. */
  readonly messages: ReadonlyMap<string, string>;
  /** As last written for this uid, also by an agent before this one. */
  readonly previous: PodStatus | undefined;
  /** Before `://` in container ids. */
  readonly runtime: string;
  /** The node's own addresses; those of a pod on the host's network. */
  readonly hostIps: readonly string[];
  /** Whether the pod's runtime can make a mount read-only with all that is mounted below it. */
  readonly recursiveReadOnly: boolean;
  readonly backoff: CrashBackoffLimits;
  readonly monotonic: MonotonicMs;
  /** Milliseconds since the epoch, for showing. */
  readonly wallMs: number;
}

/** One step for the worker. All are idempotent; the worker stops at the first that fails of those that `isBarrier`. */
export type PlanAction =
  /** Which runtime is to run it. All else waits for that. */
  | { readonly kind: "choose" }
  /** Folders, volumes, cgroup. */
  | { readonly kind: "prepare" }
  | { readonly kind: "createSandbox"; readonly attempt: number }
  /** Done when its postStart hook is. */
  | {
      readonly kind: "startContainer";
      readonly name: string;
      /** Whether what comes after it in the plan has to wait for another round when it fails. */
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
  /** Takes away what `prepare` made. */
  | { readonly kind: "cleanup" }
  /** Tells the store that nothing is left. */
  | { readonly kind: "forget" };

/** Several in a row are carried out at once. Its preStop hook comes first, and its time is part of the grace period. */
export interface StopContainer {
  readonly kind: "stopContainer";
  readonly containerId: string;
  readonly name: string;
  /** From when the stop of this container began, or from when it was given less, in whatever round. 0 kills at once. */
  readonly gracePeriod: Millis;
  /** Whether it runs, so that a preStop hook of it can. */
  readonly running: boolean;
  /** Ids of containers that are to end before it is told to, as long as the grace period lasts. */
  readonly after: readonly string[];
  /** What its successor replaces; `undefined`: it has none. */
  readonly replaces: { readonly attempt: number; readonly why: Replacement } | undefined;
  /** Of the event `Killing`. */
  readonly message: string;
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
    case "cleanup":
    case "forget":
      return action.kind;
  }
}

/** Whether what comes after it in a plan makes no sense without it. */
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
    case "cleanup":
    case "forget":
      return true;
  }
}

/** Where workers write down what they see; `agent/status` implements it. */
export interface PodStatusRecorder {
  /** As last written for this pod, also by an agent before this one. */
  previous(uid: PodUid): PodStatus | undefined;
  /** @param view with the worker's state as it is after planning. */
  publish(view: PodView): void;
  /** What was published is known to an agent that takes over from now on, as far as the disk takes it. */
  flush(): void;
  /** Nothing of the pod is left on this node. */
  finish(desired: DesiredPod): void;
}
