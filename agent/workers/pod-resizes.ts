import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type MonotonicMs, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodAdmission } from "../core/pods/pod-admission.ts";
import type { DesiredStore } from "../core/store/store-ports.ts";
import { compareResizeRequests, type ResizeRequest } from "../plan/admission/resize-admission.ts";
import type { PodStatusRecorder } from "../plan/pod-view.ts";
import type { PodWorker } from "./pod-worker.ts";

/** Deferred requests are judged again after each change, and at least this often, as in the kubelet. */
const RETRY_PERIOD = seconds(180);

/** Judges requests for other resources. A pod has at most one: the latest. */
export class PodResizes {
  readonly #components: {
    readonly store: DesiredStore;
    readonly admission: PodAdmission;
    readonly statuses: PodStatusRecorder;
    readonly clock: Clock;
    readonly log: Log;
  };
  readonly #worker: (uid: PodUid) => PodWorker | undefined;
  /** The other pods that the node has taken, with their granted resources. */
  readonly #others: (uid: PodUid) => readonly DesiredPod[];
  /** True when all pods of the pod's runtime are identified: before that, the free resources are unknown. */
  readonly #isSettled: (desired: DesiredPod) => boolean;
  /** Pods whose worker has the reason why its request is pending. */
  readonly #pending = new Set<PodUid>();
  #reviewedAt: MonotonicMs;

  constructor(
    components: {
      readonly store: DesiredStore;
      readonly admission: PodAdmission;
      readonly statuses: PodStatusRecorder;
      readonly clock: Clock;
      readonly log: Log;
    },
    pods: {
      readonly worker: (uid: PodUid) => PodWorker | undefined;
      readonly others: (uid: PodUid) => readonly DesiredPod[];
      readonly isSettled: (desired: DesiredPod) => boolean;
    },
  ) {
    this.#components = components;
    this.#worker = pods.worker;
    this.#others = pods.others;
    this.#isSettled = pods.isSettled;
    this.#reviewedAt = components.clock.monotonic();
  }

  /** Called regularly, without a change. */
  tick(): void {
    if (this.#components.clock.monotonic() - this.#reviewedAt >= RETRY_PERIOD) this.review();
  }

  /** Called when requests or free resources have changed. */
  review(): void {
    const { store, clock } = this.#components;
    this.#reviewedAt = clock.monotonic();
    const { requested } = store.desired.current;
    for (const uid of this.#pending) if (!requested.has(uid)) this.#settle(uid);
    if (requested.size === 0) return;
    const requests = [...requested.values()].map((each) => this.#request(each));
    for (const request of requests.toSorted(compareResizeRequests)) this.#judge(request);
  }

  #request(requested: DesiredPod): ResizeRequest {
    const { store, statuses } = this.#components;
    const { uid } = requested;
    const allocated = store.desired.current.pods.get(uid) ?? requested;
    const condition = statuses.previous(uid)?.conditions?.find(({ type }) => type === "PodResizePending");
    return { requested, allocated, since: condition?.lastTransitionTime ?? undefined };
  }

  #judge({ requested, allocated }: ResizeRequest): void {
    const { uid } = requested;
    const worker = this.#worker(uid);
    // A pod that is over needs no resources.
    if (worker?.state.kind !== "active" && worker?.state.kind !== "waiting") return;
    if (!this.#isSettled(requested)) return;
    const verdict = this.#components.admission.resize(requested, allocated, this.#others(uid));
    if (verdict.kind === "granted") {
      this.#grant(uid);
      return;
    }
    const { reason, message } = verdict;
    this.#pending.add(uid);
    worker.judged({ reason, message, generation: requested.pod.metadata.generation });
  }

  #grant(uid: PodUid): void {
    const { store, log } = this.#components;
    try {
      store.grant(uid);
    } catch (error) {
      // The disk is full. The next review tries again; until then the pod keeps its resources.
      log.warn("cannot grant a pod other resources", { pod: uid, error: describeError(error) });
      return;
    }
    this.#settle(uid);
  }

  #settle(uid: PodUid): void {
    this.#pending.delete(uid);
    this.#worker(uid)?.judged(undefined);
  }
}
