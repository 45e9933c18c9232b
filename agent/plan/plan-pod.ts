/**
 * What to do next for one pod, by the kubelet's rules (pkg/kubelet/kuberuntime, computePodActions; pkg/kubelet/pod_workers).
 * Pure and synchronous: the same view gives the same plan.
 */
import type { Container, Pod } from "../../protocol/pod.ts";
import { type Millis, type MonotonicMs, millis, seconds } from "../../protocol/ports.ts";
import type {
  ObservedContainer,
  ObservedPod,
  ObservedSandbox,
} from "../../runtime-adapters/contract/runtime-adapter.ts";
import { gracePeriodOf } from "./grace-period.ts";
import { currentRun, judgeContainer, roleOf, type Verdict } from "./judge-container.ts";
import { isBarrier, type Plan, type PlanAction, type PodView, stepOf } from "./pod-view.ts";
import { type Outcome, transition, type WorkerState } from "./worker-state.ts";

/** The least that a sidecar gets to end in when the other containers have used up the pod's grace period; the kubelet's. */
const MINIMUM_GRACE = seconds(2);

/** A container that its runtime could not stop as often goes with its sandbox, which is killed whole. */
const MAX_STOP_TRIES = 2;

/** @returns the same state and no action while the runtime could not be asked, but that a removal is noted. */
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
      return gated(view, next, removingUnits(view, next, observed));
  }
}

/** The state from which to plan. */
function enter(view: PodView): WorkerState {
  const { monotonic, wallMs, observed, backoff: limits } = view;
  if (!view.wanted) return transition(view.worker, { kind: "removed", monotonic, wallMs });
  if (observed === undefined) return view.worker;
  const state = transition(view.worker, { kind: "blocked", by: view.blockedBy });
  const outcome = view.worker.kind === "waiting" ? outcomeBefore(view, observed) : undefined;
  if (outcome !== undefined) return transition(state, { kind: "finished", outcome });
  return transition(state, { kind: "observed", observed, monotonic, wallMs, limits });
}

/**
 * How the pod ended under an agent before this one. Its own containers have to bear that out, or a reason of the
 * agent's: the status of an earlier pod of the same manifest may have outlived it in a power cut. A pod of the API
 * server is never another one's namesake, and what it has ended is ended even when nothing of it is left.
 */
function outcomeBefore(view: PodView, observed: ObservedPod): Outcome | undefined {
  const { phase, reason = "", message = "" } = view.previous ?? {};
  if (phase !== "Succeeded" && phase !== "Failed") return undefined;
  const isBorneOut = observed.containers.length > 0 || reason !== "" || view.desired.source === "api";
  return isBorneOut ? { phase, reason, message } : undefined;
}

type Active = Extract<WorkerState, { kind: "active" }>;

/** Steps that are taken together or not at all. */
type Unit = readonly PlanAction[];

function planActive(view: PodView, state: Active, observed: ObservedPod): Plan {
  const steps = containerSteps(view, state, observed);
  if (steps.outcome !== undefined) {
    const next = transition(state, { kind: "finished", outcome: steps.outcome });
    return gated(view, next, finishingUnits(view, observed));
  }
  const [newest, ...older] = observed.sandboxes;
  const units: Unit[] = older.filter((each) => each.state === "ready").map((each) => [stopSandbox(each.id)]);
  if (newest?.state !== "ready") {
    const stops = stopsOf(view, observed, () => true);
    if (stops.length > 0) return gated(view, state, stops);
    const at = sandboxAt(state, newest);
    if (at > view.monotonic) return { next: state, actions: [], held: [], wakeAt: at };
    const attempt = (newest?.attempt ?? -1) + 1;
    const dead = newest === undefined ? [] : [stopSandbox(newest.id)];
    units.push([...dead, { kind: "prepare" }, { kind: "createSandbox", attempt }]);
  } else if (steps.units.some(([first]) => first?.kind === "startContainer")) {
    units.push([{ kind: "prepare" }]);
  }
  units.push(...steps.units, ...garbage(observed));
  const preparing = units.some((unit) => unit.some(({ kind }) => kind === "prepare"));
  if (!preparing) units.push(...upkeep(view, observed));
  const plan = gated(view, state, units, steps.wakeAt);
  return steps.backingOff.length === 0 ? plan : { ...plan, backingOff: steps.backingOff };
}

