/** All that is known of one pod at one moment, and what a planner answers. */
import type { PodStatus } from "../../protocol/pod.ts";
import type { Millis, MonotonicMs, PodUid } from "../../protocol/ports.ts";
import type { DesiredPod, ObservedPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { ProbeResult } from "../core/probe-ports.ts";
import type { CrashBackoffLimits } from "./crash-backoff.ts";
import type { WorkerState } from "./worker-state.ts";

export interface PodView {
  readonly desired: DesiredPod;
  /** Whether a source wants it now. */
  readonly wanted: boolean;
  /** Another incarnation of the same name that has to be gone first. */
  readonly blockedBy: PodUid | undefined;
  readonly worker: WorkerState;
  /** `undefined`: the runtime could not be asked yet. */
  readonly observed: ObservedPod | undefined;
  /** Whether folders, volumes and cgroup have been made for this very `desired` by this agent. */
  readonly prepared: boolean;
  /** `containerHash` by container name. */
  readonly hashes: ReadonlyMap<string, string>;
  readonly failures: Failures;
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
  readonly backoff: CrashBackoffLimits;
  readonly monotonic: MonotonicMs;
  /** Milliseconds since the epoch, for showing. */
  readonly wallMs: number;
}

/** By `stepOf` an action. A step that succeeds takes its failure away. */
export type Failures = ReadonlyMap<string, Failure>;

export interface Failure {
  /** Kubernetes' reason, CamelCase. */
  readonly reason: string;
  readonly message: string;
  /** In a row. */
  readonly count: number;
  readonly retryAt: MonotonicMs;
}

/** One step for the worker. All are idempotent; the worker stops at the first that fails of those that `isBarrier`. */
export type PlanAction =
  /** Folders, volumes, cgroup. */
  | { readonly kind: "prepare" }
  | { readonly kind: "createSandbox"; readonly attempt: number }
  | {
      readonly kind: "startContainer";
      readonly name: string;
      readonly init: boolean;
      readonly attempt: number;
      readonly backoff: Millis;
    }
  /** Several in a row are carried out at once. */
  | {
      readonly kind: "stopContainer";
      readonly containerId: string;
      readonly name: string;
      readonly gracePeriod: Millis;
      /** The attempt that its successor replaces; `undefined`: it has none. */
      readonly replaces: number | undefined;
      /** Of the event `Killing`. */
      readonly message: string;
    }
  | { readonly kind: "removeContainer"; readonly containerId: string }
  | { readonly kind: "stopSandbox"; readonly sandboxId: string }
  | { readonly kind: "removeSandbox"; readonly sandboxId: string }
  /** Takes away what `prepare` made. */
  | { readonly kind: "cleanup" }
  /** Tells the store that nothing is left. */
  | { readonly kind: "forget" };

export interface Plan {
  readonly next: WorkerState;
  readonly actions: readonly PlanAction[];
  /** Keys of steps that are left out now because they failed. */
  readonly held: readonly string[];
  /** Containers that wait for their back-off to be over, each with the attempt that is due then. */
  readonly backingOff?: readonly { readonly name: string; readonly attempt: number }[];
  /** When to plan again if nothing happens before. */
  readonly wakeAt?: MonotonicMs;
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
    case "prepare":
    case "createSandbox":
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
    case "removeContainer":
      return false;
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
export interface PodStatusBook {
  /** As last written for this pod, also by an agent before this one. */
  previous(uid: PodUid): PodStatus | undefined;
  /** @param view with the worker's state as it is after planning. */
  publish(view: PodView): void;
  /** Nothing of the pod is left on this node. */
  finish(desired: DesiredPod): void;
}
