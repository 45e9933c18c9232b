import { isCancelled, PicoletError } from "../errors.ts";
import type { CancelSignal } from "../ports.ts";

/** Makes the error without a stack: a cancellation is neither logged nor reported, and a stack takes 0.5 KiB. */
export function cancelled(what: string): PicoletError {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return new PicoletError("cancelled", `${what} was cancelled`);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Passes every other error on: `await task.catch(ignoreCancelled)`. */
export function ignoreCancelled(error: unknown): void {
  if (!isCancelled(error)) throw error;
}

/** Cancels one wait. An AbortController with its signal does the same, and takes 1.2 KiB. */
export class WaitCancel implements CancelSignal {
  #aborted = false;
  #listener: (() => void) | undefined;

  get aborted(): boolean {
    return this.#aborted;
  }

  addEventListener(_type: "abort", listener: () => void): void {
    this.#listener = listener;
  }

  removeEventListener(): void {
    this.#listener = undefined;
  }

  abort(): void {
    const listener = this.#listener;
    this.#aborted = true;
    this.#listener = undefined;
    listener?.();
  }
}

/** Called before and between the steps of `what`. @throws `cancelled` */
export function checkCancelled(signal: AbortSignal, what: string): void {
  if (signal.aborted) throw cancelled(what);
}

class AbortListener implements Disposable {
  readonly #signal: AbortSignal;
  readonly #act: () => void;

  constructor(signal: AbortSignal, act: () => void) {
    this.#signal = signal;
    this.#act = act;
    if (signal.aborted) act();
    else signal.addEventListener("abort", act, { once: true });
  }

  [Symbol.dispose](): void {
    this.#signal.removeEventListener("abort", this.#act);
  }
}

/**
 * Calls `act` when `signal` aborts, or now if it has aborted already. Disposing removes the listener: a long-lived
 * signal would keep `act` and all that it refers to.
 */
export const onAbort = (signal: AbortSignal, act: () => void): Disposable => new AbortListener(signal, act);

/**
 * Resolves when `wake` is called or `signal` aborts.
 * @param register hands `wake` to its caller and returns what removes it there; must not call `wake` itself
 */
export function wokenOrAborted(signal: AbortSignal, register: (wake: () => void) => () => void): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = (): void => {
      signal.removeEventListener("abort", wake);
      remove();
      resolve();
    };
    const remove = register(wake);
    signal.addEventListener("abort", wake, { once: true });
  });
}

/** Settles with `task`, or rejects with `cancelled` as soon as `signal` aborts. The task itself continues. */
export function rejectOnAbort<T>(task: Promise<T>, signal: AbortSignal, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const listener = onAbort(signal, () => reject(cancelled(what)));
    task.then(resolve, reject).finally(() => listener[Symbol.dispose]());
  });
}

export interface JoinedSignal extends Disposable {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}

/**
 * Makes a signal that aborts with any of `sources` or through its own `abort`. Disposing removes its listeners;
 * `AbortSignal.any` on a long-lived signal keeps every composite alive.
 */
export function joinSignals(...sources: readonly AbortSignal[]): JoinedSignal {
  const controller = new AbortController();
  const listeners = sources.map((source) => onAbort(source, () => controller.abort(source.reason)));
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason ?? cancelled("the task")),
    [Symbol.dispose]: () => {
      for (const listener of listeners) listener[Symbol.dispose]();
    },
  };
}

/** Resolves when `signal` aborts. */
export const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
