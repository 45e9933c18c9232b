/**
 * Plans the next actions for one pod by the kubelet's rules (pkg/kubelet/kuberuntime, computePodActions;
 * pkg/kubelet/pod_workers). Pure and synchronous: the same view gives the same plan.
 */
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod, ObservedSandbox } from "@picolet/runtime-contract/runtime-adapter.ts";
import { sidecarsOf } from "./container-roles.ts";
import { type ContainerSteps, containerSteps, earliest, type Unit } from "./container-steps.ts";
import { gracePeriodOf } from "./grace-period.ts";
import { activeSince, DEADLINE_EXCEEDED, deadlineOf, recordedOutcome, rejectionOutcome } from "./outcome.ts";
import { isBarrier, type Plan, type PlanAction, type PodView, type StopContainer, stepOf } from "./pod-view.ts";
import { resizesOf } from "./resize.ts";
import type { ActiveState, Outcome, WorkerState } from "./worker-state.ts";
import { transition } from "./worker-transition.ts";

/** After this many failed stops of a container its whole sandbox is removed. */
const MAX_STOP_TRIES = 2;

/** @returns no action while the runtime cannot be asked */
export function planPod(view: PodView): Plan {
  const next = enter(view);
  const { observed } = view;
  if (observed === undefined) return { next, actions: [], held: [] };
  switch (next.kind) {
    case "waiting":
    case "gone":
      return { next, actions: [], held: [] };
    case "active":
      return planActive(view, next, observed);
    case "finished":
      return gated(view, next, finishingUnits(view, observed));
    case "terminating":
      return gated(view, next, removingUnits(view, observed));
  }
}

/** The state from which to plan. */
function enter(view: PodView): WorkerState {
  const { monotonic, wallMs, observed, backoff: limits, rejection } = view;
  if (observed === undefined) return view.worker;
  const outcome = view.worker.kind === "waiting" ? outcomeBefore(view, observed) : undefined;
  if (outcome !== undefined) return transition(view.worker, { kind: "finished", outcome });
  const state =
    view.blockedBy === undefined
      ? transition(view.worker, { kind: "unblocked", since: activeSince(view) })
      : transition(view.worker, { kind: "blocked", by: view.blockedBy });
  if (rejection !== undefined) return transition(state, { kind: "finished", outcome: rejectionOutcome(rejection) });
  const deadline = deadlineOf(view, state);
  if (deadline !== undefined && deadline <= monotonic) {
    return transition(state, { kind: "finished", outcome: DEADLINE_EXCEEDED });
  }
  return transition(state, { kind: "observed", observed, monotonic, wallMs, limits });
}

/**
 * How the pod ended under an agent before this one. Its own containers have to bear that out, or a reason of the
 * agent's: the status of an earlier pod of the same manifest may have outlived it in a power cut. A pod of the API
 * server is never another one's namesake, and what it has ended is ended even when nothing of it is left.
 */
function outcomeBefore(view: PodView, observed: ObservedPod): Outcome | undefined {
  const reported = recordedOutcome(view.previous);
  if (reported === undefined) return undefined;
  // A pod of the node's own sources that was ended for the node's sake runs again: no controller replaces it.
  const isOver = view.previous?.phase === reported.phase;
  if (isOver && reported.disruption !== undefined && view.desired.source !== "api") return undefined;
  return observed.containers.length > 0 || reported.reason !== "" || view.desired.source === "api"
    ? reported
    : undefined;
}

function planActive(view: PodView, state: ActiveState, observed: ObservedPod): Plan {
  if (view.leaving !== undefined) return gated(view, state, leavingUnits(view, observed));
  const steps = containerSteps(view, state, observed);
  const outcome = steps.outcome ?? (isLostForGood(view, observed) ? FAILED : undefined);
  if (outcome !== undefined) {
    const next = transition(state, { kind: "finished", outcome });
    return gated(view, next, finishingUnits(view, observed));
  }
  const deadlineAt = deadlineOf(view, state);
  const plan = activePlan(view, state, observed, steps);
  if (deadlineAt === undefined) return plan;
  return { ...plan, deadlineAt, wakeAt: earliest(plan.wakeAt, deadlineAt) };
}

/** A pod that is never to restart gets no second sandbox once anything has been in its first. */
function isLostForGood({ desired }: PodView, { sandboxes, containers }: ObservedPod): boolean {
  const isDead = sandboxes[0]?.state === "notReady";
  return isDead && desired.pod.spec.restartPolicy === "Never" && containers.length > 0;
}

const FAILED: Outcome = { phase: "Failed", reason: "", message: "" };

