import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { ContainerPlacement } from "../core/pods/container-placement.ts";
import type { PodAdmission, PodEnder, Rejection, ResizeVerdict } from "../core/pods/pod-admission.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { EventRecorder } from "../core/store/store-ports.ts";
import { type AdmissionView, admitPod } from "../plan/admission/admission.ts";
import type { NodeLabelsAndTaints } from "../plan/admission/admission-node.ts";
import { activePressures } from "../plan/admission/admission-pressure.ts";
import { allocatableAmounts } from "../plan/admission/admission-resources.ts";
import { infeasibleResize, resizeChanges, resizeVerdict } from "../plan/admission/resize-admission.ts";
import type { SysctlAllowlist } from "../plan/admission/sysctls.ts";

export interface NodeAdmissionComponents {
  /** Ends the pods that must make room; called when some must. */
  readonly ender: () => PodEnder;
  readonly events: EventRecorder;
  readonly log: Log;
  /** As it is now, the API server's own labels and taints included. */
  readonly node: () => NodeLabelsAndTaints;
  /** The resources of all pods together, as in the node's status. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  readonly isShuttingDown: () => boolean;
  /** Missing: no pod gets CPUs or memory for itself alone. */
  readonly placement?: ContainerPlacement | undefined;
  /** The node's pressure conditions of now. */
  readonly pressures: () => readonly PressureCondition[];
  /** @returns whether the pod's runtime supports `supplementalGroupsPolicy` */
  readonly supplementalGroupsPolicy: (pod: DesiredPod) => boolean;
}

export interface NodeAdmissionInit {
  readonly sysctls: SysctlAllowlist;
  /** True when the kernel enforces AppArmor. */
  readonly apparmor: boolean;
  /** The kubelet's `memorySwap.swapBehavior` is LimitedSwap. */
  readonly limitedSwap: boolean;
}

const PREEMPTED = {
  reason: "Preempting",
  message: "Preempted in order to admit critical pod",
  disruption: {
    reason: "TerminationByKubelet",
    message: "Pod was preempted by Kubelet to accommodate a critical pod.",
  },
};

/** Judges pods, and has those ended that a critical one displaces. */
export class NodeAdmission implements PodAdmission, Component {
  readonly name = "node admission";
  readonly #components: NodeAdmissionComponents;
  readonly #init: NodeAdmissionInit;
  readonly #life = new AbortController();
  /** Ended for others, until nothing of them runs any more: they count no longer. */
  readonly #displaced = new Map<PodUid, Promise<void>>();

  constructor(components: NodeAdmissionComponents, init: NodeAdmissionInit) {
    this.#components = components;
    this.#init = init;
  }

  admit(desired: DesiredPod, others: readonly DesiredPod[]): Rejection | undefined {
    return this.#admit(desired, others, (pod) => this.#components.placement?.admit(pod));
  }

  #admit(
    desired: DesiredPod,
    others: readonly DesiredPod[],
    place?: (pod: DesiredPod) => Rejection | undefined,
  ): Rejection | undefined {
    const counted = others.filter(({ uid }) => uid !== desired.uid && !this.#displaced.has(uid));
    const admission = admitPod(desired, counted, this.#view(desired));
    if (admission.kind === "rejected") return admission.rejection;
    const unplaced = place?.(desired);
    if (unplaced !== undefined) return unplaced;
    for (const victim of admission.victims) this.#displace(victim, desired);
    return undefined;
  }

  resize(requested: DesiredPod, allocated: DesiredPod, others: readonly DesiredPod[]): ResizeVerdict {
    const allocatable = allocatableAmounts(this.#components.allocatable());
    const { limitedSwap } = this.#init;
    const pinned = this.#components.placement?.refusesResize(requested.pod, (resource) =>
      resizeChanges(resource, requested.pod, allocated.pod),
    );
    if (pinned !== undefined && requested.source === "api") {
      return { kind: "pending", reason: "Infeasible", message: pinned };
    }
    const never = infeasibleResize(requested, allocated, { allocatable, limitedSwap });
    return never ?? resizeVerdict(this.#admit(requested, others));
  }

  async run(signal: AbortSignal): Promise<void> {
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await Promise.all(this.#displaced.values());
  }

  #view(desired: DesiredPod): AdmissionView {
    const { node, allocatable, isShuttingDown, supplementalGroupsPolicy, pressures } = this.#components;
    return {
      ...this.#init,
      node: node(),
      allocatable: allocatableAmounts(allocatable()),
      isShuttingDown: isShuttingDown(),
      pressures: activePressures(pressures()),
      supplementalGroupsPolicy: supplementalGroupsPolicy(desired),
    };
  }

  #displace(victim: DesiredPod, preemptor: DesiredPod): void {
    const { events, log } = this.#components;
    const { namespace, name } = victim.pod.metadata;
    const regarding = { kind: "Pod", namespace, name, uid: apiUidOf(victim), fieldPath: "" } as const;
    events.record({ regarding, type: "Warning", reason: PREEMPTED.reason, message: PREEMPTED.message });
    log.info("a pod is ended to make room for a critical one", { pod: victim.uid, for: preemptor.uid });
    const done = this.#end(victim, preemptor).finally(() => this.#displaced.delete(victim.uid));
    this.#displaced.set(victim.uid, done);
  }

  async #end(victim: DesiredPod, preemptor: DesiredPod): Promise<void> {
    // Not before the worker that asks has done with its own round.
    await Promise.resolve();
    try {
      const { namespace, name } = preemptor.pod.metadata;
      const decision = { kind: "preempted", by: publicName(`${namespace}/${name}`) } as const;
      await this.#components.ender().end(victim.uid, { ...PREEMPTED, decision }, this.#life.signal);
    } catch (error) {
      if (isCancelled(error)) return;
      this.#components.log.error("cannot end a pod to make room", { pod: victim.uid, error: describeError(error) });
    }
  }
}
