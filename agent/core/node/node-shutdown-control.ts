/** Starts a graceful shutdown of the node, for the local API, signals and logind. `agent/node` implements it. */
export interface NodeShutdownControl {
  readonly isShuttingDown: boolean;
  /**
   * Ends all pods in the order of their priority; nothing new starts from then on.
   * @param why who says so, for the log
   * @returns when they have ended, or their time is over. Asked once more meanwhile, it waits for the same.
   * @throws `conflict` when no time is configured for it
   */
  begin(why: string): Promise<void>;
  /** The node comes back: it takes pods again, and static pods that were ended run again. */
  cancel(): Promise<void>;
}