function activePlan(view: PodView, state: ActiveState, observed: ObservedPod, steps: ContainerSteps): Plan {
  const choice: Unit[] = view.undecided === true ? [[{ kind: "choose" }]] : [];
  // What is there already goes on where it is.
  const isNew = observed.sandboxes.length + observed.containers.length === 0;
  if (choice.length > 0 && isNew) return gated(view, state, choice);
  const [newest, ...older] = observed.sandboxes;
  const units: Unit[] = older.filter((each) => each.state === "ready").map((each) => [stopSandbox(each.id)]);
  if (newest?.state !== "ready") {
    const stops = stopsOf(view, observed);
    if (stops.length > 0) return gated(view, state, oneByOne(stops));
    const at = sandboxAt(state, newest);
    if (at > view.monotonic) return { next: state, actions: [], held: [], wakeAt: at };
    const attempt = (newest?.attempt ?? -1) + 1;
    const dead = newest === undefined ? [] : [stopSandbox(newest.id)];
    units.push([...dead, { kind: "prepare" }, { kind: "createSandbox", attempt }]);
  } else if (steps.units.some(([first]) => first?.kind === "startContainer")) {
    units.push([{ kind: "prepare" }]);
  }
  units.push(...resizeUnits(view, observed), ...steps.units, ...garbage(view, observed), ...choice);
  const preparing = units.some((unit) => unit.some(({ kind }) => kind === "prepare"));
  if (!preparing) units.push(...upkeep(view, observed));
  const plan = gated(view, state, units, steps.wakeAt);
  return steps.backingOff.length === 0 ? plan : { ...plan, backingOff: steps.backingOff };
}

/**
 * Prepares a running pod again so that its volumes follow the objects of the API server: after the agent's start, and
 * when the pod has changed. Comes last, because nothing waits for it.
 */
function upkeep({ prepared, hasRefreshedVolumes }: PodView, { containers }: ObservedPod): Unit[] {
  const isRunning = containers.some((each) => each.state.kind === "running");
  return !prepared && isRunning && hasRefreshedVolumes ? [[{ kind: "prepare" }]] : [];
}

/**
 * A resize comes before any start in the cgroup. Containers that restart for it must have ended before, because the
 * cgroup may become too small for them.
 */
function resizeUnits(view: PodView, observed: ObservedPod): Unit[] {
  if (observed.sandboxes[0]?.state !== "ready") return [];
  const { inPlace, awaitsRestart } = resizesOf(view, observed);
  const isDue = !awaitsRestart && (inPlace.length > 0 || !view.resize.sized);
  return isDue ? [[{ kind: "resize", containers: inPlace }]] : [];
}

/** When the successor of a dead sandbox may be made. */
function sandboxAt(state: ActiveState, dead: ObservedSandbox | undefined): MonotonicMs {
  const { sandbox } = state;
  if (sandbox === undefined || sandbox.attempt !== dead?.attempt) return 0 as MonotonicMs;
  return (sandbox.since + sandbox.backoff) as MonotonicMs;
}

/** Nothing of it runs any more, but its containers and their logs are kept. */
function finishingUnits(view: PodView, observed: ObservedPod): Unit[] {
  const stops = stopsOf(view, observed);
  if (stops.length > 0 && !areDeaf(view, stops)) return oneByOne(stops);
  const ready = observed.sandboxes.filter((each) => each.state === "ready").map((each) => [stopSandbox(each.id)]);
  return [...ready, ...claimUnits(view, observed), ...garbageOfEnded(view, observed)];
}

/** Before the pod's status says that it is over: then its devices may be given to another pod. */
function claimUnits({ holdsClaims = false }: PodView, { containers }: ObservedPod): Unit[] {
  const runs = containers.some(({ state }) => state.kind === "running");
  return holdsClaims && !runs ? [[{ kind: "unprepare" }]] : [];
}

function removingUnits(view: PodView, observed: ObservedPod): Unit[] {
  const claims = claimUnits(view, observed);
  if (claims.length > 0) return claims;
  const remains = leavingUnits(view, observed);
  return remains.length > 0 ? remains : [[{ kind: "cleanup" }, { kind: "forget" }]];
}

/** Until the runtime has nothing of it any more. */
function leavingUnits(view: PodView, observed: ObservedPod): Unit[] {
  const stops = stopsOf(view, observed);
  if (!areDeaf(view, stops)) return oneByOne(stops);
  // The newest goes last: an agent without a store reads the manifest and the restart count from it.
  const remains: Unit[] = observed.sandboxes
    .toReversed()
    .map((each) => [stopSandbox(each.id), { kind: "removeSandbox", sandboxId: each.id }]);
  const sandboxes = new Set(observed.sandboxes.map((each) => each.id));
  for (const { id, sandboxId } of observed.containers) {
    if (!sandboxes.has(sandboxId)) remains.push([{ kind: "removeContainer", containerId: id }]);
  }
  return remains;
}

const oneByOne = (actions: readonly PlanAction[]): Unit[] => actions.map((each) => [each]);

