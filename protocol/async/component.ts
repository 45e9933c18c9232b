/**
 * A long-running part of a program. `supervise` starts them in order and disposes of them in reverse, each with a
 * deadline; one that holds nothing beyond its `run` has nothing to dispose of.
 */
export interface Component extends Partial<AsyncDisposable> {
  readonly name: string;
  /**
   * Runs until `signal` aborts, then resolves or rejects with `cancelled`. Any other end ends the program as a fault.
   */
  run(signal: AbortSignal): Promise<void>;
}
