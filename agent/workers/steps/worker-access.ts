import type { Failures } from "../../plan/worker-memory.ts";
import type { WorkerEvent, WorkerState } from "../../plan/worker-state.ts";

/** One worker's state, for the parts of the worker that have none of their own. */
export interface WorkerAccess {
  readonly state: WorkerState;
  /** Changes the state by `transition`. */
  dispatch(event: WorkerEvent): void;
}

const NO_FAILURES: Failures = new Map();

export const failuresOf = (state: WorkerState): Failures => (state.kind === "gone" ? NO_FAILURES : state.failures);
