import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodObserver } from "../core/pods/pod-observer.ts";
import type { DesiredStore } from "../core/store/store-ports.ts";

/** Asked again for each folder that is found, because pods come while the sweep goes on. */
type Known = Pick<ReadonlySet<string>, "has">;

export interface OrphanSweepComponents {
  readonly adapters: readonly RuntimeAdapter[];
  readonly observer: PodObserver;
  readonly store: DesiredStore;
  /** Each removes what unknown pods have left on this node. @returns their uids */
  readonly sweeps: readonly ((known: Known, signal: AbortSignal) => Promise<readonly string[]>)[];
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The shortest time between two sweeps, which follow changes of the pods. A remaining folder costs little space, a
 * sweep some file accesses.
 */
const INTERVAL = seconds(300);

/**
 * After each start, and when pods have gone: folders, logs and cgroups of pods that neither the store nor a runtime
 * knows, left by an agent that died between two steps, or by a step that failed. Only when every runtime has been
 * listed: one that is away may have pods that the store lost.
 */
export class OrphanSweep implements Component {
  readonly name = "orphan sweep";
  readonly #components: OrphanSweepComponents;

  constructor(components: OrphanSweepComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#allListed(signal);
    if (signal.aborted) return;
    await this.#sweep(signal);
    const alarm = new Alarm(this.#components.clock);
    await Promise.all([this.#follow(alarm, signal), this.#keep(alarm, signal)]);
  }

  async #follow(alarm: Alarm, signal: AbortSignal): Promise<void> {
    let before = this.#components.store.desired.current;
    for await (const now of this.#components.store.desired.changes(signal)) {
      const hasGone = [...before.pods.keys(), ...before.removed.keys()].some(
        (uid) => !now.pods.has(uid) && !now.removed.has(uid),
      );
      before = now;
      if (hasGone) alarm.set(INTERVAL);
    }
  }

  async #keep(alarm: Alarm, signal: AbortSignal): Promise<void> {
    for (;;) {
      await alarm.ring(signal);
      await this.#sweep(signal);
    }
  }

  async #sweep(signal: AbortSignal): Promise<void> {
    const { sweeps, log } = this.#components;
    for (const sweep of sweeps) {
      if (signal.aborted) return;
      try {
        const removed = await sweep({ has: (uid) => this.#isKnown(uid) }, signal);
        if (removed.length > 0) log.info("removed what was left of unknown pods", { pods: removed });
      } catch (error) {
        if (isCancelled(error)) return;
        log.warn("cannot remove what is left of unknown pods", { error: describeError(error) });
      }
    }
  }

  #isKnown(uid: string): boolean {
    const { pods, removed } = this.#components.store.desired.current;
    const id = podUid(uid);
    const { adapters, observer } = this.#components;
    return pods.has(id) || removed.has(id) || adapters.some((adapter) => observer.listing(adapter)?.has(id));
  }

  async #allListed(signal: AbortSignal): Promise<void> {
    const { adapters, observer } = this.#components;
    const isDone = (): boolean => adapters.every((adapter) => observer.listing(adapter) !== undefined);
    if (isDone()) return;
    await wokenOrAborted(signal, (wake) => {
      const observing = observer.observe({ podChanged: () => undefined, listed: () => isDone() && wake() });
      return () => observing[Symbol.dispose]();
    });
  }
}
