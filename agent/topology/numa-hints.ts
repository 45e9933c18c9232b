/**
 * Computes the NUMA nodes that can provide a container's resources together, and the best of them: the kubelet's
 * topology hints.
 */

/** NUMA nodes, one bit each. */
export type NumaMask = bigint;

export interface Hint {
  /** Undefined: any. */
  readonly nodes: NumaMask | undefined;
  /** As few nodes as the request could be had from if the machine were empty. */
  readonly preferred: boolean;
}

/**
 * The hints of one provider, by resource. Empty: it has no preference. An empty list: the request cannot be met as
 * required.
 */
export type ResourceHints = ReadonlyMap<string, readonly Hint[]>;

export const NO_HINTS: ResourceHints = new Map();

export const maskOf = (nodes: Iterable<number>): NumaMask =>
  [...nodes].reduce((mask, node) => mask | (1n << BigInt(node)), 0n);

export function nodesOf(mask: NumaMask): readonly number[] {
  const nodes: number[] = [];
  for (let node = 0, rest = mask; rest > 0n; node += 1, rest >>= 1n) if ((rest & 1n) === 1n) nodes.push(node);
  return nodes;
}

export const countOf = (mask: NumaMask): number => nodesOf(mask).length;

/** Fewer nodes; of as many, the lower ones. */
export const isNarrower = (left: NumaMask, right: NumaMask): boolean =>
  countOf(left) === countOf(right) ? left < right : countOf(left) < countOf(right);

type Distances = ReadonlyMap<number, ReadonlyMap<number, number>>;

export interface NumaInfo {
  readonly nodes: readonly number[];
  /** The kernel's distances between nodes. Missing: distances do not count. */
  readonly distances?: Distances | undefined;
}

export type TopologyPolicyName = "none" | "best-effort" | "restricted" | "single-numa-node";

export interface Merged {
  readonly hint: Hint;
  readonly admitted: boolean;
}

/** Merges the providers' hints into the best common one. @param policy any but `none` */
export function mergeHints(info: NumaInfo, policy: TopologyPolicyName, providers: readonly ResourceHints[]): Merged {
  const all = maskOf(info.nodes);
  const isSingle = policy === "single-numa-node";
  const lists = providers.flatMap(listsOf).map((hints) => (isSingle ? hints.filter(isOfOneNode) : hints));
  const best = new Merger(info, lists, isSingle).best(all);
  const hint = isSingle && best.nodes === all ? { nodes: undefined, preferred: best.preferred } : best;
  return { hint, admitted: policy === "best-effort" || hint.preferred };
}

const isOfOneNode = ({ nodes, preferred }: Hint): boolean => preferred && (nodes === undefined || countOf(nodes) === 1);

function listsOf(hints: ResourceHints): readonly (readonly Hint[])[] {
  if (hints.size === 0) return [[{ nodes: undefined, preferred: true }]];
  return [...hints.values()].map((list) => (list.length === 0 ? [{ nodes: undefined, preferred: false }] : list));
}

type Known = Hint & { readonly nodes: NumaMask };

class Merger {
  readonly #info: NumaInfo;
  readonly #lists: readonly (readonly Hint[])[];
  readonly #isSingle: boolean;
  /** As many nodes as the widest of the narrowest wishes needs. */
  readonly #aim: number;

  constructor(info: NumaInfo, lists: readonly (readonly Hint[])[], isSingle: boolean) {
    this.#info = info;
    this.#lists = lists;
    this.#isSingle = isSingle;
    this.#aim = Math.max(0, ...lists.map(narrowestCount));
  }

  best(all: NumaMask): Known {
    let best: Known | undefined;
    for (const combination of product(this.#lists)) {
      const candidate = merge(all, combination);
      if (candidate.nodes !== 0n) best = best === undefined ? candidate : this.#better(best, candidate);
    }
    return best ?? { nodes: all, preferred: false };
  }

  #better(current: Known, candidate: Known): Known {
    if (current.preferred !== candidate.preferred) return current.preferred ? current : candidate;
    if (current.preferred) return this.#byNodes(current, candidate);
    const [now, next] = [countOf(current.nodes) - this.#aim, countOf(candidate.nodes) - this.#aim];
    if (now > 0) return this.#byNodes(current, candidate);
    if (now === 0) return next === 0 ? this.#byNodes(current, candidate) : current;
    if (next > 0) return current;
    if (next === 0 || next > now) return candidate;
    return next < now ? current : this.#byNodes(current, candidate);
  }

  #byNodes(current: Known, candidate: Known): Known {
    const { distances } = this.#info;
    if (current.nodes === candidate.nodes) return current;
    const isAsWide = countOf(current.nodes) === countOf(candidate.nodes);
    if (distances !== undefined && isAsWide && !this.#isSingle) {
      const [own, other] = [distanceWithin(current.nodes, distances), distanceWithin(candidate.nodes, distances)];
      if (own !== other) return own < other ? current : candidate;
    }
    return isNarrower(current.nodes, candidate.nodes) ? current : candidate;
  }
}

function narrowestCount(hints: readonly Hint[]): number {
  const counts = hints.flatMap(({ nodes }) => (nodes === undefined ? [] : [countOf(nodes)]));
  return counts.length === 0 ? 0 : Math.min(...counts);
}

function merge(all: NumaMask, combination: readonly Hint[]): Known {
  const masks = combination.flatMap(({ nodes }) => (nodes === undefined ? [] : [nodes]));
  const agree = masks.every((mask) => mask === masks[0]);
  return {
    nodes: masks.reduce((left, right) => left & right, all),
    preferred: agree && combination.every(({ preferred }) => preferred),
  };
}

function distanceWithin(mask: NumaMask, distances: Distances): number {
  const nodes = nodesOf(mask);
  const all = nodes.flatMap((from) => nodes.map((to) => distances.get(from)?.get(to) ?? 0));
  return all.reduce((sum, each) => sum + each, 0) / all.length;
}

/** One of each list, in every way. */
function* product<T>(lists: readonly (readonly T[])[]): Iterable<readonly T[]> {
  const [first, ...others] = lists;
  if (first === undefined) yield [];
  else for (const item of first) for (const rest of product(others)) yield [item, ...rest];
}
