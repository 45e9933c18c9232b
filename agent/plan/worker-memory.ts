/** The part of a worker's state that is independent of the pod's phase: failures, the last inspection, messages. */
import type { Millis, MonotonicMs } from "@picolet/protocol/ports.ts";

/** By `stepOf` an action. A step that succeeds removes its failure. */
export type Failures = ReadonlyMap<string, Failure>;

export interface Failure {
  /** Kubernetes' reason, CamelCase. */
  readonly reason: string;
  readonly message: string;
  /** Failures in a row. */
  readonly count: number;
  readonly retryAt: MonotonicMs;
  /** True when a new or changed object of the API server may fix it. */
  readonly awaitsObject?: boolean;
}

/** The reason of a step that was carried out and changed nothing. */
export const NO_EFFECT = "NoEffect";

/**
 * When a hint's inspection shows nothing new, the hint came before the change shows: containerd reports an exit some
 * 10 ms before its own status has it. The pod is inspected again after these delays; later the next relist finds it.
 */
export const RECHECK_MS: readonly number[] = [25, 100, 400];

export interface InspectionMemory {
  /** True when the runtime may have something of the pod that its last relist does not show. */
  readonly mayHaveTraces: boolean;
  /** Ids and states of the last inspection; "" before the first. */
  readonly fingerprint: string;
  /** Inspections of `RECHECK_MS` that are left. */
  readonly rechecks: number;
}

/** A stop that a later round continues: the grace period goes on, and less time counts from when it is given. */
export interface StopMemory {
  /** The shortest given so far. */
  readonly gracePeriod: Millis;
  readonly until: MonotonicMs;
}

export interface WorkerMemory {
  /** At most one for each step of the last plan, and one for the inspection. */
  readonly failures: Failures;
  readonly inspection: InspectionMemory;
  /** Termination messages by container id, "" included, of ended containers that the runtime still has. */
  readonly messages: ReadonlyMap<string, string>;
  /** By container id, of stops that have begun; kept when the pod is revived, so that no preStop hook runs twice. */
  readonly stops: ReadonlyMap<string, StopMemory>;
  /** Rounds in a row that ended with an unexpected error. */
  readonly faults: number;
  /** State of the removal of dead containers kept only for their logs; "underWay" from the start of a round. */
  readonly reclaim: "none" | "requested" | "underWay";
}

export type MemoryEvent =
  | { readonly kind: "stepFailed"; readonly step: string; readonly failure: Failure }
  | { readonly kind: "stepSucceeded"; readonly step: string }
  /** The cause of the failure is gone: the step is due now. */
  | { readonly kind: "failureCleared"; readonly step: string }
  /** `steps`: those of the new plan. Failures of all others are dropped. */
  | { readonly kind: "planned"; readonly steps: ReadonlySet<string> }
  /** Objects of the API server have changed. */
  | { readonly kind: "objectsChanged"; readonly monotonic: MonotonicMs }
  /** The runtime reported that something happened. */
  | { readonly kind: "hinted" }
  /** Something may exist that the last relist does not show. */
  | { readonly kind: "touched" }
  | { readonly kind: "inspected"; readonly fingerprint: string }
  | { readonly kind: "rechecked" }
  | { readonly kind: "messagesRead"; readonly messages: ReadonlyMap<string, string> }
  | {
      readonly kind: "stopBegan";
      readonly containerId: string;
      readonly gracePeriod: Millis;
      readonly monotonic: MonotonicMs;
    }
  /** Stops of all other containers are over. */
  | { readonly kind: "stopsObserved"; readonly alive: ReadonlySet<string> }
  | { readonly kind: "reclaimRequested" }
  | { readonly kind: "roundBegan" }
  /** `isPhaseChanged`: the round found out or decided something, so that a reclaim needs another one. */
  | {
      readonly kind: "roundEnded";
      readonly result: "done" | "brokenOff" | "faulted";
      readonly isPhaseChanged: boolean;
    };

export const EMPTY_MEMORY: WorkerMemory = {
  failures: new Map(),
  inspection: { mayHaveTraces: false, fingerprint: "", rechecks: 0 },
  messages: new Map(),
  stops: new Map(),
  faults: 0,
  reclaim: "none",
};

