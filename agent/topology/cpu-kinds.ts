/** Cores of unequal speed (big.LITTLE): which a container gets, and which the system keeps. Pure. */
import { type CpuSet, intersectCpus, uniteCpus } from "./cpu-set.ts";
import type { Taken } from "./take-cpus.ts";

/**
 * CPUs whose capacities differ by less than a twentieth are of one kind, as for the kernel's scheduler: two clusters of
 * the same cores may be clocked a little differently.
 */
const SAME_KIND = 0.95;

/** By capacity, the fastest first; one kind where the kernel does not report the capacity of every CPU. */
export function cpuKinds(cpus: readonly number[], capacities: ReadonlyMap<number, number>): readonly CpuSet[] {
  if (!cpus.every((cpu) => capacities.has(cpu))) return [new Set(cpus)];
  const capacityOf = (cpu: number): number => capacities.get(cpu) ?? 0;
  const kinds: { readonly greatest: number; readonly cpus: Set<number> }[] = [];
  for (const cpu of cpus.toSorted((left, right) => capacityOf(right) - capacityOf(left) || left - right)) {
    const kind = kinds.at(-1);
    if (kind !== undefined && capacityOf(cpu) >= kind.greatest * SAME_KIND) kind.cpus.add(cpu);
    else kinds.push({ greatest: capacityOf(cpu), cpus: new Set([cpu]) });
  }
  return kinds.map((each) => each.cpus);
}

/**
 * Takes all CPUs of the first kind that has enough of them, so that a container's threads are equally fast. Where no
 * kind has enough, takes those of each kind in turn.
 * @param kinds the preferred one first
 * @param take chooses among CPUs of one kind
 */
export function takeByKind(
  kinds: readonly CpuSet[],
  free: CpuSet,
  count: number,
  take: (free: CpuSet, count: number) => Taken,
): Taken {
  if (kinds.length < 2 || count > free.size) return take(free, count);
  const freeByKind = kinds.map((kind) => intersectCpus(free, kind));
  const enough = freeByKind.find(({ size }) => size >= count);
  if (enough !== undefined) return take(enough, count);
  const parts: CpuSet[] = [];
  let needed = count;
  for (const own of freeByKind) {
    const part = take(own, Math.min(own.size, needed));
    if (!part.ok) return part;
    parts.push(part.cpus);
    needed -= part.cpus.size;
  }
  return { ok: true, cpus: uniteCpus(...parts) };
}
