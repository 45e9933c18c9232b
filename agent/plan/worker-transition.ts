/** The transitions of a pod's worker. Pure: times come in with the events. */
import type { Millis, MonotonicMs } from "@picolet/protocol/ports.ts";
import { NO_RUNS, nextSandbox, type RunMemory, rememberRuns, runMemory } from "./run-memory.ts";
import { nextMemory, type WorkerMemory } from "./worker-memory.ts";
import {
  type ActiveState,
  type Ending,
  type FinishedState,
  INITIAL_STATE,
  type LivingState,
  type Outcome,
  type PendingResize,
  type PhaseEvent,
  type ProgressEvent,
  type StepMemory,
  type WaitingState,
  type WorkerEvent,
  type WorkerState,
} from "./worker-state.ts";

const NOTHING_DONE: ReadonlySet<string> = new Set();
const NO_BACK_OFFS: ActiveState["backOffs"] = new Map();

/** The only place where a worker's state changes. An event that means nothing in a state leaves it as it is. */
export function transition(state: WorkerState, event: WorkerEvent): WorkerState {
  if (state.kind === "gone") return state;
  switch (event.kind) {
    case "blocked":
    case "unblocked":
    case "observed":
    case "sandboxCreated":
    case "started":
    case "replacing":
    case "resized":
    case "prepared":
    case "backOffReported":
      return nextStart(state, event);
    case "finished":
    case "ended":
    case "revived":
    case "removed":
    case "forgotten":
      return nextPhase(state, event);
    case "granted":
    case "judged":
    case "cgroupSized":
    case "resizeObserved":
      return withResize(state, event);
    case "respecified":
    case "leaveRequested":
    case "published":
    case "stepsTaken":
      return nextProgress(state, event);
    default: {
      const before = memoryOf(state);
      const memory = nextMemory(before, event);
      return memory === before ? state : { ...state, ...memory };
    }
  }
}

type Start = Extract<
  PhaseEvent,
  {
    kind:
      | "blocked"
      | "unblocked"
      | "observed"
      | "sandboxCreated"
      | "started"
      | "replacing"
      | "resized"
      | "prepared"
      | "backOffReported";
  }
>;

/** On the way from waiting to running containers. */
function nextStart(state: LivingState, event: Start): WorkerState {
  if (state.kind === "waiting") {
    if (event.kind === "blocked") return state.for === event.by ? state : { ...state, for: event.by };
    return event.kind === "unblocked" ? activated(state, event.since) : state;
  }
  if (state.kind !== "active") return state;
  switch (event.kind) {
    case "blocked":
    case "unblocked":
      return state;
    case "observed": {
      const runs = rememberRuns(state.runs, event);
      return runs === state.runs ? state : { ...state, runs };
    }
    case "sandboxCreated":
      return { ...state, sandbox: nextSandbox(state.sandbox, event.attempt, event.monotonic) };
    case "started": {
      const { name, attempt, monotonic: since } = event;
      return withRun(state, name, { attempt, since, startedHere: true, replaced: "no", ended: undefined });
    }
    case "replacing": {
      const { name, attempt, why, monotonic } = event;
      return withRun(state, name, { ...runMemory(state.runs, name, attempt, monotonic), replaced: why });
    }
    case "resized": {
      const { name, attempt, resources, monotonic } = event;
      return withRun(state, name, { ...runMemory(state.runs, name, attempt, monotonic), resources });
    }
    case "prepared":
      return { ...state, preparedFor: event.pod };
    case "backOffReported":
      return { ...state, backOffs: new Map(state.backOffs).set(event.name, event.attempt) };
  }
}

const activated = (state: WaitingState, since: MonotonicMs): ActiveState => ({
  ...memoryOf(state),
  kind: "active",
  since,
  runs: NO_RUNS,
  sandbox: undefined,
  preparedFor: undefined,
  backOffs: NO_BACK_OFFS,
  observed: undefined,
  done: NOTHING_DONE,
  resize: state.resize,
  leave: state.leave,
});

const withRun = (state: ActiveState, name: string, memory: RunMemory): ActiveState => ({
  ...state,
  runs: new Map(state.runs).set(name, memory),
});

type Turn = Extract<PhaseEvent, { kind: "finished" | "ended" | "revived" | "removed" | "forgotten" }>;

