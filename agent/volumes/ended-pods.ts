import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodView } from "../plan/pod-view.ts";

export interface EndedPodsComponents {
  /** The views that the workers have now. */
  readonly views: () => Iterable<PodView>;
  /** Fires when a view may have changed. */
  readonly changes: Watch<unknown>;
  readonly release: (pod: DesiredPod, signal: AbortSignal) => Promise<void>;
  readonly log: Log;
}

/**
 * Releases volumes and cgroups of ended pods. Such a pod stays on the node until it is deleted; the memory, the disk
 * space and the claims of its volumes are free for other pods before.
 */
export class EndedPods implements Component {
  readonly name = "ended pods";
  readonly #components: EndedPodsComponents;
  /** Ended pods whose release was tried. What a failed release leaves is removed with the pod. */
  readonly #tried = new Set<PodUid>();

  constructor(components: EndedPodsComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#releaseEnded(signal);
    for await (const _ of this.#components.changes.changes(signal)) await this.#releaseEnded(signal);
  }

  async #releaseEnded(signal: AbortSignal): Promise<void> {
    const ended = [...this.#components.views()].filter(hasEnded).map(({ desired }) => desired);
    const uids = new Set(ended.map(({ uid }) => uid));
    for (const uid of this.#tried) if (!uids.has(uid)) this.#tried.delete(uid);
    for (const pod of ended.filter(({ uid }) => !this.#tried.has(uid))) {
      this.#tried.add(pod.uid);
      // The pod may have been started again while another one was released.
      if (![...this.#components.views()].some((view) => view.desired.uid === pod.uid && hasEnded(view))) continue;
      try {
        await this.#components.release(pod, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        const fields = { pod: pod.uid, error: describeError(error) };
        this.#components.log.warn("cannot take away what an ended pod holds", fields);
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
