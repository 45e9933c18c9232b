import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { ascending } from "./cpu-set.ts";
import type { NumaNode } from "./machine-topology.ts";
import type { MemoryBlock, MemoryState } from "./memory-state.ts";
import {
  emptyMachine,
  freeMemoryBlock,
  isSameGroup,
  MEMORY,
  reserveMemoryFrom,
  stateProblem,
} from "./memory-tables.ts";
import { type Hint, isNarrower, maskOf, NO_HINTS, nodesOf, type ResourceHints } from "./numa-hints.ts";
import { AdmissionFailure, type PlacementManager, type PlacementRound } from "./placement-round.ts";
import { exclusiveMemory, isPlainInitContainer, type MemoryRequest, placedContainers, podNeeds } from "./requested.ts";
import type { NodeReservation } from "./reserved-memory.ts";
import { combinations } from "./take-cpus.ts";

export interface StaticMemoryInit {
  readonly nodes: readonly NumaNode[];
  readonly reserved: ReadonlyMap<number, NodeReservation>;
  /** Undefined: there is none from before. */
  readonly state: MemoryState | undefined;
}

/** The memory manager's static policy: memory of guaranteed pods comes from NUMA nodes that are theirs. */
export class StaticMemory implements PlacementManager {
  #state: MemoryState;

  /** @throws `conflict` with the kubelet's words when the state and the machine do not agree */
  constructor({ nodes, reserved, state }: StaticMemoryInit) {
    const empty = emptyMachine(nodes, reserved);
    if (state === undefined || Object.keys(state.machine).length === 0) {
      if (state !== undefined && Object.keys(state.entries).length > 0) {
        throw invalidState("[memorymanager] machine state can not be empty when it has memory assignments");
      }
      this.#state = { machine: empty, entries: {} };
      return;
    }
    const problem = stateProblem(state.machine, state.entries, empty);
    if (problem !== undefined) throw invalidState(problem);
    this.#state = state;
  }

  /** Replaced as a whole whenever something is taken or given back. */
  get state(): MemoryState {
    return this.#state;
  }

  /** Goes back to what `state` was before. */
  restore(state: MemoryState): void {
    this.#state = state;
  }

  /** The NUMA nodes that the container's memory is from; undefined: any. */
  nodesOf(uid: string, container: string): readonly number[] | undefined {
    const blocks = this.#state.entries[uid]?.[container] ?? [];
    return blocks.length === 0 ? undefined : ascending(new Set(blocks.flatMap(({ numaAffinity }) => numaAffinity)));
  }

  begin({ uid, pod }: DesiredPod): PlacementRound {
    const reusable = new ReusableMemory();
    return {
      hints: (container) => this.#hints(uid, container.name, exclusiveMemory(pod, container), reusable),
      podHints: () => this.#podHints(uid, pod, reusable),
      allocate: (container, affinity) => {
        const request = exclusiveMemory(pod, container);
        if (request.size === 0) return;
        const { name } = container;
        const blocks =
          this.#state.entries[uid]?.[name] ?? this.#allocate(uid, pod, name, { request, affinity, reusable });
        reusable.update(blocks, isPlainInitContainer(pod, name));
      },
    };
  }

