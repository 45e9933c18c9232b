import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { applyGrants, grantsOf } from "../plan/allocation.ts";
import type { PendingResize, PodResizeView, PodView } from "../plan/pod-view.ts";
import { isResizing, resizeCompletedMessage } from "../plan/resize-status.ts";
import type { PodEvents } from "./ports/pod-events.ts";

/** Its first one: nothing has changed since it was made, so that its cgroup was made as it is to be. */
const FIRST_GENERATION = 1;

/** What one worker remembers of changes of its pod's resources. */
export class WorkerResize {
  readonly #events: PodEvents;
  #pending: PendingResize | undefined;
  #sized: boolean;
  #generation: number | undefined;
  /** Something was granted of which the end has not been told; `undefined`: an agent before this one may know. */
  #isUnderWay: boolean | undefined;

  constructor(events: PodEvents, { pod, source }: DesiredPod) {
    this.#events = events;
    const { generation = FIRST_GENERATION } = pod.metadata;
    // An agent before this one may have died in the middle.
    this.#sized = source !== "api" || generation <= FIRST_GENERATION;
  }

  get view(): PodResizeView {
    return { pending: this.#pending, sized: this.#sized, generation: this.#generation };
  }

  /** The worker's pod is another one now. @returns whether it has been granted other resources */
  follow(before: DesiredPod, { pod }: DesiredPod): boolean {
    if (applyGrants(pod, grantsOf(before.pod)) === pod) return false;
    this.#sized = false;
    this.#isUnderWay = true;
    this.#generation = pod.metadata.generation;
    return true;
  }

  /** What stands against what is wanted. @returns whether that is news. */
  judged(pending: PendingResize | undefined): boolean {
    const { reason, message, generation } = this.#pending ?? {};
    const isSame = pending?.reason === reason && pending?.message === message && pending?.generation === generation;
    this.#pending = pending;
    return !isSame;
  }

  /** All of it has been carried out as `of` is granted it. */
  done(of: DesiredPod, current: DesiredPod): void {
    if (applyGrants(current.pod, grantsOf(of.pod)) === current.pod) this.#sized = true;
  }

  /** Once the view has been published. @returns whether that was the end of a change */
  published(view: PodView, before: PodStatus | undefined): boolean {
    if (view.worker.kind !== "active" || view.observed === undefined) return false;
    const wasTold = before?.conditions?.some(({ type }) => type === "PodResizeInProgress") === true;
    const isUnderWay = isResizing(view) || !this.#sized;
    const wasUnderWay = this.#isUnderWay ?? wasTold;
    this.#isUnderWay = isUnderWay && (wasUnderWay || isResizing(view));
    const isDone = wasUnderWay && !isUnderWay;
    if (isDone) this.#events.record(view.desired, "Normal", "ResizeCompleted", resizeCompletedMessage(view));
    return isDone;
  }
}
