/** Reclaims disk space of the node before pods are evicted. `agent/images` and `agent/main` implement it. */
export interface NodeReclaim {
  /**
   * @returns whether the node knows what is in use. Before that, right after the agent's start, almost nothing is
   * reclaimed.
   */
  isReady(): boolean;
  /** Removes dead containers and sandboxes kept only for their logs and statuses, of any age. */
  deleteDeadContainers(signal: AbortSignal): Promise<void>;
  /**
   * Removes images, components and transpiled code that are neither used nor pinned, of any age.
   * @returns bytes freed
   */
  deleteUnusedImages(signal: AbortSignal): Promise<number>;
}
