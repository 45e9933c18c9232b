import { cancelled, joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore } from "@picolet/protocol/errors.ts";
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
  using _cutOff = onAbort(signal, () => {
    clock.sleep(grace, joined.signal).then(() => joined.abort(), ignore("the task has settled"));
  });
  try {
    return await task(joined.signal);
  } finally {
    joined.abort();
  }
}
