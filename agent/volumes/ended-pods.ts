import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodView } from "../plan/pod-view.ts";

export interface EndedPodsComponents {
  /** The views that the workers have now. */
  readonly views: () => Iterable<PodView>;
  /** Fires when a view may have changed. */
  readonly changes: Watch<unknown>;
  readonly release: (pod: DesiredPod, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Pauses between attempts to release what a pod holds, as the kubelet's for volumes. */
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(122) };

/**
 * Releases volumes and cgroups of ended pods. Such a pod stays on the node until it is deleted; the memory, the disk
 * space and the claims of its volumes are free for other pods before. A driver that hangs or is away delays its own
 * pods alone.
 */
export class EndedPods implements Component {
  readonly name = "ended pods";
  readonly #components: EndedPodsComponents;
  /** Ended pods that are being released, at most all of the node, or have been. */
  readonly #releases = new Map<PodUid, "underWay" | "done">();
  readonly #tasks = new Set<Promise<void>>();

  constructor(components: EndedPodsComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      this.#releaseEnded(signal);
      for await (const _ of this.#components.changes.changes(signal)) this.#releaseEnded(signal);
    } finally {
      await Promise.allSettled(this.#tasks);
    }
  }

  #releaseEnded(signal: AbortSignal): void {
    const ended = this.#ended();
    for (const [uid, state] of this.#releases) if (state === "done" && !ended.has(uid)) this.#releases.delete(uid);
    for (const uid of ended.keys()) {
      if (this.#releases.has(uid)) continue;
      this.#releases.set(uid, "underWay");
      const task = this.#release(uid, signal)
        .catch(ignore("the agent stops"))
        .finally(() => this.#tasks.delete(task));
      this.#tasks.add(task);
    }
  }

  #ended(): ReadonlyMap<PodUid, DesiredPod> {
    const ended = [...this.#components.views()].filter(hasEnded);
    return new Map(ended.map(({ desired }) => [desired.uid, desired]));
  }

  /** @throws `cancelled` alone */
  async #release(uid: PodUid, signal: AbortSignal): Promise<void> {
    const { clock, log, release } = this.#components;
    for (let failures = 0; ; ) {
      // It may have been started again, or removed, during the pause.
      const pod = this.#ended().get(uid);
      if (pod === undefined) {
        this.#releases.delete(uid);
        return;
      }
      try {
        await release(pod, signal);
        this.#releases.set(uid, "done");
        return;
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (failures === 0)
          log.warn("cannot release what an ended pod holds", { pod: uid, error: describeError(error) });
        failures += 1;
        await clock.sleep(backoffDelay(RETRY, failures), signal);
      }
    }
  }
}

function hasEnded({ worker, observed }: PodView): boolean {
  return (
    worker.kind === "finished" &&
    observed !== undefined &&
    observed.sandboxes.every(({ state }) => state === "notReady") &&
    observed.containers.every(({ state }) => state.kind === "exited" || state.kind === "created")
  );
}