  /** @returns whether it had anything */
  release(uid: string): boolean {
    const own = this.#state.entries[uid];
    if (own === undefined) return false;
    const state = structuredClone(this.#state);
    for (const block of Object.values(own).flat()) freeMemoryBlock(state.machine, block);
    delete state.entries[uid];
    this.#state = state;
    return true;
  }

  /**
   * Frees memory of the init containers before that one, which have ended, if no other container has taken it over.
   * @returns whether any was freed
   */
  started({ uid, pod }: DesiredPod, container: string): boolean {
    const own = this.#state.entries[uid];
    const before: string[] = [];
    for (const each of pod.spec.initContainers ?? []) {
      if (each.name === container) break;
      if (!isSidecar(each) && own?.[each.name] !== undefined) before.push(each.name);
    }
    if (before.length === 0) return false;
    const state = structuredClone(this.#state);
    for (const name of before) {
      for (const block of state.entries[uid]?.[name] ?? []) freeMemoryBlock(state.machine, block);
      delete state.entries[uid]?.[name];
    }
    this.#state = state;
    return true;
  }

  #hints(uid: string, container: string, request: MemoryRequest, reusable: ReusableMemory): ResourceHints {
    if (request.size === 0) return NO_HINTS;
    const own = this.#state.entries[uid]?.[container];
    return own === undefined ? this.#hintsFor(request, reusable) : hintsOfBlocks(own, request);
  }

  #podHints(uid: string, pod: Pod, reusable: ReusableMemory): ResourceHints {
    const requests = new Map(placedContainers(pod).map((each) => [each.name, exclusiveMemory(pod, each)]));
    const resources = new Set(pod.spec.containers.flatMap(({ name }) => [...(requests.get(name)?.keys() ?? [])]));
    const of = (resource: string): number => podNeeds(pod, ({ name }) => requests.get(name)?.get(resource) ?? 0);
    const request = new Map([...resources].map((resource) => [resource, of(resource)]));
    if (request.size === 0) return NO_HINTS;
    for (const { name } of placedContainers(pod)) {
      const own = this.#state.entries[uid]?.[name];
      if (own !== undefined) return hintsOfBlocks(own, request);
    }
    return this.#hintsFor(request, reusable);
  }

