/** Real time, and only when something is broken. */
const PATIENCE_MS = 60_000;
const LOOK_INTERVAL_MS = 20;

/**
 * For what others do in their own time, without telling: a process that ends, a file that it closes.
 * @param look what is not as it should be
 * @returns what of that is left when it has become nothing, or patience has come to its end
 */
export async function settled<T>(look: () => readonly T[] | Promise<readonly T[]>): Promise<readonly T[]> {
  const enough = performance.now() + PATIENCE_MS;
  for (;;) {
    const wrong = await look();
    if (wrong.length === 0 || performance.now() > enough) return wrong;
    await new Promise((resolve) => setTimeout(resolve, LOOK_INTERVAL_MS));
  }
}