/** @returns the same object when nothing changes */
export function nextMemory(memory: WorkerMemory, event: MemoryEvent): WorkerMemory {
  switch (event.kind) {
    case "stepFailed":
      return { ...memory, failures: new Map(memory.failures).set(event.step, event.failure) };
    case "stepSucceeded":
      // The next inspection decides whether a step without effect has one now.
      return memory.failures.get(event.step)?.reason === NO_EFFECT ? memory : withoutFailure(memory, event.step);
    case "failureCleared":
      return withoutFailure(memory, event.step);
    case "planned": {
      const kept = [...memory.failures].filter(([step]) => event.steps.has(step));
      return kept.length === memory.failures.size ? memory : { ...memory, failures: new Map(kept) };
    }
    case "objectsChanged": {
      const due = [...memory.failures].filter(([, { awaitsObject }]) => awaitsObject === true);
      if (due.length === 0) return memory;
      const failures = new Map(memory.failures);
      for (const [step, failure] of due) failures.set(step, { ...failure, retryAt: event.monotonic });
      return { ...memory, failures };
    }
    case "hinted":
    case "touched":
    case "inspected":
    case "rechecked":
      return withInspection(memory, event);
    case "messagesRead":
      if (memory.messages === event.messages || memory.messages.size + event.messages.size === 0) return memory;
      return { ...memory, messages: event.messages };
    case "stopBegan": {
      const stops = withStop(memory.stops, event);
      return stops === memory.stops ? memory : { ...memory, stops };
    }
    case "stopsObserved": {
      const left = [...memory.stops].filter(([id]) => event.alive.has(id));
      return left.length === memory.stops.size ? memory : { ...memory, stops: new Map(left) };
    }
    case "reclaimRequested":
      return memory.reclaim === "none" ? { ...memory, reclaim: "requested" } : memory;
    case "roundBegan":
      return memory.reclaim === "requested" ? { ...memory, reclaim: "underWay" } : memory;
    case "roundEnded":
      return afterRound(memory, event);
  }
}

function withoutFailure(memory: WorkerMemory, step: string): WorkerMemory {
  if (!memory.failures.has(step)) return memory;
  const failures = new Map(memory.failures);
  failures.delete(step);
  return { ...memory, failures };
}

type InspectionEvent = Extract<MemoryEvent, { kind: "hinted" | "touched" | "inspected" | "rechecked" }>;

function withInspection(memory: WorkerMemory, event: InspectionEvent): WorkerMemory {
  const { inspection } = memory;
  switch (event.kind) {
    case "hinted":
      return { ...memory, inspection: { ...inspection, rechecks: RECHECK_MS.length } };
    case "touched":
      return inspection.mayHaveTraces ? memory : { ...memory, inspection: { ...inspection, mayHaveTraces: true } };
    case "inspected": {
      const { fingerprint } = event;
      if (fingerprint === inspection.fingerprint) return memory;
      return { ...memory, inspection: { ...inspection, fingerprint, rechecks: 0 } };
    }
    case "rechecked":
      if (inspection.rechecks === 0) return memory;
      return { ...memory, inspection: { ...inspection, rechecks: inspection.rechecks - 1 } };
  }
}

/**
 * A broken-off round says nothing about faults. A reclaim is over after a round that began after it was requested,
 * unless the phase changed: dead containers may go only once the pod is seen to be over.
 */
function afterRound(memory: WorkerMemory, event: Extract<MemoryEvent, { kind: "roundEnded" }>): WorkerMemory {
  const { result, isPhaseChanged } = event;
  const faults = result === "done" ? 0 : memory.faults + (result === "faulted" ? 1 : 0);
  const afterwards = isPhaseChanged ? "requested" : "none";
  const reclaim = memory.reclaim === "underWay" ? afterwards : memory.reclaim;
  return faults === memory.faults && reclaim === memory.reclaim ? memory : { ...memory, faults, reclaim };
}

function withStop(
  stops: WorkerMemory["stops"],
  { containerId, gracePeriod, monotonic }: Extract<MemoryEvent, { kind: "stopBegan" }>,
): WorkerMemory["stops"] {
  const begun = stops.get(containerId);
  if (begun !== undefined && gracePeriod >= begun.gracePeriod) return stops;
  const until = Math.min(begun?.until ?? Number.POSITIVE_INFINITY, monotonic + gracePeriod) as MonotonicMs;
  return new Map(stops).set(containerId, { gracePeriod, until });
}
