import { cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";

/**
 * Gives a task `grace` to finish after `signal` aborts: cut off at once, it would leave something that looks like a
 * failure.
 * @param signal if it aborts before the task began, the task never begins
 * @param life cancels the task at once
 * @throws what the task throws; `cancelled` if it never began
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
