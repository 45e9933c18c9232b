import { PicoletError } from "../errors.ts";
import type { Clock, Millis } from "../ports.ts";
import { cancelled, joinSignals } from "./abort.ts";

/**
 * A task that is given only so long. Its signal aborts at the deadline, and with `signal`; a task that does not heed it
 * is left behind, its late answer ignored.
 * @param what what it does, for the message: "inspect pod x".
 * @throws what the task throws, `deadline_exceeded` after `duration`, `cancelled` as soon as `signal` aborts.
 */
export function withDeadline<T>(
  clock: Clock,
  duration: Millis,
  what: string,
  task: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  if (signal.aborted) return Promise.reject(cancelled(what));
  const joined = joinSignals(signal);
  const result = new Promise<T>((resolve, reject) => {
    const expire = (): void => {
      const message = `cannot ${what} within ${duration / 1000} s`;
      reject(new PicoletError("deadline_exceeded", message, { retryable: true }));
    };
    joined.signal.addEventListener("abort", () => reject(cancelled(what)), { once: true });
    clock.sleep(duration, joined.signal).then(expire, () => undefined);
    task(joined.signal).then(resolve, reject);
  });
  return result.finally(() => {
    joined[Symbol.dispose]();
    joined.abort();
  });
}
