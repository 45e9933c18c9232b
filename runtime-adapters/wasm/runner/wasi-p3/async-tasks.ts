/** The running tasks of one instance of a component of WASI 0.3, and the waits for them. */

type Reject = (error: unknown) => void;

/** Uncaught errors, which are the component's. */
export const FAULTS = ["uncaughtException", "unhandledRejection"] as const;

export class AsyncTasks {
  /** Rejects waits for the component. */
  readonly #waiting = new Set<Reject>();
  /** Rejects the component's stacks that are set aside. */
  readonly #stacks = new Set<Reject>();
  #running = 0;
  #atRest = Promise.withResolvers<void>();
  #isClosed = false;

  /** An export was called. @param exit resolves when it has ended, which may be long after it has returned */
  began(exit: Promise<void>): void {
    this.#running += 1;
    void exit.then(() => {
      this.#running -= 1;
      if (this.#running > 0) return;
      this.#atRest.resolve();
      this.#atRest = Promise.withResolvers();
    });
  }

  /** Resolves when nothing of it runs any more. */
  async atRest(): Promise<void> {
    if (this.#running > 0) await this.#atRest.promise;
  }

  /** @returns as `promise` does; rejects when the instance can do nothing any more */
  async unlessBroken<T>(promise: Promise<T>): Promise<T> {
    // One of its own for each: one that lives as long as the instance would keep all that ever waited for it.
    const { promise: broken, reject } = Promise.withResolvers<never>();
    this.#waiting.add(reject);
    try {
      return await Promise.race([promise, broken]);
    } finally {
      this.#waiting.delete(reject);
    }
  }

  fail(error: unknown): void {
    for (const reject of this.#waiting) reject(error);
  }

  /**
   * Ends a wait of a stack when the instance is closed. V8 would keep a stack that never continues, and the instance.
   */
  unlessClosed(result: unknown): unknown {
    if (!(result instanceof Promise)) return result;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#stacks.add(reject);
    const settled =
      (settle: (value: unknown) => void) =>
      (value: unknown): void => {
        this.#stacks.delete(reject);
        settle(value);
      };
    result.then(settled(resolve), settled(reject));
    if (this.#isClosed) reject(closed());
    return promise;
  }

  /** Ends all waits. */
  close(): void {
    this.#isClosed = true;
    for (const reject of this.#stacks) reject(closed());
    this.#stacks.clear();
  }
}

const closed = (): Error => new Error("the instance was closed");
