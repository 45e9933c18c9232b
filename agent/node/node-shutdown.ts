import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import type { PodEnder } from "../core/pods/pod-admission.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import {
  type ShutdownGroup,
  type ShutdownPeriod,
  samePeriod,
  shutdownGroups,
  totalPeriod,
} from "../plan/node/shutdown-groups.ts";

export type ShutdownState =
  | { readonly kind: "running" }
  /** Pods are being ended; nothing new comes. */
  | { readonly kind: "ending" }
  /** All that was to be ended has been, or its time was over. */
  | { readonly kind: "ended" };

export type ShutdownEvent = { readonly kind: "begun" } | { readonly kind: "done" } | { readonly kind: "cancelled" };

/** An event that means nothing in a state leaves it as it is. */
export function transition(state: ShutdownState, event: ShutdownEvent): ShutdownState {
  switch (event.kind) {
    case "begun":
      return state.kind === "running" ? { kind: "ending" } : state;
    case "done":
      return state.kind === "ending" ? { kind: "ended" } : state;
    case "cancelled":
      return state.kind === "running" ? state : { kind: "running" };
  }
}

/**
 * The hub acknowledges a status within a round trip of a slow link; a status that it does not get waits for the next
 * start of the board.
 */
const DELIVERY_LIMIT = seconds(2);
const REASON = "Terminated";
/** The message of the pods' status and of its condition DisruptionTarget. */
const SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown.";

export interface NodeShutdownComponents {
  readonly ender: () => PodEnder;
  /** The desired pods of this node. */
  readonly pods: () => readonly DesiredPod[];
  /** Static pods that a shutdown has ended run again: it was cancelled. */
  readonly revive: () => void;
  /** Waits until the hub has the statuses of all pods. Missing: there is no hub. */
  readonly statusesDelivered?: ((signal: AbortSignal) => Promise<void>) | undefined;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface NodeShutdownInit {
  readonly nodeName: string;
  /** Empty: `begin` refuses. */
  readonly periods: readonly ShutdownPeriod[];
}

/** Ends the node's pods in the order of their priority, each group within its time, and lets nothing new start. */
export class NodeShutdown implements NodeShutdownControl, Component {
  readonly name = "node shutdown";
  readonly #components: NodeShutdownComponents;
  readonly #init: NodeShutdownInit;
  readonly #state = new WatchSource<ShutdownState>({ kind: "running" });
  readonly #life = joinSignals();
  #current: { readonly abort: () => void; readonly done: Promise<void> } | undefined;

  constructor(components: NodeShutdownComponents, init: NodeShutdownInit) {
    this.#components = components;
    this.#init = init;
  }

  get state(): Watch<ShutdownState> {
    return this.#state;
  }

  get isShuttingDown(): boolean {
    return this.#state.current.kind !== "running";
  }

  /**
   * @param why who says so, for the log
   * @param period in place of the configured time
   * @throws `conflict` when there is no time for it
   */
  async begin(why: string, period?: Millis): Promise<void> {
    const { nodeName } = this.#init;
    const periods = period === undefined ? this.#init.periods : samePeriod(period);
    if (periods.length === 0) {
      const message = `cannot shut down ${nodeName} gracefully: shutdownGracePeriod is 0`;
      throw new PicoletError("conflict", message);
    }
    if (this.#happened({ kind: "begun" })) {
      this.#components.log.info("the node is shutting down: its pods are being ended", { why });
      this.#components.decisions?.record({ kind: "shutdownBegan", cause: publicName(why) });
      this.#event("Shutdown manager detected shutdown event");
      const stop = joinSignals(this.#life.signal);
      const done = this.#endAll(periods, stop.signal).finally(() => stop[Symbol.dispose]());
      this.#current = { abort: () => stop.abort(), done };
    }
    await this.#current?.done;
  }

  async cancel(): Promise<void> {
    const current = this.#current;
    if (!this.#happened({ kind: "cancelled" })) return;
    this.#components.log.info("the shutdown was cancelled: the node is back");
    this.#components.decisions?.record({ kind: "shutdownCancelled" });
    this.#event("Shutdown manager detected shutdown cancellation");
    this.#current = undefined;
    current?.abort();
    await current?.done;
    if (!this.isShuttingDown) this.#components.revive();
  }

  async run(signal: AbortSignal): Promise<void> {
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#current?.done;
  }

  #happened(event: ShutdownEvent): boolean {
    const before = this.#state.current;
    const next = transition(before, event);
    if (next === before) return false;
    this.#state.set(next);
    this.#mark(event);
    return true;
  }

  #mark({ kind }: ShutdownEvent): void {
    const { counts, clock } = this.#components;
    const now = clock.wall().getTime() / 1000;
    if (kind === "begun") counts?.mark("kubelet_graceful_shutdown_start_time_seconds", now);
    else if (kind !== "cancelled") counts?.mark("kubelet_graceful_shutdown_end_time_seconds", now);
  }

