import { ascending, type CpuSet } from "./cpu-set.ts";

/** The place of a CPU. */
export interface CpuPlace {
  readonly numaNode: number;
  /** On many boards a cluster of cores. */
  readonly socket: number;
  /** The first of the threads that share it: unique on the machine, as the kernel's own numbers are not. */
  readonly core: number;
  /** The last level of cache that not all CPUs of the NUMA node share; the socket where there is none. */
  readonly uncoreCache: number;
}

export type Level = keyof CpuPlace;

/** CPUs by what they share. */
export class CpuGroups {
  readonly places: ReadonlyMap<number, CpuPlace>;
  /** CPUs that are equally fast, the fastest first. */
  readonly kinds: readonly CpuSet[];

  /** @param capacities as the kernel reports them, up to 1024; those of a machine of equal CPUs may be missing */
  constructor(places: ReadonlyMap<number, CpuPlace>, capacities: ReadonlyMap<number, number> = new Map()) {
    this.places = places;
    this.kinds = cpuKinds([...places.keys()], capacities);
  }

  get size(): number {
    return this.places.size;
  }

  /** In ascending order. */
  get all(): readonly number[] {
    return ascending(this.places.keys());
  }

  only(cpus: CpuSet): CpuGroups {
    return new CpuGroups(new Map([...this.places].filter(([cpu]) => cpus.has(cpu))));
  }

  /**
   * Groups of that level that have CPUs here, in ascending order; of those within another group alone, if one is named.
   */
  ids(level: Level, within?: { readonly level: Level; readonly id: number }): readonly number[] {
    const ids = new Set<number>();
    for (const place of this.places.values()) {
      if (within === undefined || place[within.level] === within.id) ids.add(place[level]);
    }
    return ascending(ids);
  }

  /** In ascending order. */
  cpus(level: Level, ...ids: readonly number[]): readonly number[] {
    return ascending([...this.places].flatMap(([cpu, place]) => (ids.includes(place[level]) ? [cpu] : [])));
  }

  /** The number of CPUs of such a group; where groups differ, the average, rounded down. */
  perGroup(level: Level): number {
    return Math.floor(this.size / Math.max(1, this.ids(level).length));
  }
}

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
