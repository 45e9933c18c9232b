import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CpuGroups } from "./cpu-groups.ts";
import type { CpuPolicyOptions } from "./cpu-policy-options.ts";
import { type CpuSet, formatCpuSet, intersectCpus, isSameSet, NO_CPUS, subtractCpus, uniteCpus } from "./cpu-set.ts";
import type { CpuState, PodCpus } from "./cpu-state.ts";
import { type Hint, maskOf, NO_HINTS, type NumaMask, nodesOf, type ResourceHints } from "./numa-hints.ts";
import { AdmissionFailure, type PlacementManager, type PlacementRound } from "./placement-round.ts";
import { exclusiveCpus, isPlainInitContainer, placedContainers, podNeeds } from "./requested.ts";
import { combinations, type Taken, takeByKind, takeDistributed, takePacked } from "./take-cpus.ts";

const SMT_ALIGNMENT = "SMTAlignmentError";

export interface StaticCpusInit {
  readonly machine: CpuGroups;
  readonly options: CpuPolicyOptions;
  /** The number of reserved CPUs. */
  readonly reservedCount: number;
  /** `reservedSystemCPUs`; empty: those that such a container would get first. */
  readonly reservedCpus: CpuSet;
  /** Undefined: there is none from before. */
  readonly state: CpuState | undefined;
}

/** The CPU manager's static policy: containers of guaranteed pods that ask for whole CPUs have them for themselves. */
export class StaticCpus implements PlacementManager {
  readonly #init: StaticCpusInit;
  readonly #reserved: CpuSet;
  /** With the other threads of their cores. */
  readonly #reservedCores: CpuSet;
  #state: CpuState;

