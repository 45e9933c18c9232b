/** One piece of work for all who want it at the same time. */

import type { Clock, Millis, MonotonicMs } from "../ports.ts";
import { checkCancelled, rejectOnAbort } from "./abort.ts";

/** Runs one task for all callers that join while it runs. The task is cancelled when the last caller has left. */
export class SharedTask<T> {
  readonly #what: string;
  #underway: { readonly result: Promise<T>; readonly stop: AbortController; waiting: number } | undefined;

  /** @param what for the message of a cancellation */
  constructor(what: string) {
    this.#what = what;
  }

  get isUnderway(): boolean {
    return this.#underway !== undefined;
  }

  /** @throws what `task` throws; `cancelled` as soon as `signal` aborts, even if other callers still wait */
  async join(task: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    checkCancelled(signal, this.#what);
    const run = this.#underway ?? this.#begin(task);
    run.waiting += 1;
    try {
      return await rejectOnAbort(run.result, signal, this.#what);
    } finally {
      run.waiting -= 1;
      if (run.waiting === 0 && this.#underway === run) {
        this.#underway = undefined;
        run.stop.abort();
      }
    }
  }

  #begin(task: (signal: AbortSignal) => Promise<T>) {
    const stop = new AbortController();
    const run = { result: task(stop.signal), stop, waiting: 0 };
    const over = (): void => {
      if (this.#underway === run) this.#underway = undefined;
    };
    run.result.then(over, over);
    this.#underway = run;
    return run;
  }
}

/** Caches one sample and shares it between callers until it is older than `maxAge`. */
export class SharedSample<T> {
  readonly #clock: Clock;
  readonly #take: (signal: AbortSignal) => Promise<T>;
  readonly #task: SharedTask<T>;
  #last: { readonly at: MonotonicMs; readonly value: T } | undefined;

  constructor({ clock }: { readonly clock: Clock }, what: string, take: (signal: AbortSignal) => Promise<T>) {
    this.#clock = clock;
    this.#take = take;
    this.#task = new SharedTask(what);
  }

  /** @param maxAge since it was begun; 0: one that is under way, or a new one */
  async get(maxAge: Millis, signal: AbortSignal): Promise<T> {
    const last = this.#last;
    if (last !== undefined && maxAge > 0 && this.#clock.monotonic() - last.at <= maxAge) return last.value;
    return await this.#task.join((stop) => this.#sample(stop), signal);
  }

  async #sample(stop: AbortSignal): Promise<T> {
    const at = this.#clock.monotonic();
    const value = await this.#take(stop);
    this.#last = { at, value };
    return value;
  }
}
