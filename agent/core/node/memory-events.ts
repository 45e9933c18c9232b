/** Tells when pods have hit a limit of memory, where the kernel does so. */
export interface MemoryEvents extends Disposable {
  /**
   * Calls `told` from now on. Cheap when it does already: what it listens to comes and goes, so that it has to be
   * called again.
   */
  listen(told: () => void): void;
}