const areDeaf = (view: PodView, stops: readonly PlanAction[]): boolean =>
  stops.every((each) => (view.failures.get(stepOf(each))?.count ?? 0) >= MAX_STOP_TRIES);

const stopSandbox = (sandboxId: string): PlanAction => ({ kind: "stopSandbox", sandboxId });

/**
 * Keeps each container's newest run, and its newest ended run for `logs --previous`, with their sandboxes. The newest
 * run decides the next step, so a reclaim does not remove it either.
 */
function garbage({ reclaim = false }: PodView, observed: ObservedPod): Unit[] {
  const seen = new Set<string>();
  const dead = new Set<string>();
  const units: Unit[] = [];
  const keptSandboxes = new Set<string | undefined>([observed.sandboxes[0]?.id]);
  for (const { id, name, state, sandboxId } of observed.containers) {
    const isNewest = !seen.has(name);
    seen.add(name);
    const isDead = state.kind === "exited" || (state.kind === "created" && !isNewest);
    if (isDead && !isNewest && (reclaim || dead.has(name) || state.kind === "created")) {
      units.push([{ kind: "removeContainer", containerId: id }]);
      continue;
    }
    if (isDead) dead.add(name);
    keptSandboxes.add(sandboxId);
  }
  for (const { id, state } of observed.sandboxes) {
    if (state === "notReady" && !keptSandboxes.has(id)) units.push([{ kind: "removeSandbox", sandboxId: id }]);
  }
  return units;
}

/**
 * What is left of a pod that is over. Its status says how it ended; but of a pod of the node's own only its containers
 * bear that out after a power cut, so that they stay.
 */
function garbageOfEnded(view: PodView, observed: ObservedPod): Unit[] {
  if (view.reclaim !== true || view.desired.source !== "api") return garbage(view, observed);
  const { sandboxes, containers } = observed;
  if (containers.some(({ state }) => state.kind !== "exited" && state.kind !== "created"))
    return garbage(view, observed);
  return sandboxes.map(({ id }) => [stopSandbox(id), { kind: "removeSandbox", sandboxId: id }]);
}

/** Leaves out what failed lately, and what makes no sense without it. */
function gated(view: PodView, next: WorkerState, units: readonly Unit[], wake?: MonotonicMs): Plan {
  let wakeAt = wake;
  const actions: PlanAction[] = [];
  const held: string[] = [];
  for (const unit of units) {
    const retryAt = Math.max(...unit.map((action) => view.failures.get(stepOf(action))?.retryAt ?? 0)) as MonotonicMs;
    if (retryAt <= view.monotonic) {
      actions.push(...unit.filter((action) => action.kind !== "prepare" || !view.prepared));
      continue;
    }
    held.push(...unit.map(stepOf));
    wakeAt = earliest(wakeAt, retryAt);
    if (unit.some(isBarrier)) break;
  }
  // Folders are made for something that starts or runs, not for their own sake.
  const runs = view.observed !== undefined && next.kind === "active" && upkeep(view, view.observed).length > 0;
  const idle = !runs && actions.every((each) => each.kind === "prepare");
  return { next, actions: idle ? [] : actions, held, ...(wakeAt === undefined ? {} : { wakeAt }) };
}

/**
 * Makes a stop for each running container. Each sidecar ends after all regular containers and after the sidecars that
 * started later; the containers it waits for come before it in the list.
 */
function stopsOf(view: PodView, observed: ObservedPod): StopContainer[] {
  const { pod } = view.desired;
  const running = observed.containers.filter((each) => each.state.kind === "running");
  const sidecars = new Set(sidecarsOf(pod).map(({ name }) => name));
  const regular = new Set(pod.spec.containers.map(({ name }) => name));
  const gracePeriod = graceIn(view);
  const after = running.filter(({ name }) => regular.has(name)).map(({ id }) => id);
  const stops = running.filter(({ name }) => !sidecars.has(name)).map((run) => stopOf(run, gracePeriod, []));
  for (const name of [...sidecars].reverse()) {
    for (const run of running.filter((each) => each.name === name)) {
      stops.push(stopOf(run, gracePeriod, [...after]));
      after.push(run.id);
    }
  }
  return stops;
}

function graceIn({ desired, worker, leaving }: PodView): Millis {
  const own = gracePeriodOf(desired.pod);
  const isEnding = worker.kind === "finished" || worker.kind === "terminating";
  const given = (isEnding ? worker.gracePeriod : undefined) ?? leaving?.gracePeriod;
  return given === undefined ? own : millis(Math.min(own, given));
}

const stopOf = (run: ObservedContainer, gracePeriod: Millis, after: readonly string[]): StopContainer => ({
  ...{ kind: "stopContainer", containerId: run.id, name: run.name, gracePeriod, running: true, after },
  replaces: undefined,
  message: `Stopping container ${run.name}`,
  cause: "podEnds",
});
