/** Bounds a result's text; the document has the whole of it. */
const MAX_SHOWN_CHARACTERS = 400;

/** Says on standard error what is being measured, how long it took, and what came out. */
export async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  process.stderr.write(`${name} ...\n`);
  const result = await work();
  process.stderr.write(`${name}: ${((performance.now() - startedAt) / 1000).toFixed(1)} s${shown(result)}\n`);
  return result;
}

/** Formats figures as they come, so that a reader need not wait for the document; lists of samples are left out. */
function shown(result: unknown): string {
  if (result === undefined || Array.isArray(result)) return "";
  const text = JSON.stringify(result);
  return text === "{}" || text.length > MAX_SHOWN_CHARACTERS ? "" : `: ${text}`;
}