/**
 * What the API server has is kept up to date in volumes while the pod runs, which somebody has to know whose pod it is:
 * after a start of the agent, and when the pod has changed or is another one's now. Last, because nothing waits for it.
 */
function upkeep({ desired, prepared }: PodView, { containers }: ObservedPod): Unit[] {
  const isRunning = containers.some((each) => each.state.kind === "running");
  return !prepared && isRunning && hasPayloadVolumes(desired.pod) ? [[{ kind: "prepare" }]] : [];
}

const hasPayloadVolumes = ({ spec }: Pod): boolean =>
  (spec.volumes ?? []).some(({ configMap, secret, downwardAPI, projected }) =>
    [configMap, secret, downwardAPI, projected].some((each) => each !== undefined),
  );

/** When the successor of a dead sandbox may be made. */
function sandboxAt(state: Active, dead: ObservedSandbox | undefined): MonotonicMs {
  const { sandbox } = state;
  if (sandbox === undefined || sandbox.attempt !== dead?.attempt) return 0 as MonotonicMs;
  return (sandbox.since + sandbox.backoff) as MonotonicMs;
}

interface ContainerSteps {
  readonly units: readonly Unit[];
  readonly wakeAt: MonotonicMs | undefined;
  readonly backingOff: readonly { readonly name: string; readonly attempt: number }[];
  /** Set when no container will ever run again. */
  readonly outcome: Outcome | undefined;
}

function containerSteps(view: PodView, state: Active, observed: ObservedPod): ContainerSteps {
  const { spec } = view.desired.pod;
  const judge = (container: Container): Verdict =>
    judgeContainer(view, state.runs, observed, container, roleOf(view.desired.pod, container));
  const steps = new StepCollector(view);
  const regular = spec.containers.map((container) => ({ container, verdict: judge(container) }));
  const codes = regular.map(({ verdict }) => (verdict.kind === "done" ? verdict.exitCode : undefined));
  if (codes.every((code) => code !== undefined)) {
    return steps.ended(codes.every((code) => code === 0) ? "Succeeded" : "Failed");
  }
  const initialized = hasInitialized(view, observed);
  for (const container of spec.initContainers ?? []) {
    const verdict = judge(container);
    const sidecar = roleOf(view.desired.pod, container) === "sidecar";
    if (initialized && !sidecar) continue;
    if (verdict.kind === "done" && verdict.exitCode !== 0) return steps.ended("Failed");
    steps.add(container, verdict, true);
    const passed = verdict.kind === "done" || (sidecar && verdict.kind === "running" && isStarted(view, verdict.run));
    if (!passed && !initialized) return steps.result();
  }
  for (const { container, verdict } of regular) steps.add(container, verdict, false);
  return steps.result();
}

/** Once a regular container has run in this sandbox, its init containers are over. */
function hasInitialized(view: PodView, observed: ObservedPod): boolean {
  const [sandbox] = observed.sandboxes;
  if (sandbox?.state !== "ready") return false;
  return view.desired.pod.spec.containers.some((container) => {
    const run = currentRun(observed, container.name, "regular");
    return run !== undefined && run.sandboxId === sandbox.id && run.state.kind !== "created";
  });
}

const isStarted = (view: PodView, run: ObservedContainer): boolean => view.probes.get(run.id)?.started ?? true;

class StepCollector {
  readonly #view: PodView;
  readonly #units: Unit[] = [];
  readonly #backingOff: { readonly name: string; readonly attempt: number }[] = [];
  #wakeAt: MonotonicMs | undefined;

  constructor(view: PodView) {
    this.#view = view;
  }

