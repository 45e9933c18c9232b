import type { ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodEnd, PodLeave } from "../core/pods/pod-admission.ts";
import type { PodView } from "../plan/pod-view.ts";
import type { WorkerState } from "../plan/worker-state.ts";
import { EndWaiters } from "./end-waiters.ts";

/**
 * How somebody on this node has one pod end, leave its runtime or give up what is dead of it, and who waits for that.
 */
export class PodEndings {
  readonly #ends = new EndWaiters();
  #end: PodEnd | undefined;
  /** How it leaves the runtime that it is not to be run by any more, and who waits for that. */
  #leave: (PodLeave & { readonly left: EndWaiters }) | undefined;
  /** Who waits until nothing dead is kept for its log alone. */
  #reclaim: EndWaiters | undefined;

  get end(): PodEnd | undefined {
    return this.#end;
  }

  get leave(): PodLeave | undefined {
    return this.#leave;
  }

  get isReclaimed(): boolean {
    return this.#reclaim !== undefined;
  }

  /** Nothing of it runs any more, as it was seen last. */
  get isOver(): boolean {
    return this.#ends.isOver;
  }

  /** @returns whether it is to end now, or sooner than before */
  begin(how: PodEnd): boolean {
    const before = this.#end;
    const isShorter = (how.gracePeriod ?? Number.POSITIVE_INFINITY) < (before?.gracePeriod ?? Number.POSITIVE_INFINITY);
    if (this.isOver || (before !== undefined && !isShorter)) return false;
    this.#end = before === undefined ? how : { ...before, gracePeriod: how.gracePeriod };
    return true;
  }

  /** @throws `cancelled` alone */
  ended(signal: AbortSignal): Promise<void> {
    return this.#ends.wait(signal);
  }

  /** @returns when nothing of it runs in the runtime that it leaves. @throws `cancelled` alone */
  left(how: PodLeave, signal: AbortSignal): Promise<void> {
    this.#leave ??= { ...how, left: new EndWaiters() };
    return this.#leave.left.wait(signal);
  }

  /** @throws `cancelled` alone */
  reclaimed(signal: AbortSignal): Promise<void> {
    this.#reclaim ??= new EndWaiters();
    return this.#reclaim.wait(signal);
  }

  revived(): void {
    this.#end = undefined;
    this.#ends.settle(false);
  }

  /** A round of the worker begins. @returns what ends it: whether a reclaim has to have another one */
  round(): (changed: boolean) => boolean {
    const reclaim = this.#reclaim;
    return (changed) => {
      // What may go is known only once the pod is seen to be over: a round that found that out has taken nothing away
      // yet.
      if (changed) return reclaim !== undefined;
      reclaim?.settle(true);
      if (this.#reclaim === reclaim) this.#reclaim = undefined;
      return false;
    };
  }

  /** Nobody waits for it any more, but for the pod's end unless that has come: `isGone`, nothing is left of it. */
  workerEnded(isGone: boolean): void {
    this.#leave?.left.settle(true);
    this.#reclaim?.settle(true);
    if (isGone) this.#ends.settle(true);
  }

  /** Its memory is free when nothing of it runs in the runtime that it leaves; what is left there goes by and by. */
  seenLeaving({ leaving, worker }: PodView, { containers }: ObservedPod): void {
    if (this.#leave === undefined) return;
    const isOver = worker.kind !== "active" || leaving === undefined;
    if (isOver || !containers.some(({ state }) => state.kind === "running")) this.#leave.left.settle(true);
    // Nothing of it is there any more, or it is not to leave after all.
    if (leaving === undefined) this.#leave = undefined;
  }

  seen(worker: WorkerState, { containers }: ObservedPod): void {
    const runs = containers.some(({ state }) => state.kind === "running");
    this.#ends.settle(!runs && (worker.kind === "finished" || worker.kind === "terminating"));
  }
}
