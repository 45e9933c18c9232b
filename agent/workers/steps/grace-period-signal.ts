import { cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";

/**
 * A task that is not cut off as soon as nobody wants what it does, but has `grace` more to come to its end: half done
 * it would leave something behind that looks like a failure.
 * @param signal when it aborts before the task began, nothing is done; later the task goes on for `grace`.
 * @param life cuts the task off at once.
 * @throws what the task throws, `cancelled` when it was not begun.
 */
export async function runWithGrace<T>(
  clock: Clock,
  grace: Millis,
  task: (signal: AbortSignal) => Promise<T>,
  { signal, life }: { readonly signal: AbortSignal; readonly life: AbortSignal },
): Promise<T> {
  if (signal.aborted) throw cancelled("the task");
  using joined = joinSignals(life);
  const cutOff = (): void => {
    clock.sleep(grace, joined.signal).then(
      () => joined.abort(),
      () => undefined,
    );
  };
  signal.addEventListener("abort", cutOff, { once: true });
  try {
    return await task(joined.signal);
  } finally {
    signal.removeEventListener("abort", cutOff);
    joined.abort();
  }
}