/** On the way to the pod's end, and back. */
function nextPhase(state: LivingState, event: Turn): WorkerState {
  switch (event.kind) {
    case "finished":
      return isBeforeEnd(state) ? finished(state, event.outcome, undefined) : state;
    case "ended":
      if (isBeforeEnd(state)) return finished(state, event.outcome, event.gracePeriod);
      return withGracePeriod(state, event.gracePeriod);
    case "revived": {
      if (state.kind !== "finished") return state;
      const { disruption, rejected } = state.outcome;
      if (disruption === undefined && rejected !== true) return state;
      return { ...INITIAL_STATE, ...memoryOf(state) };
    }
    case "removed": {
      if (state.kind === "terminating") return state;
      const since = { since: event.monotonic, sinceMs: event.wallMs };
      const own = { ...memoryOf(state), ...stepsOf(state), ...since, kind: "terminating" } as const;
      if (isBeforeEnd(state)) return { ...own, gracePeriod: state.leave?.gracePeriod, isOver: false };
      const { outcome, gracePeriod, isOver } = state;
      return { ...own, outcome, gracePeriod, isOver };
    }
    case "forgotten":
      return state.kind === "terminating" ? { kind: "gone" } : state;
  }
}

const isBeforeEnd = (state: LivingState): state is WaitingState | ActiveState =>
  state.kind === "waiting" || state.kind === "active";

function finished(state: WaitingState | ActiveState, outcome: Outcome, given: Millis | undefined): FinishedState {
  const gracePeriod = given ?? state.leave?.gracePeriod;
  return { ...memoryOf(state), ...stepsOf(state), kind: "finished", outcome, gracePeriod, isOver: false };
}

/** The time that is left can only become shorter; a pod of which nothing runs needs none. */
function withGracePeriod<S extends Ending>(state: S, gracePeriod: Millis | undefined): S {
  const before = state.gracePeriod ?? Number.POSITIVE_INFINITY;
  if (state.isOver || gracePeriod === undefined || gracePeriod >= before) return state;
  return { ...state, gracePeriod };
}

type Resize = Extract<ProgressEvent, { kind: "granted" | "judged" | "cgroupSized" | "resizeObserved" }>;

function withResize(state: LivingState, event: Resize): LivingState {
  if (!isBeforeEnd(state)) return state;
  const { resize } = state;
  switch (event.kind) {
    case "granted":
      return { ...state, resize: { ...resize, sized: false, generation: event.generation, progress: "underWay" } };
    case "judged":
      if (isSamePending(resize.pending, event.pending)) return state;
      return { ...state, resize: { ...resize, pending: event.pending } };
    case "cgroupSized":
      return resize.sized ? state : { ...state, resize: { ...resize, sized: true } };
    case "resizeObserved": {
      if (state.kind !== "active") return state;
      const wasUnderWay = resize.progress === "unknown" ? event.wasReported : resize.progress === "underWay";
      const isUnderWay = event.isResizing || (wasUnderWay && !resize.sized);
      const progress = isUnderWay ? "underWay" : "idle";
      return progress === resize.progress ? state : { ...state, resize: { ...resize, progress } };
    }
  }
}

const isSamePending = (one: PendingResize | undefined, other: PendingResize | undefined): boolean =>
  one?.reason === other?.reason && one?.message === other?.message && one?.generation === other?.generation;

type Progress = Exclude<ProgressEvent, Resize>;

function nextProgress(state: LivingState, event: Progress): LivingState {
  switch (event.kind) {
    case "respecified": {
      if (state.kind !== "active" || state.preparedFor !== event.from || !event.isPreparationKept) return state;
      return { ...state, preparedFor: event.to };
    }
    case "leaveRequested":
      if (!isBeforeEnd(state)) return withGracePeriod(state, event.gracePeriod);
      if (state.leave !== undefined) return state;
      return { ...state, leave: { gracePeriod: event.gracePeriod, hasLeft: false, comesBack: event.comesBack } };
    case "published":
      return published(state, event);
    case "stepsTaken":
      if (state.kind === "waiting" || (state.done.size === 0 && event.done.size === 0)) return state;
      return { ...state, done: event.done };
  }
}

/** Memory of the runtime that a pod leaves is free when nothing of it runs there; the rest is removed later. */
function published(
  state: LivingState,
  { observed, isLeaving }: Extract<ProgressEvent, { kind: "published" }>,
): LivingState {
  const isRunning = observed.containers.some((each) => each.state.kind === "running");
  if (!isBeforeEnd(state)) return state.isOver === !isRunning ? state : { ...state, isOver: !isRunning };
  const hasLeft = state.kind === "waiting" || !isRunning || state.leave?.hasLeft === true;
  const leave = state.leave && isLeaving ? { ...state.leave, hasLeft } : undefined;
  if (state.kind === "active") return { ...state, leave, observed };
  return leave === state.leave ? state : { ...state, leave };
}

const memoryOf = ({ failures, inspection, messages, stops, faults, reclaim }: WorkerMemory): WorkerMemory => ({
  failures,
  inspection,
  messages,
  stops,
  faults,
  reclaim,
});

const stepsOf = (state: LivingState): StepMemory =>
  state.kind === "waiting" ? { done: NOTHING_DONE } : { done: state.done };
