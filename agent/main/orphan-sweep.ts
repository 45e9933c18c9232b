import { aborted } from "../../protocol/async/abort.ts";
import type { Component } from "../../protocol/async/component.ts";
import { describeError, isCancelled } from "../../protocol/errors.ts";
import { type Log, podUid } from "../../protocol/ports.ts";
import type { RuntimeAdapter } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { PodObserver } from "../core/pod-observer.ts";
import type { DesiredStore } from "../core/store.ts";

/** Asked again for each folder that is found, because pods come while the sweep goes on. */
type Known = Pick<ReadonlySet<string>, "has">;

export interface OrphanSweepComponents {
  readonly adapters: readonly RuntimeAdapter[];
  readonly observer: PodObserver;
  readonly store: DesiredStore;
  /** Each removes what is left on this node of pods that nobody knows. @returns their uids */
  readonly sweeps: readonly ((known: Known, signal: AbortSignal) => Promise<readonly string[]>)[];
  readonly log: Log;
}

/**
 * Once after each start: folders and cgroups of pods that neither the store nor a runtime knows, left by an agent that
 * died between two steps. Only when every runtime has been listed: one that is away may have pods that the store lost.
 */
export class OrphanSweep implements Component {
  readonly name = "orphan sweep";
  readonly #components: OrphanSweepComponents;

  constructor(components: OrphanSweepComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#allListed(signal);
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
    await aborted(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held.
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
    await new Promise<void>((resolve) => {
      const finish = (): void => {
        observing[Symbol.dispose]();
        signal.removeEventListener("abort", finish);
        resolve();
      };
      const observing = observer.observe({ podChanged: () => undefined, listed: () => isDone() && finish() });
      signal.addEventListener("abort", finish, { once: true });
      if (isDone() || signal.aborted) finish();
    });
  }
}
