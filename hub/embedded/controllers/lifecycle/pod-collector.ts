import { NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { hasEnded, podOf } from "../../api/typed-objects.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";

/**
 * As in Kubernetes: pods that have ended are kept for their logs and exit codes, up to so many. The oldest go first.
 */
const MAX_TERMINATED_PODS = 12_500;
/** How long a node must be gone before its pods are deleted: a node may be deleted and register again at once. */
const QUARANTINE = seconds(40);
/** Kubernetes' period. */
const PERIOD = seconds(20);

export interface PodCollectorCaches {
  readonly pods: ObjectCache;
  readonly nodes: ObjectCache;
}

export interface CollectView {
  readonly pods: readonly Pod[];
  readonly hasNode: (name: string) => boolean;
  readonly maxTerminated: number;
}

export interface CollectPlan {
  readonly orphans: readonly Pod[];
  /** Pods that were never on a node, so that no node ends them. */
  readonly unscheduled: readonly Pod[];
  readonly surplus: readonly Pod[];
}

/** Pure. */
export function planCollection({ pods, hasNode, maxTerminated }: CollectView): CollectPlan {
  const nodeName = (pod: Pod): string => pod.spec.nodeName ?? "";
  const ended = pods.filter((pod) => hasEnded(pod) && pod.metadata.deletionTimestamp === undefined);
  const created = (pod: Pod): string => pod.metadata.creationTimestamp ?? "";
  const surplus = ended
    .sort((left, right) => (created(left) < created(right) ? -1 : 1))
    .slice(0, Math.max(0, ended.length - maxTerminated));
  return {
    orphans: pods.filter((pod) => nodeName(pod) !== "" && !hasNode(nodeName(pod))),
    unscheduled: pods.filter((pod) => nodeName(pod) === "" && pod.metadata.deletionTimestamp !== undefined),
    surplus,
  };
}

/** Deletes pods whose node is gone, that were deleted before they had a node, or that ended and are too many. */
export class PodCollector implements Component {
  readonly name = "pod collector";
  readonly #ports: ControllerPorts;
  readonly #caches: PodCollectorCaches;
  readonly #alarm: Alarm;
  /** Since when a node with pods has not been there. */
  readonly #missingSinceMs = new Map<string, number>();

  constructor({ caches, ...ports }: ControllerPorts & { readonly caches: PodCollectorCaches }) {
    this.#ports = ports;
    this.#caches = caches;
    this.#alarm = new Alarm(ports.clock);
  }

  async run(signal: AbortSignal): Promise<void> {
    for (const { synced } of Object.values(this.#caches)) {
      for await (const isSynced of synced.changes(signal)) if (isSynced) break;
    }
    while (!signal.aborted) {
      try {
        await this.#collect(signal);
      } catch (error) {
        if (signal.aborted || isCancelled(error)) throw error;
        this.#ports.log.warn("cannot collect pods", { error: describeError(error) });
      }
      this.#alarm.set(PERIOD);
      await this.#alarm.ring(signal);
    }
  }

  async #collect(signal: AbortSignal): Promise<void> {
    const plan = planCollection({
      pods: this.#caches.pods.list().map(podOf),
      hasNode: (name) => this.#caches.nodes.get(name) !== undefined,
      maxTerminated: MAX_TERMINATED_PODS,
    });
    const nodes = Map.groupBy(plan.orphans, (pod) => pod.spec.nodeName ?? "");
    for (const name of this.#missingSinceMs.keys()) if (!nodes.has(name)) this.#missingSinceMs.delete(name);
    for (const [name, pods] of nodes) {
      if (await this.#isGone(name, signal)) {
        for (const pod of pods) await this.#delete(pod, "PodGC: node no longer exists", signal);
      }
    }
    for (const pod of [...plan.unscheduled, ...plan.surplus]) await this.#delete(pod, undefined, signal);
  }

  async #isGone(name: string, signal: AbortSignal): Promise<boolean> {
    const now = this.#ports.clock.monotonic();
    const since = this.#missingSinceMs.get(name);
    if (since === undefined) this.#missingSinceMs.set(name, now);
    if (since === undefined || now - since < QUARANTINE) return false;
    try {
      await this.#ports.client.get(NODES, { namespace: "", name }, signal);
      return false;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return true;
      throw error;
    }
  }

  /** @param why of the condition DisruptionTarget that a pod gets which did not end by itself */
  async #delete(pod: Pod, why: string | undefined, signal: AbortSignal): Promise<void> {
    const { namespace, name, uid } = pod.metadata;
    const { client, clock } = this.#ports;
    try {
      if (why !== undefined && !hasEnded(pod)) {
        const condition = {
          type: "DisruptionTarget",
          status: "True",
          reason: "DeletionByPodGC",
          message: why,
          lastTransitionTime: kubeTime(clock.wall()),
        };
        const patch = { metadata: { uid }, status: { phase: "Failed", conditions: [condition] } };
        await client.patch(PODS, { namespace, name }, "strategic", patch, { subresource: "status" }, signal);
      }
      const options = { gracePeriodSeconds: 0, ...(uid === undefined ? {} : { uid }) };
      await client.delete(PODS, { namespace, name }, options, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
    }
  }
}
