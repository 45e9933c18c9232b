/**
 * A long-running part of a program. `supervise` starts components in order and disposes of them in reverse, each with a
 * deadline. A component that holds nothing after its `run` needs no dispose method.
 */
export interface Component extends Partial<AsyncDisposable> {
  readonly name: string;
  /**
   * Runs until `signal` aborts, then resolves, or rejects with `cancelled`: `supervise` handles that, and no loop
   * catches it. Any other end is a fault that ends the program.
   */
  run(signal: AbortSignal): Promise<void>;
}
