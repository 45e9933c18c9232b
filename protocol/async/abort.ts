import { isCancelled, PicoletError } from "../errors.ts";
import type { CancelSignal } from "../ports.ts";

/** Without a stack, which no one reads: a cancellation is neither logged nor reported, and a stack takes 0.5 KiB. */
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

export interface JoinedSignal extends Disposable {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}

/**
 * A signal that aborts with any of `sources` or through its own `abort`. Disposing takes its listeners off again:
 * `AbortSignal.any` on a long-lived signal keeps every composite alive.
 */
export function joinSignals(...sources: readonly AbortSignal[]): JoinedSignal {
  const controller = new AbortController();
  const listeners = sources.map((source) => {
    const listener = (): void => controller.abort(source.reason);
    if (source.aborted) controller.abort(source.reason);
    else source.addEventListener("abort", listener, { once: true });
    return { source, listener };
  });
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason ?? cancelled("the task")),
    [Symbol.dispose]: () => {
      for (const { source, listener } of listeners) source.removeEventListener("abort", listener);
    },
  };
}

/** Resolves when `signal` aborts. */
export const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
