/** A value that changes over time, of which only the latest matters: a slow reader skips, it never queues. */
export interface Watch<T> {
  readonly current: T;
  /** Yields `current` at once, then the latest value after each change. Ends, without an error, when `signal` aborts. */
  changes(signal: AbortSignal): AsyncIterable<T>;
}

/** The writing side of a Watch. */
export class WatchSource<T> implements Watch<T> {
  #current: T;
  #version = 0;
  readonly #waiting = new Set<() => void>();

  constructor(initial: T) {
    this.#current = initial;
  }

  get current(): T {
    return this.#current;
  }

  set(value: T): void {
    this.#current = value;
    this.#version += 1;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  async *changes(signal: AbortSignal): AsyncIterable<T> {
    let seen = -1;
    while (!signal.aborted) {
      if (seen === this.#version) await this.#nextChange(signal);
      else {
        seen = this.#version;
        yield this.#current;
      }
    }
  }

  #nextChange(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener("abort", wake);
        this.#waiting.delete(wake);
        resolve();
      };
      signal.addEventListener("abort", wake, { once: true });
      this.#waiting.add(wake);
    });
  }
}
