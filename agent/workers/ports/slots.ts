import { cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";

/**
 * Bounds how many tasks run at once; the others wait in order. A task that takes longer than `patience` continues, but
 * frees its slot, so that tasks that hang never stop the rest.
 */
export class Slots {
  readonly #clock: Clock;
  readonly #patience: Millis;
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(components: { readonly clock: Clock }, init: { readonly count: number; readonly patience: Millis }) {
    this.#clock = components.clock;
    this.#free = init.count;
    this.#patience = init.patience;
  }

  /** @throws what `task` throws; `cancelled` when `signal` aborts before its turn. */
  async use<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#take(signal);
    using done = joinSignals(signal);
    // Settles in any case, after `patience` or at the task's end; both free the slot.
    this.#clock.sleep(this.#patience, done.signal).then(
      () => this.#give(),
      () => this.#give(),
    );
    try {
      return await task();
    } finally {
      done.abort();
    }
  }

  #give(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }

  #take(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(cancelled("the wait for a turn"));
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const turn = (): void => {
        signal.removeEventListener("abort", giveUp);
        resolve();
      };
      const giveUp = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(turn), 1);
        reject(cancelled("the wait for a turn"));
      };
      this.#waiting.push(turn);
      signal.addEventListener("abort", giveUp, { once: true });
    });
  }
}
