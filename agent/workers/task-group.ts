import { aborted, type JoinedSignal } from "@picolet/protocol/async/abort.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";

/** Tasks that live and end together: an error of one ends all. Cancellation is none. */
export class TaskGroup {
  readonly #running = new Set<Promise<void>>();
  readonly #fault = Promise.withResolvers<never>();
  #life: JoinedSignal | undefined;

  constructor() {
    this.#fault.promise.catch(() => undefined);
  }

  open(life: JoinedSignal): void {
    this.#life = life;
  }

  /** Aborts when all are to end; `undefined` before `open` and after the end. */
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

  /** When the group's signal aborts, and all tasks with it. @throws the first error that is not a cancellation. */
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