  add(container: Container, verdict: Verdict, init: boolean): void {
    switch (verdict.kind) {
      case "running":
      case "done":
        return;
      case "stop": {
        const { run, message } = verdict;
        const stop = stopContainer(run, gracePeriodOf(this.#view.desired.pod), message, run.attempt);
        // The next round starts its successor. One of which nobody knows whether it runs has to be gone by then.
        const remove: Unit = run.state.kind === "unknown" ? [{ kind: "removeContainer", containerId: run.id }] : [];
        this.#units.push([stop, ...remove]);
        return;
      }
      case "start": {
        const { attempt, backoff, at } = verdict;
        if (at > this.#view.monotonic) {
          this.#wakeAt = earliest(this.#wakeAt, at);
          this.#backingOff.push({ name: container.name, attempt });
          return;
        }
        this.#units.push([{ kind: "startContainer", name: container.name, init, attempt, backoff }]);
      }
    }
  }

  ended(phase: Outcome["phase"]): ContainerSteps {
    return { units: [], wakeAt: undefined, backingOff: [], outcome: { phase, reason: "", message: "" } };
  }

  result(): ContainerSteps {
    return { units: this.#units, wakeAt: this.#wakeAt, backingOff: this.#backingOff, outcome: undefined };
  }
}

/** Nothing of it runs any more, but its containers and their logs are kept. */
function finishingUnits(view: PodView, observed: ObservedPod): Unit[] {
  const stops = gracefulStops(view, observed, 0);
  if (stops.length > 0) return stops;
  const ready = observed.sandboxes.filter((each) => each.state === "ready").map((each) => [stopSandbox(each.id)]);
  return [...ready, ...garbage(observed)];
}

function removingUnits(
  view: PodView,
  state: Extract<WorkerState, { kind: "terminating" }>,
  observed: ObservedPod,
): Unit[] {
  const stops = gracefulStops(view, observed, view.monotonic - state.since);
  const deaf = stops.flat().every((each) => (view.failures.get(stepOf(each))?.count ?? 0) >= MAX_STOP_TRIES);
  if (!deaf) return stops;
  // The newest goes last: it tells an agent that has lost its store what the pod is, and how often it was restarted.
  const remains: Unit[] = observed.sandboxes
    .toReversed()
    .map((each) => [stopSandbox(each.id), { kind: "removeSandbox", sandboxId: each.id }]);
  const sandboxes = new Set(observed.sandboxes.map((each) => each.id));
  for (const { id, sandboxId } of observed.containers) {
    if (!sandboxes.has(sandboxId)) remains.push([{ kind: "removeContainer", containerId: id }]);
  }
  return remains.length > 0 ? remains : [[{ kind: "cleanup" }, { kind: "forget" }]];
}

/** All at once but for sidecars, which serve the others and so end after them, in what is left of the grace period. */
function gracefulStops(view: PodView, observed: ObservedPod, elapsedMs: number): Unit[] {
  const { pod } = view.desired;
  const sidecars = new Set(
    (pod.spec.initContainers ?? []).filter((each) => roleOf(pod, each) === "sidecar").map((each) => each.name),
  );
  const others = stopsOf(view, observed, (name) => !sidecars.has(name));
  if (others.length > 0 || sidecars.size === 0) return others;
  const grace = gracePeriodOf(view.desired.pod);
  const left = Math.min(grace, Math.max(grace - elapsedMs, MINIMUM_GRACE));
  return stopsOf(view, observed, (name) => sidecars.has(name), millis(left));
}

function stopsOf(
  view: PodView,
  observed: ObservedPod,
  which: (name: string) => boolean,
  grace: Millis = gracePeriodOf(view.desired.pod),
): Unit[] {
  return observed.containers
    .filter((each) => each.state.kind === "running" && which(each.name))
    .map((each) => [stopContainer(each, grace, `Stopping container ${each.name}`)]);
}

const stopSandbox = (sandboxId: string): PlanAction => ({ kind: "stopSandbox", sandboxId });

const stopContainer = (
  run: ObservedContainer,
  gracePeriod: Millis,
  message: string,
  replaces?: number,
): PlanAction => ({ kind: "stopContainer", containerId: run.id, name: run.name, gracePeriod, replaces, message });

/** Of every container the newest run is kept, and the newest that ended, for `logs --previous`; so are their sandboxes. */
function garbage(observed: ObservedPod): Unit[] {
  const dead = new Set<string>();
  const units: Unit[] = [];
  const keptSandboxes = new Set<string | undefined>([observed.sandboxes[0]?.id]);
  for (const { id, name, state, sandboxId } of observed.containers) {
    if (state.kind === "exited" && dead.has(name)) {
      units.push([{ kind: "removeContainer", containerId: id }]);
      continue;
    }
    if (state.kind === "exited") dead.add(name);
    keptSandboxes.add(sandboxId);
  }
  for (const { id, state } of observed.sandboxes) {
    if (state === "notReady" && !keptSandboxes.has(id)) units.push([{ kind: "removeSandbox", sandboxId: id }]);
  }
  return units;
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

const earliest = (first: MonotonicMs | undefined, second: MonotonicMs): MonotonicMs =>
  first === undefined || second < first ? second : first;
