import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodView } from "../plan/pod-view.ts";

export interface EndedPodsComponents {
  /** What the workers see now. */
  readonly views: () => Iterable<PodView>;
  /** Fires when one of them may have changed. */
  readonly changes: Watch<unknown>;
  readonly release: (pod: DesiredPod, signal: AbortSignal) => Promise<void>;
  readonly log: Log;
}

/**
 * A pod that has ended stays on the node until somebody deletes it; its volumes and its cgroup do not: what they take
 * of memory and disk, and claims that one pod alone may use, are free for others.
 */
export class EndedPods implements Component {
  readonly name = "ended pods";
  readonly #components: EndedPodsComponents;
  /** Ended pods that have been seen to, one way or the other: what is left goes with the pod. */
  readonly #seen = new Set<PodUid>();

  constructor(components: EndedPodsComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#look(signal);
    for await (const _ of this.#components.changes.changes(signal)) await this.#look(signal);
  }

  async #look(signal: AbortSignal): Promise<void> {
    const ended = [...this.#components.views()].filter(hasEnded).map(({ desired }) => desired);
    const uids = new Set(ended.map(({ uid }) => uid));
    for (const uid of this.#seen) if (!uids.has(uid)) this.#seen.delete(uid);
    for (const pod of ended.filter(({ uid }) => !this.#seen.has(uid))) {
      this.#seen.add(pod.uid);
      // It may have been brought back while another one's volumes went.
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
