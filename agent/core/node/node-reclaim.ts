/** What the node itself can give back before any pod has to go. `agent/images` and `agent/main` implement it. */
export interface NodeReclaim {
  /**
   * Whether it is known by now what is in use: before that, right after the agent's start, next to nothing is given
   * back.
   */
  isReady(): boolean;
  /** Dead containers and sandboxes that are kept only for their logs and statuses, whatever their age. */
  deleteDeadContainers(signal: AbortSignal): Promise<void>;
  /**
   * Images, components and what was transpiled of them that nothing uses and nobody pinned, whatever their age.
   * @returns bytes freed
   */
  deleteUnusedImages(signal: AbortSignal): Promise<number>;
}
