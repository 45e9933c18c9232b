/** Listeners that wait for an event, for a `Readiness` that events of the event loop decide. */
export class WakeListeners {
  readonly #waiting = new Set<() => void>();

  /** @returns a function that cancels the wait */
  readonly add = (wake: () => void): (() => void) => {
    this.#waiting.add(wake);
    return () => void this.#waiting.delete(wake);
  };

  /** Each of them once. */
  all(): void {
    const woken = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of woken) wake();
  }
}
