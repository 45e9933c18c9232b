import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";

/**
 * Waits for the end of a component's `run` as `supervise` does: a cancellation is an end like any other. Called when
 * the run begins, so that a cancellation is never an unhandled rejection.
 */
export const endOfRun = (run: Promise<void>): Promise<void> => run.catch(ignoreCancelled);
