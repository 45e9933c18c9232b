/** A long-running part of the agent. `main` starts them in order and disposes of them in reverse, each with a deadline. */
export interface Component extends AsyncDisposable {
  readonly name: string;
  /** Runs until `signal` aborts; a rejection other than `cancelled` is a fault of the agent and ends it. */
  run(signal: AbortSignal): Promise<void>;
}
