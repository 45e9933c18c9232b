/**
 * The events of one watch, so that tests can wait for them: the latest state of each object, and every state before it.
 */
import type { KubeApi } from "./kube-api.ts";

/** Bounds the states of one object; older ones are dropped. No test needs more. */
const MAX_HISTORY = 500;

export interface Named {
  readonly metadata?: { readonly name?: string; readonly uid?: string };
}

export class LiveSet<T extends Named> {
  readonly #latest = new Map<string, T>();
  readonly #history = new Map<string, T[]>();
  readonly #gone = new Set<string>();
  readonly #waiters = new Set<() => void>();
  readonly #signal: AbortSignal;

  #listed = false;

  /** @param signal of the test; waits end with its reason */
  constructor(api: Pick<KubeApi, "watch">, path: string, signal: AbortSignal) {
    this.#signal = signal;
    const onList = (objects: readonly T[]): void => {
      const names = new Set(objects.map(({ metadata }) => metadata?.name));
      for (const object of this.all) if (!names.has(object.metadata?.name)) this.#note(true, object);
      for (const object of objects) this.#note(false, object);
      this.#listed = true;
      this.#wakeAll();
    };
    api.watch<T>(path, { onList, onChange: (deleted, object) => this.#note(deleted, object) }, signal);
  }

  /** It is known what is there, and what is not. */
  get listed(): boolean {
    return this.#listed;
  }

  #note(deleted: boolean, object: T): void {
    const name = object.metadata?.name ?? "";
    const history = this.#history.get(name) ?? [];
    history.push(object);
    if (history.length > MAX_HISTORY) history.shift();
    this.#history.set(name, history);
    if (deleted) {
      this.#latest.delete(name);
      this.#gone.add(object.metadata?.uid ?? "");
    } else this.#latest.set(name, object);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of [...this.#waiters]) wake();
  }

  get(name: string): T | undefined {
    return this.#latest.get(name);
  }

  /** Oldest first. */
  history(name: string): readonly T[] {
    return this.#history.get(name) ?? [];
  }

  get all(): readonly T[] {
    return [...this.#latest.values()];
  }

  isGone(uid: string): boolean {
    return this.#gone.has(uid);
  }

  /**
   * The first answer of `look` that is not undefined; it is asked again after each change. @throws the signal's reason
   */
  async find<R>(look: () => R | undefined): Promise<R> {
    return await new Promise<R>((resolve, reject) => {
      const settle = (verdict: () => void): void => {
        this.#waiters.delete(wake);
        this.#signal.removeEventListener("abort", onAbort);
        verdict();
      };
      const onAbort = (): void => settle(() => reject(this.#signal.reason));
      const wake = (): void => {
        try {
          const found = look();
          if (found !== undefined) settle(() => resolve(found));
        } catch (error) {
          settle(() => reject(error));
        }
      };
      this.#waiters.add(wake);
      this.#signal.addEventListener("abort", onAbort);
      if (this.#signal.aborted) onAbort();
      else wake();
    });
  }

  /** Resolves after `ms` in which `check`, asked now and after each change, did not throw. */
  async holds(ms: number, check: () => void): Promise<void> {
    const { promise: over, resolve } = Promise.withResolvers<void>();
    let isOver = false;
    const timer = setTimeout(() => {
      isOver = true;
      resolve();
      this.#wakeAll();
    }, ms);
    try {
      await this.find(() => {
        check();
        return isOver ? true : undefined;
      });
      await over;
    } finally {
      clearTimeout(timer);
    }
  }
}
