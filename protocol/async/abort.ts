import { PicoletError } from "../errors.ts";

export const cancelled = (what: string): PicoletError => new PicoletError("cancelled", `${what} was cancelled`);

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
