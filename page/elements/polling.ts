/** Reads again while a page is seen. */

/** Resolves after `ms`, and not before the page can be seen. */
export function whenSeen(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      if (!signal.aborted && document.hidden) return;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(() => {
      document.addEventListener("visibilitychange", done);
      done();
    }, ms);
    signal.addEventListener("abort", done);
  });
}

/** Until `signal` aborts. @param task its failures go to `failed`, and it is tried again */
export async function repeat(
  intervalMs: number,
  task: (signal: AbortSignal) => Promise<void>,
  failed: (error: unknown) => void,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await task(signal);
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
    await whenSeen(intervalMs, signal);
  }
}
