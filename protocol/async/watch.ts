import { wokenOrAborted } from "./abort.ts";

/** A value that changes over time, of which only the latest matters: a slow reader skips, it never queues. */
export interface Watch<T> {
  readonly current: T;
  /**
   * Yields `current` at once, then the latest value after each change. Ends, without an error, when `signal` aborts.
   */
  changes(signal: AbortSignal): AsyncIterable<T>;
}

/** A Watch that calls back too, for thousands of readers: an iteration that waits holds 2.3 KB (Node 24.21). */
export interface ListenableWatch<T> extends Watch<T> {
  /** Calls `listener` after each change, in the turn of it, until `signal` aborts. It must not throw. */
  listen(listener: () => void, signal: AbortSignal): void;
}

/** The writing side of a Watch. */
export class WatchSource<T> implements ListenableWatch<T> {
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

  listen(listener: () => void, signal: AbortSignal): void {
    if (signal.aborted) return;
    const wake = (): void => {
      this.#waiting.add(wake);
      listener();
    };
    this.#waiting.add(wake);
    signal.addEventListener("abort", () => this.#waiting.delete(wake), { once: true });
  }

  #nextChange(signal: AbortSignal): Promise<void> {
    return wokenOrAborted(signal, (wake) => {
      this.#waiting.add(wake);
      return () => this.#waiting.delete(wake);
    });
  }
}

/** @returns what fires when any of `sources` does, until `signal` aborts; its value counts their changes */
export function changesOf(sources: readonly ListenableWatch<unknown>[], signal: AbortSignal): Watch<number> {
  const all = new WatchSource(0);
  for (const source of sources) source.listen(() => all.set(all.current + 1), signal);
  return all;
}
