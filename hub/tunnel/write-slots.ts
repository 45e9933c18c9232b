import { cancelled } from "../../protocol/async/abort.ts";

/**
 * How many writes of the whole fleet are under way at once. Whoever comes later waits in order; each session has at most
 * a few that wait, so that the queue is as long as there are sessions.
 */
export class WriteSlots {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(slots: number) {
    this.#free = slots;
  }

  /** Runs `write` when there is a slot. @throws what it throws; `cancelled` when `signal` aborts before */
  async run<T>(write: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#take(signal);
    try {
      return await write();
    } finally {
      this.#give();
    }
  }

  #take(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(cancelled("the write"));
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const wake = (): void => {
        signal.removeEventListener("abort", giveUp);
        resolve();
      };
      const giveUp = (): void => {
        this.#waiting.delete(wake);
        reject(cancelled("the write"));
      };
      signal.addEventListener("abort", giveUp, { once: true });
      this.#waiting.add(wake);
    });
  }

  #give(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
