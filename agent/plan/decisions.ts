/** Decisions about one pod for the black box: the reason of each turn of its life, as data. Pure. */
import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { Millis, MonotonicMs } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodEnd } from "../core/pods/pod-admission.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import { applyGrants, grantsOf } from "./allocation.ts";
import { type AnyContainer, containersOf, isRestartedAfterExit, roleOf } from "./container-roles.ts";
import { gracePeriodOf } from "./grace-period.ts";
import { DEADLINE_EXCEEDED, recordedOutcome } from "./outcome.ts";
import type { PlanAction, PodView, StopContainer } from "./pod-view.ts";
import { NO_RUNS } from "./run-memory.ts";
import type { Failure } from "./worker-memory.ts";
import type { PendingResize, WorkerState } from "./worker-state.ts";

/**
 * The turns that a round has found or taken.
 * @param view what it was planned from
 * @param next the planned state
 */
export function turnsOf(view: PodView, next: WorkerState): readonly Decision[] {
  const { worker: before, desired, observed } = view;
  if (observed === undefined || (before.kind !== "waiting" && before.kind !== "active")) return [];
  if (next.kind === "waiting") {
    const isNews = before.kind === "waiting" && next.for !== undefined && next.for !== before.for;
    return isNews ? [{ kind: "blocked" }] : [];
  }
  const turns: Decision[] = before.kind === "waiting" ? beginningOf(view, observed) : [];
  turns.push(...exitsOf(view, observed));
  if (next.kind !== "finished") return turns;
  const { outcome } = next;
  if (view.rejection !== undefined) return [explained("refused", view.rejection)];
  // The agent before this one has recorded it.
  if (before.kind === "waiting" && recordedOutcome(view.previous) !== undefined) return [];
  if (outcome !== DEADLINE_EXCEEDED) return [...turns, { kind: "finished", phase: publicName(outcome.phase) }];
  const activeMs = (desired.pod.spec.activeDeadlineSeconds ?? 0) * 1000;
  return [...turns, { kind: "deadline", figures: { activeMs } }];
}

function beginningOf({ desired, previous }: PodView, { sandboxes, containers }: ObservedPod): Decision[] {
  const running = containers.filter(({ state }) => state.kind === "running").length;
  if (running > 0) return [{ kind: "takenOver", figures: { running } }];
  const isNew = previous?.startTime === undefined && sandboxes.length + containers.length === 0;
  return isNew ? [{ kind: "accepted", source: publicName(desired.source) }] : [];
}

/** The newest runs that are seen to have ended for the first time, by any agent. */
function exitsOf({ worker, desired: { pod }, previous, monotonic }: PodView, observed: ObservedPod): Decision[] {
  const runs = worker.kind === "active" ? worker.runs : NO_RUNS;
  const seen = new Set<string>();
  const exits: Decision[] = [];
  for (const run of observed.containers) {
    const { name, attempt, state } = run;
    if (seen.has(name)) continue;
    seen.add(name);
    const known = runs.get(name)?.attempt === attempt ? runs.get(name) : undefined;
    if (state.kind !== "exited" || known?.ended !== undefined || isReported(previous, run)) continue;
    // Without a spec: an ephemeral container that a lost store does not know.
    const container = containersOf(pod).find((each) => each.name === name);
    const { exitCode, reason, startedAtMs, finishedAtMs } = state;
    const isReplaced = known !== undefined && known.replaced !== "no";
    const restarts = (each: AnyContainer): boolean => isRestartedAfterExit(pod, each, roleOf(pod, each), exitCode);
    exits.push({
      kind: "exited",
      container: publicName(name),
      reason: publicName(reason),
      exitCode,
      willRestart: isReplaced || (container !== undefined && restarts(container)),
      // A run that began before this agent has only the runtime's times.
      figures: { run: attempt, lastedMs: known?.startedHere ? monotonic - known.since : finishedAtMs - startedAtMs },
    });
  }
  return exits;
}

/** True when a status says that this run has ended. */
function isReported(previous: PodStatus | undefined, { id }: ObservedContainer): boolean {
  const { initContainerStatuses = [], containerStatuses = [], ephemeralContainerStatuses = [] } = previous ?? {};
  return [...initContainerStatuses, ...containerStatuses, ...ephemeralContainerStatuses].some(({ state, lastState }) =>
    [state.terminated, lastState.terminated].some((each) => each?.containerID?.endsWith(id) === true),
  );
}

type StartContainer = Extract<PlanAction, { kind: "startContainer" }>;