  async #endAll(periods: readonly ShutdownPeriod[], signal: AbortSignal): Promise<void> {
    const { log, pods, clock } = this.#components;
    const until = clock.monotonic() + totalPeriod(periods);
    for (const group of shutdownGroups(periods, pods())) {
      if (signal.aborted) return;
      await this.#endGroup(group, signal);
    }
    if (signal.aborted) return;
    log.info("the pods have been ended for the shutdown");
    this.#components.decisions?.record({ kind: "shutdownDone" });
    this.#happened({ kind: "done" });
    const left = until - clock.monotonic();
    if (left > 0) await this.#deliverStatuses(millis(Math.min(left, DELIVERY_LIMIT)), signal);
  }

  /** The machine may be off for long: until it is back, the hub shows what it knows of the pods. */
  async #deliverStatuses(limit: Millis, signal: AbortSignal): Promise<void> {
    const { clock, log, statusesDelivered } = this.#components;
    if (statusesDelivered === undefined) return;
    try {
      await withDeadline(clock, limit, "send the last statuses of pods", statusesDelivered, signal);
    } catch (error) {
      if (!isCancelled(error))
        log.warn("the hub has not got the last statuses of pods", { error: describeError(error) });
    }
  }

  /**
   * Ends a group of pods. Resolves when all have ended, or when the group's time is over; those that still run are
   * being ended by then.
   */
  async #endGroup({ pods, period, priority }: ShutdownGroup, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const ends = Promise.all(pods.map((pod) => this.#end(pod, period, this.#life.signal)));
    using waiting = joinSignals(signal);
    const timeIsOver = clock.sleep(period, waiting.signal).then(
      () => true,
      () => false,
    );
    const isLate = await Promise.race([ends.then(() => false), timeIsOver]);
    waiting.abort();
    if (isLate) log.warn("the time of a group of pods is over", { priority, seconds: period / 1000 });
  }

  async #end({ uid, pod }: DesiredPod, period: Millis, signal: AbortSignal): Promise<void> {
    const gracePeriod = millis(Math.min(period, pod.spec.terminationGracePeriodSeconds * 1000));
    const disruption = { reason: "TerminationByKubelet", message: SHUTDOWN_MESSAGE };
    try {
      const decision = { kind: "shutDown", figures: { graceMs: gracePeriod } } as const;
      const how = { reason: REASON, message: SHUTDOWN_MESSAGE, gracePeriod, disruption, decision };
      await this.#components.ender().end(uid, how, signal);
    } catch (error) {
      if (isCancelled(error)) return;
      this.#components.log.error("cannot end a pod for the shutdown", { pod: uid, error: describeError(error) });
    }
  }

  #event(message: string): void {
    const { nodeName: name } = this.#init;
    const regarding = nodeReference(name);
    this.#components.events.record({ regarding, type: "Normal", reason: "NodeShutdown", message });
  }
}
