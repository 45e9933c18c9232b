/** Sets of CPUs, and of other small numbers. Pure. */
export type CpuSet = ReadonlySet<number>;

export const NO_CPUS: CpuSet = new Set();

export const uniteCpus = (...sets: readonly Iterable<number>[]): CpuSet => new Set(sets.flatMap((each) => [...each]));

export const subtractCpus = (left: Iterable<number>, right: CpuSet): CpuSet =>
  new Set([...left].filter((cpu) => !right.has(cpu)));

export const intersectCpus = (left: Iterable<number>, right: CpuSet): CpuSet =>
  new Set([...left].filter((cpu) => right.has(cpu)));

export const isSameSet = (left: CpuSet, right: CpuSet): boolean =>
  left.size === right.size && intersectCpus(left, right).size === left.size;

export const ascending = (numbers: Iterable<number>): number[] => [...numbers].sort((left, right) => left - right);

/** As the kernel and the kubelet write it: "0-3,8"; "" for none. */
export function formatCpuSet(cpus: Iterable<number>): string {
  const runs: [first: number, last: number][] = [];
  for (const cpu of ascending(cpus)) {
    const run = runs.at(-1);
    if (run !== undefined && run[1] === cpu - 1) run[1] = cpu;
    else runs.push([cpu, cpu]);
  }
  return runs.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}
