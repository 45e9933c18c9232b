/** Facts about one pod's containers and sandboxes that no runtime reports: when this agent saw them start and end. */
import type { ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { backoffOfNextRun, type CrashBackoffLimits, SANDBOX_BACKOFF } from "./crash-backoff.ts";

/** By container name; each describes the container's newest run. */
export type RunMemories = ReadonlyMap<string, RunMemory>;

/**
 * Durations use the monotonic clock, so that a jump of the wall clock neither lengthens nor shortens a wait. For a run
 * that ended before this agent first saw it, only the runtime's timestamps exist.
 */
export interface RunMemory {
  readonly attempt: number;
  /** When this agent started it, or first saw it. */
  readonly since: MonotonicMs;
  readonly startedHere: boolean;
  /** Why this agent stops the run to start its successor, regardless of the restart policy; "no": it does not. */
  readonly replaced: Replacement | "no";
  /** Resources to which this agent has updated the running container. */
  readonly resources?: ResourceRequirements | undefined;
  /** Set when the run is seen to have ended. */
  readonly ended: { readonly restartAt: MonotonicMs; readonly lasted: Millis } | undefined;
}

/** The definition has changed, a probe has failed, or the container gets other resources. */
export type Replacement = "changed" | "unhealthy" | "resized";

/** The newest sandbox that this agent made. Its back-off limits how often a sandbox that dies at once is replaced. */
export interface SandboxMemory {
  readonly attempt: number;
  readonly since: MonotonicMs;
  /** Least time between `since` and the creation of the successor. */
  readonly backoff: Millis;
}

export interface Observation {
  readonly observed: ObservedPod;
  readonly monotonic: MonotonicMs;
  readonly wallMs: number;
  readonly limits: CrashBackoffLimits;
}

export const NO_RUNS: RunMemories = new Map();

export function nextSandbox(before: SandboxMemory | undefined, attempt: number, since: MonotonicMs): SandboxMemory {
  const known = before && { backoff: before.backoff, lasted: millis(since - before.since) };
  return { attempt, since, backoff: backoffOfNextRun(known, SANDBOX_BACKOFF) };
}

/** @returns the memory of that run, or a new one if the newest known run is another */
export function runMemory(runs: RunMemories, name: string, attempt: number, since: MonotonicMs): RunMemory {
  const known = runs.get(name);
  return known?.attempt === attempt ? known : { attempt, since, startedHere: false, replaced: "no", ended: undefined };
}

/** @returns the same map when the observation adds nothing */
export function rememberRuns(runs: RunMemories, event: Observation): RunMemories {
  let changed: Map<string, RunMemory> | undefined;
  const seen = new Set<string>();
  for (const container of event.observed.containers) {
    if (seen.has(container.name)) continue;
    seen.add(container.name);
    const before = runs.get(container.name);
    const after = memoryOf(container, before, event);
    if (after === undefined || after === before) continue;
    changed ??= new Map(runs);
    changed.set(container.name, after);
  }
  return changed ?? runs;
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
      // A known run ended just now. For any other run only the wall clock's timestamps exist, correct or not.
      const since = known === undefined ? Math.min(Math.max(0, event.wallMs - state.finishedAtMs), backoff) : 0;
      // After a failed probe the back-off counts from the end of the previous run, as in the kubelet: the time that
      // this run lasted is part of it.
      const served = known?.replaced === "unhealthy" ? Math.min(lasted, backoff) : since;
      const wait = lasted >= event.limits.resetAfter ? 0 : backoff - served;
      const ended = { restartAt: (now + wait) as MonotonicMs, lasted };
      return { ...(known ?? { attempt, since: now, startedHere: false, replaced: "no" }), ended };
    }
  }
}
