import { cancelled, type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import type { LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { HookRunner, HookTarget } from "../../core/pods/probe-ports.ts";
import type { StopContainer } from "../../plan/pod-view.ts";
import type { PodEvents } from "../ports/pod-events.ts";

/** What a container gets at least once it has been told to end, whatever its hook has used up; the kubelet's. */
const MINIMUM_GRACE = seconds(2);

export interface StopOrder {
  readonly action: StopContainer;
  readonly desired: DesiredPod;
  /** Of the container; it is run once, however often the stop is begun. */
  readonly preStop: { readonly handler: LifecycleHandler; readonly target: HookTarget } | undefined;
  /** When those that are to end before it have. */
  readonly turn: Promise<unknown>;
  /** Tells the runtime to end it. */
  readonly stop: (gracePeriod: Millis) => Promise<void>;
  /** Of the round; the hook goes on without it. */
  readonly signal: AbortSignal;
  readonly life: AbortSignal;
}

interface Begun {
  /** Of the round that gave it the least. */
  gracePeriod: Millis;
  /** When it is over. */
  until: MonotonicMs;
  readonly hook: { readonly done: Promise<void>; readonly life: JoinedSignal } | undefined;
}

/**
 * The stops of one pod's containers, each with its preStop hook and its turn in what the grace period leaves
 * (pkg/kubelet/ kuberuntime, killContainer). A round that is cut off, because the pod has less time now, is followed by
 * one that goes on where this one was: the hook is not run twice, and the grace period goes on.
 */
export class ContainerStops {
  readonly #clock: Clock;
  readonly #events: PodEvents;
  readonly #hooks: HookRunner;
  /** By container id; of containers that run, as far as anybody has seen. */
  readonly #begun = new Map<string, Begun>();

  constructor(components: { readonly clock: Clock; readonly events: PodEvents; readonly hooks: HookRunner }) {
    this.#clock = components.clock;
    this.#events = components.events;
    this.#hooks = components.hooks;
  }

  /** @throws what `stop` throws; `cancelled` when the round ends. */
  async stop(order: StopOrder): Promise<void> {
    const { action, signal, turn } = order;
    const begun = this.#begun.get(action.containerId) ?? this.#begin(order);
    this.#shorten(begun, action.gracePeriod);
    const left = (): number => begun.until - this.#clock.monotonic();
    if (begun.hook !== undefined) {
      await this.#within(left(), begun.hook.done, signal);
      begun.hook.life.abort();
    }
    if (action.after.length > 0) await this.#within(left(), turn, signal);
    if (signal.aborted) throw cancelled("the stop");
    await order.stop(action.gracePeriod === 0 ? millis(0) : millis(Math.max(left(), MINIMUM_GRACE)));
  }

  /** Forgets those that have ended. */
  seen(observed: ObservedPod): void {
    if (this.#begun.size === 0) return;
    const running = new Set(observed.containers.filter((each) => each.state.kind !== "exited").map(({ id }) => id));
    for (const [id, { hook }] of this.#begun) {
      if (running.has(id)) continue;
      hook?.life.abort();
      this.#begun.delete(id);
    }
  }

  #begin(order: StopOrder): Begun {
    const { action, desired, preStop } = order;
    this.#events.record(desired, "Normal", "Killing", action.message, action.name);
    const runs = preStop !== undefined && action.running && action.gracePeriod > 0;
    const { gracePeriod } = action;
    const until = (this.#clock.monotonic() + gracePeriod) as MonotonicMs;
    const begun = { gracePeriod, until, hook: runs ? this.#run(order, preStop) : undefined };
    this.#begun.set(action.containerId, begun);
    return begun;
  }

  /** Less time counts from when it is given, and never makes it more. */
  #shorten(begun: Begun, gracePeriod: Millis): void {
    if (gracePeriod >= begun.gracePeriod) return;
    begun.gracePeriod = gracePeriod;
    begun.until = Math.min(begun.until, this.#clock.monotonic() + gracePeriod) as MonotonicMs;
  }

  #run(order: StopOrder, { handler, target }: NonNullable<StopOrder["preStop"]>): Begun["hook"] {
    const life = joinSignals(order.life);
    const done = this.#hooks
      .run(handler, target, life.signal)
      .catch((error: unknown) => {
        if (life.signal.aborted || isCancelled(error)) return;
        // Not what it said: it may hold what is not for everybody's eyes.
        this.#events.record(order.desired, "Warning", "FailedPreStopHook", "PreStopHook failed", order.action.name);
      })
      .finally(() => life[Symbol.dispose]());
    return { done, life };
  }

  /** Until it is done, or the time is over. @throws `cancelled` */
  async #within(leftMs: number, done: Promise<unknown>, signal: AbortSignal): Promise<void> {
    if (leftMs <= 0) return;
    using timer = joinSignals(signal);
    const over = this.#clock.sleep(millis(leftMs), timer.signal).catch((error: unknown) => {
      if (signal.aborted) throw error;
    });
    await Promise.race([done, over]).finally(() => timer.abort());
  }
}
