import { cancelled } from "@picolet/protocol/async/abort.ts";
import type { WorkerState } from "../plan/worker-state.ts";

/** @param isEnded whether the worker's run is over, although something of the pod may be left */
export type Goal = (state: WorkerState, isEnded: boolean) => boolean;

/** Nothing of the pod runs any more. */
export const isOver: Goal = (state) =>
  state.kind === "gone" || ((state.kind === "finished" || state.kind === "terminating") && state.isOver);

/** Nothing of the pod runs in the runtime that it leaves; also when it does not leave after all. */
export const hasLeft: Goal = (state, isEnded) =>
  isEnded || (state.kind !== "waiting" && state.kind !== "active") || state.leave?.hasLeft !== false;

/** No dead container is kept only for its logs. */
export const isReclaimed: Goal = (state, isEnded) => isEnded || state.kind === "gone" || state.reclaim === "none";

interface Waiter {
  readonly goal: Goal;
  readonly resolve: () => void;
}

/** The promises of callers that wait for a state of one worker: the evictor, the node's shutdown, the collector. */
export class StateWaiters {
  readonly #waiting = new Set<Waiter>();

  /** Resolves those whose goal is reached. */
  settle(state: WorkerState, isEnded = false): void {
    for (const waiter of this.#waiting) {
      if (!waiter.goal(state, isEnded)) continue;
      this.#waiting.delete(waiter);
      waiter.resolve();
    }
  }

  /** @throws `cancelled` alone */
  wait(goal: Goal, state: WorkerState, signal: AbortSignal): Promise<void> {
    if (goal(state, false)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#waiting.delete(waiter);
        reject(cancelled("the wait for a pod's end"));
      };
      const waiter: Waiter = {
        goal,
        resolve: () => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        },
      };
      this.#waiting.add(waiter);
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
    });
  }
}
