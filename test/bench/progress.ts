/** Says on standard error what is being measured and how long it took. */
export async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  process.stderr.write(`${name} ... `);
  const result = await work();
  process.stderr.write(`${((performance.now() - startedAt) / 1000).toFixed(1)} s\n`);
  return result;
}
