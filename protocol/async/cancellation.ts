import { PicoletError } from "../errors.ts";

const cancelled = (what: string): PicoletError => new PicoletError("cancelled", `${what} was cancelled`);

/** Before and between the steps of `what`. */
export function checkCancelled(signal: AbortSignal, what: string): void {
  if (signal.aborted) throw cancelled(what);
}

/** Settles with `task`, or rejects with `cancelled` as soon as `signal` aborts; the task itself goes on. */
export async function rejectOnAbort<T>(task: Promise<T>, signal: AbortSignal, what: string): Promise<T> {
  checkCancelled(signal, what);
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(cancelled(what));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([task, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
