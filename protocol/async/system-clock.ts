import type { CancelSignal, Clock, Millis, MonotonicMs } from "../ports.ts";
import { cancelled } from "./abort.ts";

/** A Node timer fires at once when asked for more than this many milliseconds (2^31 - 1). */
const MAX_TIMER_MS = 2_147_483_647;

/** The machine's own time. Only `main`, programs and benches use it; everything else is handed a Clock. */
export const systemClock: Clock = {
  monotonic: () => performance.now() as MonotonicMs,
  wall: () => new Date(),
  sleep: (duration: Millis, signal: CancelSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(cancelled("the wait"));
        return;
      }
      const onAbort = (): void => {
        signal.removeEventListener("abort", onAbort);
        clearTimeout(timer);
        reject(cancelled("the wait"));
      };
      const timer = setTimeout(
        () => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        },
        Math.min(duration, MAX_TIMER_MS),
      );
      signal.addEventListener("abort", onAbort);
    }),
};