  #hintsFor(request: MemoryRequest, reusable: ReusableMemory): ResourceHints {
    const found: (readonly number[])[] = [];
    const all = this.#nodes;
    let least = all.length;
    for (let size = 1; size <= all.length; size += 1) {
      for (const nodes of combinations(all, size)) {
        if (!isWithin(request, (resource) => this.#sum(nodes, resource, "allocatable"))) continue;
        least = Math.min(least, size);
        if (this.#clashes(nodes)) continue;
        const room = (resource: string): number => this.#sum(nodes, resource, "free") + reusable.of(nodes, resource);
        if (isWithin(request, room)) found.push(nodes);
      }
    }
    const hints = found.map((nodes) => ({ nodes: maskOf(nodes), preferred: nodes.length === least }));
    return hints.length === 0 ? NO_HINTS : new Map([...request.keys()].map((resource) => [resource, hints]));
  }

  /** A node gives memory alone, or always together with the same others. */
  #clashes(nodes: readonly number[]): boolean {
    const isSingle = nodes.length === 1;
    return nodes.some((node) => {
      const { cells, numberOfAssignments } = this.#state.machine[node] ?? { cells: [], numberOfAssignments: 0 };
      if (isSingle) return cells.length > 1;
      return numberOfAssignments > 0 && (cells.length === 1 || !isSameGroup(cells, nodes));
    });
  }

  #allocate(uid: string, pod: Pod, container: string, wish: Wish): MemoryBlock[] {
    const { request, reusable } = wish;
    const nodes = nodesOf(this.#bestNodes(wish));
    const state = structuredClone(this.#state);
    const blocks = [...request].map(([type, size]) => ({ numaAffinity: [...nodes], type, size }));
    for (const block of blocks) {
      reserveMemoryFrom(state.machine, block, Math.max(0, block.size - reusable.of(nodes, block.type)));
    }
    const own = { ...state.entries[uid], [container]: blocks };
    takeOver(pod, container, own);
    state.entries = { ...state.entries, [uid]: own };
    this.#state = state;
    return blocks;
  }

  #bestNodes({ request, affinity, reusable }: Wish): bigint {
    let best: Hint = affinity;
    const hints = (): readonly Hint[] => this.#hintsFor(request, reusable).get(MEMORY) ?? [];
    if (best.nodes === undefined) {
      const found = bestOf(hints());
      if (found === undefined) {
        throw new AdmissionFailure(
          "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
        );
      }
      if (!found.preferred && best.preferred) {
        throw new AdmissionFailure("[memorymanager] failed to find the default preferred hint");
      }
      best = found;
    }
    const wanted = nodesOf(best.nodes ?? 0n);
    if (!isWithin(request, (resource) => this.#sum(wanted, resource, "free"))) {
      const wider = hints().filter(({ nodes = 0n }) => wanted.every((node) => nodesOf(nodes).includes(node)));
      const found = bestOf(wider);
      if (found === undefined) {
        throw new AdmissionFailure("[memorymanager] failed to find NUMA nodes to extend the current topology hint");
      }
      if (!found.preferred && best.preferred) {
        throw new AdmissionFailure("[memorymanager] failed to find the extended preferred hint");
      }
      best = found;
    }
    const nodes = best.nodes ?? 0n;
    if (nodesOf(nodes).length > 1 && this.#clashes(nodesOf(nodes))) {
      throw new AdmissionFailure("[memorymanager] preferred hint violates NUMA node allocation");
    }
    return nodes;
  }

  get #nodes(): readonly number[] {
    return ascending(Object.keys(this.#state.machine).map(Number));
  }

  #sum(nodes: readonly number[], resource: string, field: "allocatable" | "free"): number {
    return nodes.reduce((sum, node) => sum + (this.#state.machine[node]?.memoryMap[resource]?.[field] ?? 0), 0);
  }
}

interface Wish {
  readonly request: MemoryRequest;
  readonly affinity: Hint;
  readonly reusable: ReusableMemory;
}

/** The memory of init containers that will have ended: by NUMA nodes, then by resource. */
class ReusableMemory {
  readonly #byNodes = new Map<string, Map<string, number>>();

  of(nodes: readonly number[], resource: string): number {
    return this.#byNodes.get(nodes.join())?.get(resource) ?? 0;
  }

  update(blocks: readonly MemoryBlock[], isPlainInitContainer: boolean): void {
    for (const { numaAffinity, type, size } of blocks) {
      const before = this.of(numaAffinity, type);
      const own = this.#byNodes.get(numaAffinity.join()) ?? new Map<string, number>();
      own.set(type, isPlainInitContainer ? Math.max(before, size) : Math.max(0, before - size));
      this.#byNodes.set(numaAffinity.join(), own);
    }
  }
}

/** Takes over memory of init containers before it is counted as the container's own. */
function takeOver(pod: Pod, container: string, own: Record<string, MemoryBlock[]>): void {
  for (const { type, size, numaAffinity } of own[container] ?? []) {
    let left = size;
    for (const init of pod.spec.initContainers ?? []) {
      if (init.name === container || left === 0) break;
      if (isSidecar(init)) continue;
      for (const block of own[init.name] ?? []) {
        if (block.type !== type || !isSameGroup(block.numaAffinity, numaAffinity)) continue;
        const part = Math.min(block.size, left);
        block.size -= part;
        left -= part;
      }
    }
  }
}

const isWithin = (request: MemoryRequest, room: (resource: string) => number): boolean =>
  [...request].every(([resource, size]) => size <= room(resource));

/** Preferred ones before others, narrower before wider. */
function bestOf(hints: readonly Hint[]): Hint | undefined {
  return hints.reduce<Hint | undefined>((best, each) => {
    if (best === undefined) return each;
    if (each.preferred !== best.preferred) return each.preferred ? each : best;
    return isNarrower(each.nodes ?? 0n, best.nodes ?? 0n) ? each : best;
  }, undefined);
}

/** The hints for memory that the container has already; empty when it differs from the request. */
function hintsOfBlocks(blocks: readonly MemoryBlock[], request: MemoryRequest): ResourceHints {
  if (blocks.length !== request.size || blocks.some(({ type, size }) => request.get(type) !== size)) return NO_HINTS;
  return new Map(blocks.map(({ type, numaAffinity }) => [type, [{ nodes: maskOf(numaAffinity), preferred: true }]]));
}

const invalidState = (message: string): PicoletError =>
  new PicoletError("conflict", `Invalid state, please drain node and remove policy state file: ${message}`);
