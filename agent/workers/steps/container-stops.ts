import { cancelled, type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import type { LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { HookRunner, HookTarget } from "../../core/pods/probe-ports.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import { stoppedDecision } from "../../plan/decisions.ts";
import type { StopContainer } from "../../plan/pod-view.ts";
import type { StopMemory } from "../../plan/worker-memory.ts";
import type { PodEvents } from "../ports/pod-events.ts";
import type { WorkerAccess } from "./worker-access.ts";

/** A container gets at least this much after SIGTERM, even if its hook used up the grace period; as in the kubelet. */
const MINIMUM_GRACE = seconds(2);

export interface ContainerStopsComponents {
  readonly clock: Clock;
  readonly events: PodEvents;
  readonly decisions: DecisionRecorder;
  readonly hooks: HookRunner;
}

export interface StopOrder {
  readonly action: StopContainer;
  readonly desired: DesiredPod;
  /** Runs once for each container, even if the stop is started again. */
  readonly preStop: { readonly handler: LifecycleHandler; readonly target: HookTarget } | undefined;
  /** Resolves when the containers that must end before this one have ended. */
  readonly turn: Promise<unknown>;
  /** Calls the runtime. */
  readonly stop: (gracePeriod: Millis) => Promise<void>;
  /** Aborts with the round; the hook continues. */
  readonly signal: AbortSignal;
  readonly life: AbortSignal;
}

interface Hook {
  readonly done: Promise<void>;
  readonly life: JoinedSignal;
}

/**
 * Stops one pod's containers, each with its preStop hook and its turn within the grace period (pkg/kubelet/
 * kuberuntime, killContainer). When a round is broken off because the pod has less time now, the next round continues:
 * the hook does not run twice, and the grace period goes on (`StopMemory`).
 */
export class ContainerStops {
  readonly #components: ContainerStopsComponents;
  readonly #worker: WorkerAccess;
  /** By container id, of stops that have begun. */
  readonly #hooks = new Map<string, Hook>();

  constructor(components: ContainerStopsComponents, worker: WorkerAccess) {
    this.#components = components;
    this.#worker = worker;
  }

  /** @throws what `stop` throws; `cancelled` when the round ends */
  async stop(order: StopOrder): Promise<void> {
    const { action, signal, turn } = order;
    const { until, hook } = this.#begin(order);
    const left = (): number => until - this.#components.clock.monotonic();
    if (hook !== undefined) {
      await this.#within(left(), hook.done, signal);
      hook.life.abort();
    }
    if (action.after.length > 0) await this.#within(left(), turn, signal);
    if (signal.aborted) throw cancelled("the stop");
    await order.stop(action.gracePeriod === 0 ? millis(0) : millis(Math.max(left(), MINIMUM_GRACE)));
  }

  /** Ends the hooks of containers that run no more. @param alive ids of all others */
  release(alive: ReadonlySet<string>): void {
    for (const [id, { life }] of this.#hooks) {
      if (alive.has(id)) continue;
      life.abort();
      this.#hooks.delete(id);
    }
  }

  #begin(order: StopOrder): { readonly until: number; readonly hook: Hook | undefined } {
    const { action, desired, preStop } = order;
    const { containerId, gracePeriod } = action;
    const isNew = stopOf(this.#worker, containerId) === undefined;
    const monotonic = this.#components.clock.monotonic();
    this.#worker.dispatch({ kind: "stopBegan", containerId, gracePeriod, monotonic });
    const until = stopOf(this.#worker, containerId)?.until ?? monotonic + gracePeriod;
    if (!isNew) return { until, hook: this.#hooks.get(containerId) };
    this.#components.events.record(desired, "Normal", "Killing", action.message, action.name);
    const decision = stoppedDecision(action);
    if (decision !== undefined) this.#components.decisions.record(decision, desired);
    if (preStop === undefined || !action.running || gracePeriod === 0) return { until, hook: undefined };
    const hook = this.#run(order, preStop);
    this.#hooks.set(containerId, hook);
    return { until, hook };
  }

  #run(order: StopOrder, { handler, target }: NonNullable<StopOrder["preStop"]>): Hook {
    const life = joinSignals(order.life);
    const done = this.#components.hooks
      .run(handler, target, life.signal)
      .catch((error: unknown) => {
        if (life.signal.aborted || isCancelled(error)) return;
        // The error's text stays out of the event: it may hold secrets.
        const { desired, action } = order;
        this.#components.events.record(desired, "Warning", "FailedPreStopHook", "PreStopHook failed", action.name);
      })
      .finally(() => life[Symbol.dispose]());
    return { done, life };
  }

  /** Waits for `done`, at most for `leftMs`. @throws `cancelled` */
  async #within(leftMs: number, done: Promise<unknown>, signal: AbortSignal): Promise<void> {
    if (leftMs <= 0) return;
    using timer = joinSignals(signal);
    const over = this.#components.clock.sleep(millis(leftMs), timer.signal).catch((error: unknown) => {
      if (signal.aborted) throw error;
    });
    await Promise.race([done, over]).finally(() => timer.abort());
  }
}

const stopOf = ({ state }: WorkerAccess, containerId: string): StopMemory | undefined =>
  state.kind === "gone" ? undefined : state.stops.get(containerId);
