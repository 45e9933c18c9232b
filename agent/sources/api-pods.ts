/** Derives the pods of this node from the API server's Pod objects. Pure. */
import type { Pod, PodCondition } from "@picolet/protocol/pod/pod.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import { type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { ApiPods } from "../core/store/store-ports.ts";
import { canAdoptPod, copyRandomNames } from "../plan/pod-adoption.ts";

/**
 * The grace period of a pod whose object is gone, unless its own is shorter. A deletion by force is urgent, and the
 * kubelet calls this a small grace period.
 */
const FORCED_GRACE_SECONDS = 2;

/**
 * With the runtime away for hours, pods that come and go by force would fill memory. What is dropped then, the oldest,
 * was never started, or is found among the running pods and ended all the same.
 */
export const MAX_VANISHED_PODS = 500;

/** A Pod object that has changed, or was not read yet by this agent. */
export interface ArrivedPod {
  /** `metadata.uid` */
  readonly uid: string;
  /** `undefined`: it cannot be run as it is. */
  readonly pod: Pod | undefined;
  /** Set when its deletion was requested. */
  readonly deletion: { readonly timestamp: string; readonly graceSeconds: number | undefined } | undefined;
  /** Conditions that other writers than this node have set. */
  readonly conditions: readonly PodCondition[] | undefined;
}

export interface ApiPodsInput {
  /** The pods of source `api` as they are. */
  readonly before: ApiPods;
  /** The UID of every Pod object there is now, but of mirror pods. */
  readonly objects: ReadonlyMap<ObjectKey, string>;
  readonly arrived: ReadonlyMap<ObjectKey, ArrivedPod>;
  /** True when all of its containers have ended for good. */
  readonly isFinished: (uid: PodUid) => boolean;
  /** Some pod of this node has, or just had, this uid. */
  readonly isTaken: (uid: PodUid) => boolean;
  /** Nothing is left of the pod that the API server calls so, and that has not drawn the consequence yet. */
  readonly isGone: (apiUid: string) => boolean;
}

export const podKeyOf = ({ pod }: DesiredPod): ObjectKey => objectKey("Pod", pod.metadata.namespace, pod.metadata.name);

/**
 * - An object whose pod is known changes it; once that pod's end has begun, nothing brings it back.
 * - An object under a UID that is not known takes over what runs under its name, if that is as it would be itself and
 *   is not about to end; else it is a pod of its own, and what has its name ends.
 * - A pod whose object is not there any more is ended at once.
 */
export function apiPods(input: ApiPodsInput): ApiPods {
  const next = new Successors(input);
  for (const desired of input.before.removed) next.ending(desired);
  for (const desired of input.before.wanted) next.running(desired);
  for (const [key, arrived] of input.arrived) next.arriving(key, arrived);
  return next.pods;
}

class Successors {
  readonly #input: ApiPodsInput;
  readonly #wanted: DesiredPod[] = [];
  readonly #removed: DesiredPod[] = [];
  /** Pods whose object does not exist any more, the latest last. */
  readonly #vanished: DesiredPod[] = [];
  /** Objects that have a pod. */
  readonly #settled = new Set<ObjectKey>();
  readonly #uids = new Set<PodUid>();

  constructor(input: ApiPodsInput) {
    this.#input = input;
  }

  get pods(): ApiPods {
    return { wanted: this.#wanted, removed: [...this.#vanished.slice(-MAX_VANISHED_PODS), ...this.#removed] };
  }

  ending(desired: DesiredPod): void {
    const key = podKeyOf(desired);
    this.#uids.add(desired.uid);
    if (this.#input.objects.get(key) !== apiUidOf(desired)) {
      this.#vanished.push(hurried(desired));
      return;
    }
    const came = this.#input.arrived.get(key);
    const deletion = came?.deletion;
    this.#removed.push(deletion === undefined ? desired : deleted(withConditions(desired, came?.conditions), deletion));
    // An object that is not being deleted, or not any more, has its pod started again beside the one that ends.
    const isWantedAgain = this.#input.arrived.has(key) && deletion === undefined;
    if (!isWantedAgain) this.#settled.add(key);
  }

  running(desired: DesiredPod): void {
    const { objects, arrived, isFinished } = this.#input;
    const key = podKeyOf(desired);
    const uid = objects.get(key);
    const came = arrived.get(key);
    this.#uids.add(desired.uid);
    const isSame = uid === apiUidOf(desired);
    const isSuccessor =
      !isSame && came?.pod !== undefined && canAdoptPod(desired.pod, came.pod) && !isFinished(desired.uid);
    if (!isSame && !isSuccessor) {
      this.#vanished.push(hurried(desired));
      return;
    }
    this.#settled.add(key);
    const pod = came?.pod === undefined ? desired.pod : copyRandomNames(came.pod, desired.pod);
    const next: DesiredPod = came?.pod === undefined ? desired : withConditions({ ...desired, pod }, came.conditions);
    if (came?.deletion === undefined) this.#wanted.push(next);
    else this.#removed.push(deleted(next, came.deletion));
  }

  arriving(key: ObjectKey, { uid, pod, deletion, conditions }: ArrivedPod): void {
    if (this.#settled.has(key) || pod === undefined || this.#input.isGone(uid)) return;
    const uidHere = this.#freeUid(uid);
    const desired = withConditions({ uid: uidHere, source: "api", origin: "", pod }, conditions);
    this.#uids.add(desired.uid);
    if (deletion === undefined) this.#wanted.push(desired);
    else this.#removed.push(desired);
  }

  /** The API server's uid where it is free, because users search the disk for it. */
  #freeUid(apiUid: string): PodUid {
    for (let n = 0; ; n += 1) {
      const uid = podUid(n === 0 ? apiUid : `${apiUid}.${n}`);
      if (!this.#uids.has(uid) && !this.#input.isTaken(uid)) return uid;
    }
  }
}

function hurried(desired: DesiredPod): DesiredPod {
  const { metadata, spec } = desired.pod;
  const grace = metadata.deletionGracePeriodSeconds ?? spec.terminationGracePeriodSeconds;
  return grace <= FORCED_GRACE_SECONDS
    ? desired
    : withMetadata(desired, { deletionGracePeriodSeconds: FORCED_GRACE_SECONDS });
}

function deleted(desired: DesiredPod, { timestamp, graceSeconds }: NonNullable<ArrivedPod["deletion"]>): DesiredPod {
  const { deletionTimestamp, deletionGracePeriodSeconds } = desired.pod.metadata;
  if (deletionTimestamp === timestamp && deletionGracePeriodSeconds === graceSeconds) return desired;
  const grace = graceSeconds === undefined ? {} : { deletionGracePeriodSeconds: graceSeconds };
  return withMetadata(desired, { deletionTimestamp: timestamp, ...grace });
}

function withConditions(desired: DesiredPod, conditions: ArrivedPod["conditions"]): DesiredPod {
  const { conditions: _, ...others } = desired;
  return conditions === undefined ? others : { ...others, conditions };
}

const withMetadata = (desired: DesiredPod, metadata: Partial<Pod["metadata"]>): DesiredPod => ({
  ...desired,
  pod: { ...desired.pod, metadata: { ...desired.pod.metadata, ...metadata } },
});
