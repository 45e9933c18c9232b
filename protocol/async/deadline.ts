import { ignore, PicoletError } from "../errors.ts";
import type { Clock, Millis } from "../ports.ts";
import { cancelled, joinSignals, WaitCancel } from "./abort.ts";

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
  const timer = new WaitCancel();
  const end = (): void => {
    timer.abort();
    joined[Symbol.dispose]();
  };
  return new Promise<T>((resolve, reject) => {
    const fail = (error: unknown): void => {
      end();
      reject(error);
      joined.abort();
    };
    const expire = (): void => {
      const message = `cannot ${what} within ${duration / 1000} s`;
      fail(new PicoletError("deadline_exceeded", message, { retryable: true }));
    };
    joined.signal.addEventListener("abort", () => fail(cancelled(what)), { once: true });
    clock.sleep(duration, timer).then(expire, ignore("the task has settled"));
    const succeed = (value: T): void => {
      end();
      resolve(value);
    };
    try {
      task(joined.signal).then(succeed, fail);
    } catch (error) {
      fail(error);
    }
  });
}
