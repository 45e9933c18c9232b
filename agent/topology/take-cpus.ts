/**
 * Chooses the free CPUs of a container as the kubelet does: as many as possible that share a core, cache or socket.
 * Pure.
 */
import type { CpuGroups, Level } from "./cpu-groups.ts";
import { type CpuSet, intersectCpus, NO_CPUS, subtractCpus, uniteCpus } from "./cpu-set.ts";

export interface TakeOptions {
  /** CPUs of other cores before the other threads of one. */
  readonly spread: boolean;
  readonly preferUncoreCache: boolean;
}

export type Taken = { readonly ok: true; readonly cpus: CpuSet } | { readonly ok: false; readonly problem: string };

export const tooFewCpus = (requested: number, available: number): Taken => ({
  ok: false,
  problem: `not enough cpus available to satisfy request: requested=${requested}, available=${available}`,
});

/** Whole NUMA nodes and sockets first, then whole cores, then what is left of cores that are in use already. */
export function takePacked(machine: CpuGroups, free: CpuSet, count: number, options: TakeOptions): Taken {
  if (count < 1) return { ok: true, cpus: NO_CPUS };
  if (count > free.size) return tooFewCpus(count, free.size);
  const taker = new Taker(machine, free, count);
  const [wide, narrow]: readonly [Level, Level] = taker.nodesAreWider ? ["numaNode", "socket"] : ["socket", "numaNode"];
  taker.takeWhole(wide, taker.groups(wide));
  taker.takeWhole(narrow, taker.groups(narrow));
  if (options.preferUncoreCache) taker.takeUncoreCaches();
  if (!options.spread) taker.takeWhole("core", taker.cores());
  taker.takeRest(options.spread);
  return { ok: true, cpus: taker.taken };
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

class Taker {
  /** A NUMA node has one socket or more, not the other way round. */
  readonly nodesAreWider: boolean;
  readonly #machine: CpuGroups;
  #free: CpuGroups;
  #needed: number;
  #taken: CpuSet = NO_CPUS;

  constructor(machine: CpuGroups, free: CpuSet, needed: number) {
    this.#machine = machine;
    this.#free = machine.only(free);
    this.#needed = needed;
    this.nodesAreWider = machine.ids("socket").length >= machine.ids("numaNode").length;
  }

  get taken(): CpuSet {
    return this.#taken;
  }

  /** NUMA nodes or sockets that have free CPUs, those with the fewest first. */
  groups(level: "numaNode" | "socket"): readonly number[] {
    const [wide, narrow] = this.nodesAreWider ? (["numaNode", "socket"] as const) : (["socket", "numaNode"] as const);
    const outer = this.#byFreeCpus(wide, this.#free.ids(wide));
    if (level === wide) return outer;
    return outer.flatMap((id) => this.#byFreeCpus(narrow, this.#free.ids(narrow, { level: wide, id })));
  }

  cores(): readonly number[] {
    const level = this.nodesAreWider ? "socket" : "numaNode";
    return this.groups(level).flatMap((id) => this.#byFreeCpus("core", this.#free.ids("core", { level, id })));
  }

  /** Takes the groups whose CPUs are all free, except groups larger than what is still needed. */
  takeWhole(level: Level, ids: readonly number[]): void {
    for (const id of ids) {
      const cpus = this.#machine.cpus(level, id);
      const isFree = this.#free.cpus(level, id).length === cpus.length;
      if (isFree && this.#needed >= cpus.length) this.#take(cpus);
    }
  }

  takeUncoreCaches(): void {
    const size = this.#machine.perGroup("uncoreCache");
    for (const cache of this.#uncoreCaches()) {
      if (this.#needed >= size) this.takeWhole("uncoreCache", this.#uncoreCaches());
      if (this.#needed < 1) return;
      this.#takePartOf(cache);
      if (this.#needed < 1) return;
    }
  }

  takeRest(spread: boolean): void {
    while (this.#needed > 0) {
      const [next] = spread ? this.#acrossCores() : this.#withinCores();
      if (next === undefined) return;
      this.#take([next]);
    }
  }

  /** Only when that is all that is needed. */
  #takePartOf(cache: number): void {
    const threads = this.#machine.perGroup("core");
    const cores = this.#free.ids("core", { level: "uncoreCache", id: cache });
    let cpus = this.#free.cpus("core", ...cores.slice(0, Math.ceil(this.#needed / threads)));
    if (this.#needed % 2 !== 0 && threads > 1 && cpus.length > this.#needed) cpus = cpus.slice(0, -1);
    if (cpus.length === this.#needed) this.#take(cpus);
  }

  #uncoreCaches(): readonly number[] {
    return this.groups("numaNode").flatMap((id) =>
      this.#byFreeCpus("uncoreCache", this.#free.ids("uncoreCache", { level: "numaNode", id })),
    );
  }

  #withinCores(): readonly number[] {
    return this.cores().flatMap((core) => this.#free.cpus("core", core));
  }

  #acrossCores(): readonly number[] {
    return this.groups("socket").flatMap((socket) => this.#free.cpus("socket", socket));
  }

  #byFreeCpus(level: Level, ids: readonly number[]): readonly number[] {
    const sizes = new Map(ids.map((id) => [id, this.#free.cpus(level, id).length]));
    return ids.toSorted((left, right) => (sizes.get(left) ?? 0) - (sizes.get(right) ?? 0) || left - right);
  }

  #take(cpus: Iterable<number>): void {
    const chosen = new Set(cpus);
    this.#taken = uniteCpus(this.#taken, chosen);
    this.#free = this.#free.only(subtractCpus(this.#free.places.keys(), chosen));
    this.#needed -= chosen.size;
  }
}

export interface DistributeOptions extends TakeOptions {
  /** CPUs that are to stay together: a core's threads, or 1. */
  readonly groupSize: number;
}

/** As evenly as can be from as few NUMA nodes as can be, so that what is left of the nodes is as even. */
export function takeDistributed(machine: CpuGroups, free: CpuSet, count: number, options: DistributeOptions): Taken {
  const { groupSize } = options;
  const packed = { ...options, preferUncoreCache: false };
  if (count < 1 || count > free.size || count % groupSize !== 0) return takePacked(machine, free, count, packed);
  const left = machine.only(free);
  const order = new Taker(machine, free, count).groups("numaNode");
  const groupsPerNode = Math.ceil(Math.ceil(machine.size / groupSize) / machine.ids("numaNode").length);
  const groups = Math.ceil(count / groupSize);
  for (let size = Math.ceil(groups / groupsPerNode); size <= Math.min(groups, order.length); size += 1) {
    const best = bestDistribution(left, order, { size, count, groupSize });
    if (best !== undefined)
      return carryOut(machine, left, best, { ...packed, share: evenShare(count, size, groupSize), groupSize });
  }
  return takePacked(machine, free, count, packed);
}

/** How many CPUs of which NUMA nodes. */
type Distribution = ReadonlyMap<number, number>;

/**
 * The even share of each node at once, and what does not divide group by group: that is how cores fill up as the
 * kubelet's do.
 */
function carryOut(
  machine: CpuGroups,
  left: CpuGroups,
  distribution: Distribution,
  options: DistributeOptions & { readonly share: number },
): Taken {
  let cpus = NO_CPUS;
  for (const [node, count] of distribution) {
    const free = new Set(left.cpus("numaNode", node));
    for (let done = 0; done < count; ) {
      const next = done === 0 && options.share > 0 ? options.share : options.groupSize;
      const taken = takePacked(machine, subtractCpus(free, cpus), next, options);
      if (!taken.ok) return taken;
      cpus = uniteCpus(cpus, taken.cpus);
      done += next;
    }
  }
  return { ok: true, cpus };
}

const evenShare = (count: number, nodes: number, groupSize: number): number =>
  Math.floor(Math.floor(count / nodes) / groupSize) * groupSize;

interface Wish {
  readonly size: number;
  readonly count: number;
  readonly groupSize: number;
}

function bestDistribution(left: CpuGroups, order: readonly number[], wish: Wish): Distribution | undefined {
  const free = new Map(order.map((node) => [node, left.cpus("numaNode", node).length]));
  let best: { readonly balance: number; readonly distribution: Distribution } | undefined;
  for (const nodes of combinations(order, wish.size)) {
    if (best?.balance === 0) break;
    for (const distribution of distributionsOver(nodes, free, wish)) {
      const balance = deviation([...free].map(([node, cpus]) => cpus - (distribution.get(node) ?? 0)));
      if (best === undefined || balance < best.balance) best = { balance, distribution };
    }
  }
  return best?.distribution;
}

/** The even shares, and each way to share out what does not divide: over as many of the nodes as can be first. */
function* distributionsOver(
  nodes: readonly number[],
  free: ReadonlyMap<number, number>,
  { count, groupSize }: Wish,
): Iterable<Distribution> {
  const freeOf = (node: number): number => free.get(node) ?? 0;
  const whole = nodes.reduce((sum, node) => sum + Math.floor(freeOf(node) / groupSize) * groupSize, 0);
  const share = evenShare(count, nodes.length, groupSize);
  if (whole < count || nodes.some((node) => freeOf(node) < share)) return;
  const even = new Map(nodes.map((node) => [node, share]));
  const remainder = count - share * nodes.length;
  if (remainder === 0) yield even;
  const roomy = nodes.filter((node) => freeOf(node) - share >= groupSize);
  for (let size = roomy.length; remainder > 0 && size >= 1; size -= 1) {
    for (const chosen of combinations(roomy, size)) {
      const distribution = withRemainder(even, chosen, { remainder, groupSize, freeOf });
      if (distribution !== undefined) yield distribution;
    }
  }
}

function withRemainder(
  even: Distribution,
  chosen: readonly number[],
  how: { readonly remainder: number; readonly groupSize: number; readonly freeOf: (node: number) => number },
): Distribution | undefined {
  const distribution = new Map(even);
  let left = how.remainder;
  while (left > 0) {
    const before = left;
    for (const node of chosen) {
      const has = distribution.get(node) ?? 0;
      if (left === 0 || how.freeOf(node) - has < how.groupSize) continue;
      distribution.set(node, has + how.groupSize);
      left -= how.groupSize;
    }
    if (left === before) return undefined;
  }
  return distribution;
}

/** In the order of `items`, the first ones foremost. */
export function* combinations<T>(items: readonly T[], size: number, from = 0): Iterable<readonly T[]> {
  if (size === 0) yield [];
  else {
    for (const [index, item] of items.entries()) {
      if (index < from) continue;
      for (const rest of combinations(items, size - 1, index + 1)) yield [item, ...rest];
    }
  }
}

/** To three places, as the kubelet compares it. */
const rounded = (value: number): number => Math.round(value * 1000) / 1000;

function deviation(numbers: readonly number[]): number {
  const mean = rounded(numbers.reduce((sum, each) => sum + each, 0) / numbers.length);
  const squares = numbers.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  return rounded(Math.sqrt(squares / numbers.length));
}
