import { ignoreCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { Cpuset, DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerPlacements } from "./container-placements.ts";

/** A runtime takes some 20 ms for it. */
const UPDATE_TIMEOUT = seconds(10);

export interface PlacedContainer {
  readonly pod: DesiredPod;
  readonly name: string;
  readonly id: string;
  readonly adapter: RuntimeAdapter;
}

export interface CpusetReconcilerComponents {
  readonly placements: ContainerPlacements;
  /** The containers that run. */
  readonly running: () => Iterable<PlacedContainer>;
  /** @returns whether nothing of the pod runs or will run again; undefined while that is unknown */
  readonly isOver: (uid: PodUid) => boolean | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Moves containers that run when the CPUs they share with others have become more or fewer: at once, and what failed
 * again every `cpuManagerReconcilePeriod`. What pods hold that are gone is given back then, too.
 */
export class CpusetReconciler implements Component {
  readonly name = "cpuset reconciler";
  readonly #components: CpusetReconcilerComponents;
  readonly #period: Millis;
  readonly #alarm: Alarm;
  /** The CPUs to which containers were last moved, by id; those of an earlier agent are moved once more. */
  #moved = new Map<string, string>();
  /** Running pods that were asked once whether they can have what they should have had when they began. */
  readonly #asked = new Set<PodUid>();

  constructor(components: CpusetReconcilerComponents, init: { readonly period: Millis }) {
    this.#components = components;
    this.#period = init.period;
    this.#alarm = new Alarm(components.clock);
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    const following = this.#follow(life.signal).catch(ignoreCancelled);
    try {
      for (;;) {
        this.#alarm.set(this.#period);
        await this.#alarm.ring(life.signal);
        await this.#round(life.signal);
      }
    } finally {
      life.abort();
      await following;
    }
  }

  /** At the start, too. */
  async #follow(signal: AbortSignal): Promise<void> {
    for await (const _ of this.#components.placements.changes.changes(signal)) this.#alarm.set(millis(0));
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { placements, running, isOver } = this.#components;
    for (const uid of placements.holders) if (isOver(uid) === true) placements.release(uid);
    const all = [...running()];
    this.#takeUp(all);
    placements.flush();
    const moved = new Map<string, string>();
    for (const container of all) {
      const { pod, name, id } = container;
      const cpuset = placements.cpuset(pod, name);
      const before = this.#moved.get(id);
      const text = cpuset === undefined ? "" : `${cpuset.cpus}/${cpuset.mems}`;
      const isMoved = cpuset === undefined || text === before || (await this.#move(container, cpuset, signal));
      if (isMoved) moved.set(id, text);
      else if (before !== undefined) moved.set(id, before);
    }
    const done = [...moved].filter(([id, text]) => text !== "" && text !== this.#moved.get(id)).length;
    if (done > 0) this.#components.log.info("containers run where they may run now", { containers: done });
    this.#moved = moved;
  }

  /**
   * Pods that ran before the policy was chosen get what new ones would get, if it is there; else they run on as they
   * are.
   */
  #takeUp(all: readonly PlacedContainer[]): void {
    const { placements, log } = this.#components;
    const uids = new Set(all.map(({ pod }) => pod.uid));
    for (const uid of this.#asked) if (!uids.has(uid)) this.#asked.delete(uid);
    for (const { pod } of all) {
      if (this.#asked.has(pod.uid)) continue;
      this.#asked.add(pod.uid);
      const rejection = placements.admit(pod);
      if (rejection !== undefined)
        log.warn("a pod that runs cannot have CPUs or memory for itself", { pod: pod.uid, ...rejection });
    }
  }

  async #move({ pod, id, name, adapter }: PlacedContainer, cpuset: Cpuset, signal: AbortSignal): Promise<boolean> {
    const { clock, log } = this.#components;
    const move = (deadline: AbortSignal): Promise<void> =>
      adapter.apply(pod, { kind: "updateContainer", containerId: id, cpuset }, deadline);
    try {
      await withDeadline(clock, UPDATE_TIMEOUT, `move container ${name}`, move, signal);
      return true;
    } catch (error) {
      if (isCancelled(error)) throw error;
      log.debug("cannot move a container to other CPUs", {
        pod: pod.uid,
        container: name,
        error: describeError(error),
      });
      return false;
    }
  }
}
