/** The state of one pod's worker: what it has committed itself to, and what it remembers that no runtime tells. */
import type { ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { type Millis, type MonotonicMs, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { backoffOfNextRun, type CrashBackoffLimits, SANDBOX_BACKOFF } from "./crash-backoff.ts";

export type WorkerState =
  /** Another incarnation of the same namespace and name still has traces on the node; nothing of this one may start. */
  | { readonly kind: "waiting"; readonly for: PodUid | undefined }
  | {
      readonly kind: "active";
      /** When the node took the pod up, by this agent's clock; before 0 when that was long before this agent. */
      readonly since: MonotonicMs;
      readonly runs: RunMemories;
      readonly sandbox: SandboxMemory | undefined;
    }
  /** It is over, or is to be: what still runs of it is stopped, nothing starts; containers are kept. */
  | { readonly kind: "finished"; readonly outcome: Outcome }
  /** No longer wanted: nothing starts any more, all of it is taken away. There is no way back but through `gone`. */
  | {
      readonly kind: "terminating";
      readonly since: MonotonicMs;
      readonly sinceMs: number;
      /** How it was over, or was to be, before its removal. */
      readonly outcome?: Outcome | undefined;
    }
  /** Nothing of it is left. A pod that is wanted again gets a new worker. */
  | { readonly kind: "gone" };

export interface Outcome {
  readonly phase: "Succeeded" | "Failed";
  /** Of the pod's status; "" when its containers say it all. */
  readonly reason: string;
  readonly message: string;
  /** For the condition DisruptionTarget. */
  readonly disruption?: { readonly reason: string; readonly message: string } | undefined;
  /** The node did not take it: nothing of it was ever there, its containers have no status. */
  readonly rejected?: boolean | undefined;
}

/** By container name, of its newest run. */
export type RunMemories = ReadonlyMap<string, RunMemory>;

/**
 * Durations of a run by the monotonic clock, so that a jump of the wall clock neither stretches a wait nor takes it
 * away. What ended before this agent looked has the runtime's times alone.
 */
export interface RunMemory {
  readonly attempt: number;
  /** When this agent started it, or first saw it. */
  readonly since: MonotonicMs;
  readonly startedHere: boolean;
  /** Why this agent stops it to start its successor, whatever the restart policy says; "no": it does not. */
  readonly replaced: Replacement | "no";
  /** What this agent has updated it to while it runs. */
  readonly resources?: ResourceRequirements | undefined;
  /** Set when the run is seen to have ended. */
  readonly ended: { readonly restartAt: MonotonicMs; readonly lasted: Millis } | undefined;
}

/** Its definition is another one now, a probe of it has failed, or it is to have other resources. */
export type Replacement = "changed" | "unhealthy" | "resized";

/**
 * Of the newest sandbox that this agent made; a runtime whose sandboxes die at once is not asked for one after the
 * other.
 */
export interface SandboxMemory {
  readonly attempt: number;
  readonly since: MonotonicMs;
  /** How long to wait after `since` before the next, if this one dies. */
  readonly backoff: Millis;
}

export type WorkerEvent =
  | { readonly kind: "blocked"; readonly by: PodUid }
  /** @see WorkerState for `since`. */
  | { readonly kind: "unblocked"; readonly since: MonotonicMs }
  | {
      readonly kind: "observed";
      readonly observed: ObservedPod;
      readonly monotonic: MonotonicMs;
      readonly wallMs: number;
      readonly limits: CrashBackoffLimits;
    }
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
  /** All of its containers are done for good, or somebody or something ends the pod. */
  | { readonly kind: "finished"; readonly outcome: Outcome }
  /** What the node has ended for its own sake, or has not taken, may run again. */
  | { readonly kind: "revived" }
  | { readonly kind: "removed"; readonly monotonic: MonotonicMs; readonly wallMs: number }
  | { readonly kind: "forgotten" };

export const INITIAL_STATE: WorkerState = { kind: "waiting", for: undefined };
const NO_RUNS: RunMemories = new Map();

/** The one place where a worker's state changes. An event that means nothing in a state leaves it as it is. */
export function transition(state: WorkerState, event: WorkerEvent): WorkerState {
  switch (event.kind) {
    case "blocked":
      return state.kind === "waiting" ? { kind: "waiting", for: event.by } : state;
    case "unblocked":
      if (state.kind !== "waiting") return state;
      return { kind: "active", since: event.since, runs: NO_RUNS, sandbox: undefined };
    case "observed":
      return state.kind === "active" ? remember(state, event) : state;
    case "sandboxCreated": {
      if (state.kind !== "active") return state;
      const { attempt, monotonic: since } = event;
      const before = state.sandbox && { backoff: state.sandbox.backoff, lasted: millis(since - state.sandbox.since) };
      return { ...state, sandbox: { attempt, since, backoff: backoffOfNextRun(before, SANDBOX_BACKOFF) } };
    }
    case "started": {
      if (state.kind !== "active") return state;
      const { attempt, monotonic: since } = event;
      const memory: RunMemory = { attempt, since, startedHere: true, replaced: "no", ended: undefined };
      return { ...state, runs: new Map(state.runs).set(event.name, memory) };
    }
    case "replacing": {
      if (state.kind !== "active") return state;
      const { name, attempt, why, monotonic: since } = event;
      const known = state.runs.get(name)?.attempt === attempt ? state.runs.get(name) : undefined;
      const memory = known ?? { attempt, since, startedHere: false, ended: undefined };
      return { ...state, runs: new Map(state.runs).set(name, { ...memory, replaced: why }) };
    }
    case "resized": {
      if (state.kind !== "active") return state;
      const { name, attempt, resources, monotonic: since } = event;
      const known = state.runs.get(name)?.attempt === attempt ? state.runs.get(name) : undefined;
      const memory = known ?? { attempt, since, startedHere: false, replaced: "no", ended: undefined };
      return { ...state, runs: new Map(state.runs).set(name, { ...memory, resources }) };
    }
    case "finished":
      if (state.kind !== "waiting" && state.kind !== "active") return state;
      return { kind: "finished", outcome: event.outcome };
    case "revived":
      if (state.kind !== "finished") return state;
      return state.outcome.disruption !== undefined || state.outcome.rejected === true ? INITIAL_STATE : state;
    case "removed": {
      if (state.kind === "terminating" || state.kind === "gone") return state;
      const outcome = state.kind === "finished" ? { outcome: state.outcome } : {};
      return { kind: "terminating", since: event.monotonic, sinceMs: event.wallMs, ...outcome };
    }
    case "forgotten":
      return state.kind === "terminating" ? { kind: "gone" } : state;
  }
}

type Active = Extract<WorkerState, { kind: "active" }>;
type Observation = Extract<WorkerEvent, { kind: "observed" }>;

/** @returns the same state when there is nothing new to remember. */
function remember(state: Active, event: Observation): Active {
  let runs: Map<string, RunMemory> | undefined;
  const seen = new Set<string>();
  for (const container of event.observed.containers) {
    if (seen.has(container.name)) continue;
    seen.add(container.name);
    const before = state.runs.get(container.name);
    const after = memoryOf(container, before, event);
    if (after === undefined || after === before) continue;
    runs ??= new Map(state.runs);
    runs.set(container.name, after);
  }
  return runs === undefined ? state : { ...state, runs };
}

function memoryOf(
  container: ObservedContainer,
  before: RunMemory | undefined,
  event: Observation,
): RunMemory | undefined {
  const { attempt, state } = container;
  if (before !== undefined && before.attempt > attempt) return before;
  const known = before?.attempt === attempt ? before : undefined;
  const now = event.monotonic;
  switch (state.kind) {
    case "created":
    case "unknown":
      return before;
    case "running":
      return known ?? { attempt, since: now, startedHere: false, replaced: "no", ended: undefined };
    case "exited": {
      if (known?.ended !== undefined) return known;
      const byWall = Math.max(0, state.finishedAtMs - state.startedAtMs);
      const byClock = known === undefined ? 0 : now - known.since;
      const lasted = millis(known?.startedHere ? byClock : Math.max(byWall, byClock));
      const backoff = Math.min(container.backoff, event.limits.max);
      // A run that was known ended just now. Of any other only the wall clocks of both ends tell, right or wrong.
      const since = known === undefined ? Math.min(Math.max(0, event.wallMs - state.finishedAtMs), backoff) : 0;
      // What a probe failed waits from the end of the run before, as the kubelet has it: its own run is part of the
      // wait.
      const served = known?.replaced === "unhealthy" ? Math.min(lasted, backoff) : since;
      const wait = lasted >= event.limits.resetAfter ? 0 : backoff - served;
      const ended = { restartAt: (now + wait) as MonotonicMs, lasted };
      return { ...(known ?? { attempt, since: now, startedHere: false, replaced: "no" }), ended };
    }
  }
}