  /**
   * @throws `invalid`, `conflict` with the kubelet's words when the state, the reservation and the machine do not agree
   */
  constructor(init: StaticCpusInit) {
    this.#init = init;
    const { machine, reservedCount } = init;
    this.#reserved = init.reservedCpus.size > 0 ? init.reservedCpus : this.#ownReserved();
    if (this.#reserved.size !== reservedCount) {
      throw new PicoletError(
        "invalid",
        `[cpumanager] unable to reserve the required amount of CPUs (size of ${formatCpuSet(this.#reserved)} did not equal ${reservedCount})`,
      );
    }
    const cores = [...this.#reserved].map((cpu) => {
      const place = machine.places.get(cpu);
      if (place !== undefined) return place.core;
      throw new PicoletError(
        "invalid",
        `[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: ${cpu}`,
      );
    });
    this.#reservedCores = new Set(machine.cpus("core", ...cores));
    this.#state = this.#checked(init.state);
  }

  /**
   * The slowest, so that containers have the fast ones; the kubelet's choice where containers had the slowest before
   * they were reserved.
   */
  #ownReserved(): CpuSet {
    const { machine, reservedCount, state } = this.#init;
    const all = new Set(machine.all);
    const exclusive = [...(state?.exclusive.values() ?? [])].flatMap((containers) => [...containers.values()]);
    const slowest = this.#take(all, reservedCount, machine.kinds.toReversed());
    if (!slowest.ok) return NO_CPUS;
    if (!exclusive.some((own) => intersectCpus(own, slowest.cpus).size > 0)) return slowest.cpus;
    const first = this.#take(all, reservedCount, []);
    return first.ok ? first.cpus : NO_CPUS;
  }

  /** Replaced as a whole whenever something is taken or given back. */
  get state(): CpuState {
    return this.#state;
  }

  get reserved(): CpuSet {
    return this.#reserved;
  }

  /** Goes back to what `state` was before. */
  restore(state: CpuState): void {
    this.#state = state;
  }

  of(uid: string, container: string): CpuSet | undefined {
    return this.#state.exclusive.get(uid)?.get(container);
  }

  begin({ uid, pod }: DesiredPod): PlacementRound {
    /** The CPUs of init containers that will have ended. */
    let reusable: CpuSet = NO_CPUS;
    const request = (container: Container): number => exclusiveCpus(pod, container);
    return {
      hints: (container) => this.#hints(uid, container.name, request(container), reusable),
      podHints: () => this.#podHints(uid, pod, reusable),
      allocate: (container, { nodes }) => {
        const count = request(container);
        if (count === 0) return;
        this.#refuseHalfCores(count);
        const { name } = container;
        const cpus = this.of(uid, name) ?? this.#allocate(uid, name, { count, nodes, reusable });
        reusable = isPlainInitContainer(pod, name) ? uniteCpus(reusable, cpus) : subtractCpus(reusable, cpus);
      },
    };
  }

  /** Returns the pod's CPUs to the shared pool. @returns whether it had any */
  release(uid: string): boolean {
    const own = this.#state.exclusive.get(uid);
    if (own === undefined) return false;
    const exclusive = new Map(this.#state.exclusive);
    exclusive.delete(uid);
    this.#state = { shared: uniteCpus(this.#state.shared, ...own.values()), exclusive };
    return true;
  }

  /** The kubelet's checks of a state it finds, in its order and words. */
  #checked(found: CpuState | undefined): CpuState {
    const { machine, options } = this.#init;
    const all = new Set(machine.all);
    const pool = options.strictReservation ? subtractCpus(all, this.#reserved) : all;
    const state = found ?? { shared: NO_CPUS, exclusive: new Map<string, PodCpus>() };
    const { shared, exclusive } = state;
    if (shared.size === 0) {
      if (exclusive.size > 0) throw invalidState("default cpuset cannot be empty");
      return { shared: pool, exclusive };
    }
    const reservedShared = intersectCpus(this.#reserved, shared);
    const [reservedText, sharedText] = [formatCpuSet(this.#reserved), formatCpuSet(shared)];
    if (options.strictReservation && reservedShared.size > 0) {
      throw invalidState(
        `some of strictly reserved cpus: "${formatCpuSet(reservedShared)}" are present in defaultCpuSet: "${sharedText}"`,
      );
    }
    if (!options.strictReservation && reservedShared.size !== this.#reserved.size) {
      throw invalidState(`not all reserved cpus: "${reservedText}" are present in defaultCpuSet: "${sharedText}"`);
    }
    for (const [pod, containers] of exclusive) {
      for (const [container, cpus] of containers) {
        if (intersectCpus(cpus, shared).size === 0) continue;
        throw invalidState(
          `pod: ${pod}, container: ${container} cpuset: "${formatCpuSet(cpus)}" overlaps with default cpuset "${sharedText}"`,
        );
      }
    }
    const known = uniteCpus(shared, ...[...exclusive.values()].flatMap((containers) => [...containers.values()]));
    const expected = options.strictReservation ? subtractCpus(all, this.#reserved) : all;
    if (!isSameSet(known, expected)) {
      throw invalidState(
        `current set of available CPUs "${formatCpuSet(expected)}" doesn't match with CPUs in state "${formatCpuSet(known)}"`,
      );
    }
    return state;
  }

  #refuseHalfCores(count: number): void {
    if (!this.#init.options.fullPhysicalCpusOnly) return;
    const threads = this.#init.machine.perGroup("core");
    if (count % threads !== 0) {
      throw new AdmissionFailure(
        `SMT Alignment Error: requested ${count} cpus not multiple cpus per core = ${threads}`,
        SMT_ALIGNMENT,
      );
    }
    const free = subtractCpus(this.#state.shared, this.#reservedCores).size;
    if (count <= free) return;
    throw new AdmissionFailure(
      `SMT Alignment Error: not enough free physical CPUs: available physical CPUs = ${free}, requested CPUs = ${count}, CPUs per core = ${threads}`,
      SMT_ALIGNMENT,
    );
  }

  #allocate(uid: string, container: string, wish: Wish): CpuSet {
    const cpus = this.#choose(wish);
    const { shared, exclusive } = this.#state;
    const own = new Map(exclusive.get(uid)).set(container, cpus);
    this.#state = { shared: subtractCpus(shared, cpus), exclusive: new Map(exclusive).set(uid, own) };
    return cpus;
  }

  #choose({ count, nodes, reusable }: Wish): CpuSet {
    const free = uniteCpus(subtractCpus(this.#state.shared, this.#reserved), reusable);
    let cpus = NO_CPUS;
    if (nodes !== undefined) {
      const aligned = intersectCpus(free, this.#aligned(nodes));
      cpus = taken(this.#take(aligned, Math.min(aligned.size, count)));
    }
    return uniteCpus(cpus, taken(this.#take(subtractCpus(free, cpus), count - cpus.size)));
  }

  #aligned(nodes: NumaMask): CpuSet {
    const { machine, options } = this.#init;
    const ids = nodesOf(nodes);
    if (!options.alignBySocket) return new Set(machine.cpus("numaNode", ...ids));
    return new Set(machine.cpus("socket", ...this.#socketsOf(ids)));
  }

  #socketsOf(nodes: readonly number[]): readonly number[] {
    const { machine } = this.#init;
    return [...new Set(nodes.flatMap((id) => machine.ids("socket", { level: "numaNode", id })))];
  }

  #take(free: CpuSet, count: number, kinds: readonly CpuSet[] = this.#init.machine.kinds): Taken {
    const { machine, options } = this.#init;
    const { distributeAcrossCores: spread, preferUncoreCache, distributeAcrossNuma } = options;
    const groupSize = options.fullPhysicalCpusOnly ? machine.perGroup("core") : 1;
    return takeByKind(kinds, free, count, (own, wanted) =>
      distributeAcrossNuma
        ? takeDistributed(machine, own, wanted, { spread, preferUncoreCache: false, groupSize })
        : takePacked(machine, own, wanted, { spread, preferUncoreCache }),
    );
  }

  #hints(uid: string, container: string, count: number, reusable: CpuSet): ResourceHints {
    if (count === 0) return NO_HINTS;
    const own = this.of(uid, container);
    if (own !== undefined && own.size !== count) return IMPOSSIBLE;
    if (own !== undefined) return this.#hintsFor(own, NO_CPUS, count);
    return this.#hintsFor(subtractCpus(this.#state.shared, this.#reserved), reusable, count);
  }

  #podHints(uid: string, pod: Pod, reusable: CpuSet): ResourceHints {
    const count = podNeeds(pod, (container) => exclusiveCpus(pod, container));
    if (count === 0) return NO_HINTS;
    let assigned = NO_CPUS;
    for (const container of placedContainers(pod)) {
      const own = this.of(uid, container.name);
      if (own === undefined) continue;
      if (own.size !== exclusiveCpus(pod, container)) return IMPOSSIBLE;
      assigned = uniteCpus(assigned, own);
    }
    if (assigned.size === count) return this.#hintsFor(assigned, NO_CPUS, count);
    return this.#hintsFor(subtractCpus(this.#state.shared, this.#reserved), uniteCpus(reusable, assigned), count);
  }

  #hintsFor(free: CpuSet, reusable: CpuSet, count: number): ResourceHints {
    const { machine, options } = this.#init;
    const nodes = machine.ids("numaNode");
    const nodeOf = (cpu: number): number => machine.places.get(cpu)?.numaNode ?? -1;
    let least = nodes.length;
    const found: (readonly number[])[] = [];
    for (let size = 1; size <= nodes.length; size += 1) {
      for (const chosen of combinations(nodes, size)) {
        if (machine.cpus("numaNode", ...chosen).length >= count) least = Math.min(least, size);
        const isWithin = (cpu: number): boolean => chosen.includes(nodeOf(cpu));
        if (![...reusable].every(isWithin)) continue;
        const matching = reusable.size + [...free].filter((cpu) => !reusable.has(cpu) && isWithin(cpu)).length;
        if (matching >= count) found.push(chosen);
      }
    }
    const isPreferred = (chosen: readonly number[]): boolean =>
      chosen.length === least || (options.alignBySocket && this.#isSocketAligned(chosen, least));
    return new Map([["cpu", found.map((chosen) => ({ nodes: maskOf(chosen), preferred: isPreferred(chosen) }))]]);
  }

  #isSocketAligned(nodes: readonly number[], least: number): boolean {
    const { machine } = this.#init;
    const perSocket = Math.floor(machine.ids("numaNode").length / machine.ids("socket").length);
    return perSocket > 0 && this.#socketsOf(nodes).length === Math.ceil(least / perSocket);
  }
}

interface Wish {
  readonly count: number;
  readonly nodes: NumaMask | undefined;
  readonly reusable: CpuSet;
}

/** Nothing that the container could be given: no policy but best-effort takes it. */
const IMPOSSIBLE: ReadonlyMap<string, readonly Hint[]> = new Map([["cpu", []]]);

function taken(result: Taken): CpuSet {
  if (result.ok) return result.cpus;
  throw new AdmissionFailure(result.problem);
}

const invalidState = (message: string): PicoletError =>
  new PicoletError(
    "conflict",
    `Static policy invalid state, please drain node and remove policy state file: ${message}`,
  );