/** @param view of the round that starts it */
export function startedDecision(
  { worker, observed }: PodView,
  { name, attempt, backoff }: Pick<StartContainer, "name" | "attempt" | "backoff">,
): Decision {
  const replaced = worker.kind === "active" ? worker.runs.get(name)?.replaced : undefined;
  const before = observed?.containers.find((each) => each.name === name && each.attempt < attempt);
  const isNewSandbox = before !== undefined && before.sandboxId !== observed?.sandboxes[0]?.id;
  const again = replaced === undefined || replaced === "no" ? (isNewSandbox ? "newSandbox" : "again") : replaced;
  const cause = attempt === 0 ? "first" : again;
  return {
    kind: "started",
    container: publicName(name),
    cause: publicName(cause),
    figures: { run: attempt, backoffMs: backoff },
  };
}

/** @returns `undefined` when the pod ends: that has a decision of its own */
export function stoppedDecision({ name, cause, gracePeriod, replaces }: StopContainer): Decision | undefined {
  if (cause === "podEnds") return undefined;
  return {
    kind: "stopped",
    container: publicName(name),
    cause: publicName(cause),
    willRestart: replaces !== undefined,
    figures: { run: replaces?.attempt ?? 0, graceMs: gracePeriod },
  };
}

/** @param failed the failure, and whether it is one of the image */
export function failedDecision(
  action: PlanAction,
  { pod }: DesiredPod,
  { failure, isImage, monotonic }: { readonly failure: Failure; readonly isImage: boolean; readonly monotonic: number },
): Decision {
  const { count, retryAt } = failure;
  const why = {
    reason: publicName(failure.reason),
    message: publicMessage(failure.message),
    figures: { tries: count, retryInMs: Math.max(0, retryAt - monotonic) },
  };
  const name = action.kind === "startContainer" || action.kind === "stopContainer" ? action.name : undefined;
  const container = name === undefined ? undefined : publicName(name);
  const image = containersOf(pod).find((each) => each.name === name)?.image;
  if (isImage && container !== undefined && image !== undefined) {
    return { kind: "imageNotPulled", container, image: publicName(image), ...why };
  }
  return { kind: "stepFailed", step: publicName(STEPS[action.kind]), container, ...why };
}

const STEPS: Readonly<Record<PlanAction["kind"], string>> = {
  choose: "choose a runtime",
  prepare: "prepare volumes and cgroup",
  createSandbox: "create the sandbox",
  startContainer: "start",
  stopContainer: "stop",
  resize: "resize",
  removeContainer: "remove a dead container",
  stopSandbox: "stop the sandbox",
  removeSandbox: "remove the sandbox",
  unprepare: "take back resource claims",
  cleanup: "remove volumes and cgroup",
  forget: "forget the pod",
};

export const heldBackDecision = (
  { name, attempt }: { readonly name: string; readonly attempt: number },
  waitMs: Millis,
): Decision => ({ kind: "heldBack", container: publicName(name), figures: { run: attempt, waitMs } });

/** How the node's end of a pod reads where its cause gave no decision of its own. */
export const endDecision = ({ decision, reason, message }: PodEnd): Decision =>
  decision ?? explained("endedByNode", { reason, message });

export const removedDecision = ({ source, pod }: DesiredPod): Decision => ({
  kind: "removed",
  source: publicName(source),
  figures: { graceMs: gracePeriodOf(pod) },
});

/** The changes of a pod that its worker gets from the store. */
export function changesOf(from: DesiredPod, to: DesiredPod): readonly Decision[] {
  const changes: Decision[] = [];
  if (apiUidOf(from) !== apiUidOf(to)) changes.push({ kind: "adopted", source: publicName(to.source) });
  if (applyGrants(to.pod, grantsOf(from.pod)) !== to.pod) changes.push({ kind: "resizeGranted" });
  const { runtime } = to;
  // A switch has a decision of its own, with the figures of the shortage.
  if (runtime !== undefined && runtime.kind !== from.runtime?.kind && runtime.reason !== "MemoryPressure") {
    const message = publicMessage(runtime.message);
    changes.push({ kind: "runtimeChosen", runtime: publicName(runtime.kind), message });
  }
  return changes;
}

export const heldResize = ({ reason, message }: PendingResize): Decision =>
  explained("resizeHeld", { reason, message });

const explained = <K extends "refused" | "endedByNode" | "resizeHeld">(
  kind: K,
  { reason, message }: { readonly reason: string; readonly message: string },
): { readonly kind: K } & Extract<Decision, { kind: K }> =>
  ({ kind, reason: publicName(reason), message: publicMessage(message) }) as { readonly kind: K } & Extract<
    Decision,
    { kind: K }
  >;

/** When a container that is held back may start. */
export const waitOf = (worker: WorkerState, name: string, now: MonotonicMs): Millis =>
  Math.max(0, (worker.kind === "active" ? (worker.runs.get(name)?.ended?.restartAt ?? now) : now) - now) as Millis;
