import { aborted, type JoinedSignal } from "@picolet/protocol/async/abort.ts";
import { ignore, isCancelled } from "@picolet/protocol/errors.ts";

/** Runs tasks that live and end together: an error of one ends all. A cancellation is no error. */
export class TaskGroup {
  readonly #running = new Set<Promise<void>>();
  readonly #fault = Promise.withResolvers<never>();
  #life: JoinedSignal | undefined;

  constructor() {
    this.#fault.promise.catch(ignore("those who wait for the group get it"));
  }

  open(life: JoinedSignal): void {
    this.#life = life;
  }

  /** Aborts when all tasks must end; `undefined` before `open` and after the end. */
  get signal(): AbortSignal | undefined {
    return this.#life?.signal.aborted === false ? this.#life.signal : undefined;
  }

  start(task: Promise<void>): void {
    const guarded = task
      .catch((error: unknown) => {
        if (!isCancelled(error)) this.#fault.reject(error);
      })
      .finally(() => this.#running.delete(guarded));
    this.#running.add(guarded);
  }

  /** Resolves when the group's signal has aborted and all tasks have ended. @throws the first error but a cancellation */
  async ended(): Promise<void> {
    const life = this.#life;
    if (life === undefined) return;
    try {
      await Promise.race([aborted(life.signal), this.#fault.promise]);
    } finally {
      await this.close();
    }
  }

  async close(): Promise<void> {
    this.#life?.abort();
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
