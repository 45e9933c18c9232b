import type { Millis } from "@picolet/protocol/ports.ts";

/** Starts a graceful shutdown of the node, for the local API, signals and logind. `agent/node` implements it. */
export interface NodeShutdownControl {
  readonly isShuttingDown: boolean;
  /**
   * Ends all pods in the order of their priority; nothing new starts from then on.
   * @param why who says so, for the log
   * @param period the time of all pods but critical ones, and as much for these, in place of the configured one
   * @returns when they have ended, or their time is over. Asked once more meanwhile, it waits for the same.
   * @throws `conflict` when no time is configured for it, and none is given
   */
  begin(why: string, period?: Millis): Promise<void>;
  /** The node comes back: it takes pods again, and static pods that were ended run again. */
  cancel(): Promise<void>;
}
