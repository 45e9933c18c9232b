import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import { publicMessage } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, ignore, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { type MonotonicMs, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodEnd, PodLeave } from "../core/pods/pod-admission.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import { applyGrants, grantsOf } from "../plan/allocation.ts";
import { containersOf } from "../plan/container-roles.ts";
import {
  changesOf,
  endDecision,
  heldBackDecision,
  heldResize,
  removedDecision,
  turnsOf,
  waitOf,
} from "../plan/decisions.ts";
import { gracePeriodOf } from "../plan/grace-period.ts";
import { DEADLINE_EXCEEDED, podEndOutcome, wasAdmitted } from "../plan/outcome.ts";
import { type Plan, type PlanAction, type PodView, stepOf } from "../plan/pod-view.ts";
import { isResizing, resizeCompletedMessage } from "../plan/resize-status.ts";
import { retryDelay } from "../plan/retry-delay.ts";
import { NO_EFFECT } from "../plan/worker-memory.ts";
import { initialState, type PendingResize, type WorkerEvent, type WorkerState } from "../plan/worker-state.ts";
import { transition } from "../plan/worker-transition.ts";
import { updateProbes } from "./followed-probes.ts";
import { PodInspection } from "./pod-inspection.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { hasSamePreparation } from "./prepared-pods.ts";
import { hasLeft, isOver, isReclaimed, StateWaiters } from "./state-waiters.ts";
import { ContainerStops } from "./steps/container-stops.ts";
import { PodImages } from "./steps/pod-images.ts";
import { identityOf, PodSteps } from "./steps/pod-steps.ts";
import { nextFailure } from "./steps/step-failures.ts";
import type { StepContext, StepListener } from "./steps/step-run.ts";
import { readMessages } from "./termination-messages.ts";
import { WorkerRounds } from "./worker-rounds.ts";
import { previousStatus, viewOf } from "./worker-view.ts";

/** The key of the failures of a change of resources. */
const RESIZE = stepOf({ kind: "resize", containers: [] });
const NOTHING_DONE: ReadonlySet<string> = new Set();

/**
 * Runs rounds of inspect, plan, act for one pod until nothing of it is left. The only caller of `adapter.apply`. Its
 * state is one `WorkerState`; beside it are only the pod as its source wants it, calls, timers and promises.
 */
export class PodWorker implements StepListener {
  readonly #ports: WorkerPorts;
  readonly #rounds: WorkerRounds;
  readonly #waiters = new StateWaiters();
  readonly #inspection: PodInspection;
  readonly #images: PodImages;
  readonly #stops: ContainerStops;
  readonly #steps: PodSteps;
  readonly #seenAt: MonotonicMs;
  #hasRun = false;
  #desired: DesiredPod;
  #hashes: ReadonlyMap<string, string>;
  #state: WorkerState;

  constructor(ports: WorkerPorts, desired: DesiredPod, wanted: boolean) {
    this.#ports = ports;
    this.#seenAt = ports.clock.monotonic();
    this.#desired = desired;
    this.#hashes = hashesOf(desired);
    this.#state = initialState(desired);
    this.#rounds = new WorkerRounds(ports.clock);
    this.#inspection = new PodInspection(ports, desired.uid, this);
    this.#images = new PodImages(ports, () => this.poke());
    this.#stops = new ContainerStops(ports, this);
    this.#steps = new PodSteps(ports, { images: this.#images, stops: this.#stops, listener: this });
    if (!wanted) {
      this.#remove();
      this.occupyName();
    }
    this.poke();
  }

  get uid(): PodUid {
    return this.#desired.uid;
  }

  get desired(): DesiredPod {
    return this.#desired;
  }

  get state(): WorkerState {
    return this.#state;
  }

  /** `containerHash` by container name. */
  get hashes(): ReadonlyMap<string, string> {
    return this.#hashes;
  }

  dispatch(event: WorkerEvent): void {
    this.#enter(transition(this.#state, event));
  }

  #enter(next: WorkerState): void {
    if (next === this.#state) return;
    this.#state = next;
    this.#waiters.settle(next);
  }

  /** True when the node has taken the pod and it is not over: the pod counts against the node's room. */
  get isTaken(): boolean {
    if (this.#state.kind === "waiting") return wasAdmitted(this.#desired, this.#ports.statuses.previous(this.uid));
    return !isOver(this.#state, false);
  }

  get #isBeforeEnd(): boolean {
    return this.#state.kind === "waiting" || this.#state.kind === "active";
  }

  /** Takes the name for a pod that may have traces on this node. */
  occupyName(): void {
    this.#ports.names.occupy(this.#desired);
  }

  #record(decision: Decision): void {
    this.#ports.decisions.record(decision, this.#desired);
  }

  /** Something may have changed. A poke in the middle of a round makes another round due after it. */
  poke(why?: "hint" | "relist"): void {
    if (why === "hint") this.dispatch({ kind: "hinted" });
    if (why !== undefined) this.dispatch({ kind: "touched" });
    this.#rounds.dueIn(millis(0));
  }

  /**
   * Follows the pod's sources. A pod that is no longer wanted drops what it is doing, however long that would take; so
   * does a pod that is being removed and gets a shorter grace period.
   */
  want(desired: DesiredPod, wanted: boolean): void {
    const wasTerminating = this.#state.kind === "terminating" || this.#state.kind === "gone";
    const isRemoved = !wanted && !wasTerminating;
    if (desired === this.#desired && !isRemoved) return;
    const isShortened = gracePeriodOf(desired.pod) < gracePeriodOf(this.#desired.pod);
    if (desired !== this.#desired) this.#respecify(desired);
    if (isRemoved) {
      this.#record(removedDecision(desired));
      this.#remove();
      this.#dropWork();
    } else if (!wanted && isShortened) {
      // A stop that is under way has the longer time.
      this.#rounds.breakOff();
    }
    this.poke();
  }

  #respecify(to: DesiredPod): void {
    const from = this.#desired;
    this.#desired = to;
    this.#hashes = hashesOf(to);
    const { pod } = to;
    for (const change of changesOf(from, to)) this.#record(change);
    if (applyGrants(pod, grantsOf(from.pod)) !== pod) {
      this.dispatch({ kind: "granted", generation: pod.metadata.generation });
      // A change that was impossible before may be possible now.
      this.dispatch({ kind: "failureCleared", step: RESIZE });
    }
    if (this.#state.kind !== "active" || this.#state.preparedFor !== from) return;
    this.dispatch({ kind: "respecified", from, to, isPreparationKept: hasSamePreparation(from, to) });
  }

  #remove(): void {
    const { clock } = this.#ports;
    this.dispatch({ kind: "removed", monotonic: clock.monotonic(), wallMs: clock.wall().getTime() });
  }

  #dropWork(): void {
    this.#rounds.breakOff();
    this.#images.abandon();
  }

  /** Tells the worker why the pod does not get the resources that its source wants; `undefined`: it has them. */
  judged(pending: PendingResize | undefined): void {
    const before = this.#state;
    this.dispatch({ kind: "judged", pending });
    if (this.#state === before) return;
    if (pending !== undefined) this.#record(heldResize(pending));
    this.poke();
  }

  /** Objects that the API server gives this node have changed. */
  objectsChanged(): void {
    const before = this.#state;
    this.dispatch({ kind: "objectsChanged", monotonic: this.#ports.clock.monotonic() });
    if (this.#state !== before) this.poke();
  }

  /** @see StepListener */
  resized(pod: DesiredPod): void {
    if (applyGrants(this.#desired.pod, grantsOf(pod.pod)) === this.#desired.pod) this.dispatch({ kind: "cgroupSized" });
  }

  /** @see PodEnder */
  end(how: PodEnd, signal: AbortSignal): Promise<void> {
    const before = this.#state;
    this.dispatch({ kind: "ended", outcome: podEndOutcome(how), gracePeriod: how.gracePeriod });
    if (this.#state !== before) {
      if (before.kind === "waiting" || before.kind === "active") this.#record(endDecision(how));
      this.#dropWork();
      this.poke();
      if (before.kind === "active" && before.observed !== undefined) this.#publishEnd(before.observed);
    }
    return this.#waiters.wait(isOver, this.#state, signal);
  }

  /**
   * Published before any container is stopped, from the last inspection, because the runtime may be short of memory
   * itself. If this agent dies in the middle, the next one continues the end. A pod that was never inspected is
   * published after its first inspection.
   */
  #publishEnd(observed: ObservedPod): void {
    const { statuses } = this.#ports;
    statuses.publish(viewOf(this.#ports, this, { adapter: this.#ports.adapterOf(this.#desired), observed }));
    statuses.flush();
  }

  /** @see PodMover */
  leave(how: PodLeave, signal: AbortSignal): Promise<void> {
    if (how.comesBack === true && this.#isBeforeEnd) {
      const by = how.user === undefined ? "" : ` by ${how.user}`;
      const message = `Restarting all containers in a new sandbox, as was asked for on the board${by}`;
      this.#ports.events.record(this.#desired, "Normal", "Restarting", message);
    }
    this.dispatch({ kind: "leaveRequested", gracePeriod: how.gracePeriod, comesBack: how.comesBack === true });
    this.#dropWork();
    this.poke();
    return this.#waiters.wait(hasLeft, this.#state, signal);
  }

  /** Runs the pod again if the node has ended or rejected it. */
  revive(): void {
    const before = this.#state;
    this.dispatch({ kind: "revived" });
    if (this.#state === before) return;
    this.#record({ kind: "revived" });
    this.#rounds.breakOff();
    this.poke();
  }

  /** Removes dead containers kept only for their logs. Resolves after a round for it. @throws `cancelled` alone */
  reclaim(signal: AbortSignal): Promise<void> {
    this.dispatch({ kind: "reclaimRequested" });
    this.poke();
    return this.#waiters.wait(isReclaimed, this.#state, signal);
  }

  /** Resolves when nothing of the pod is left. @throws `cancelled` alone */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (this.#state.kind !== "gone") {
        await this.#rounds.due(signal);
        await this.#round(signal);
      }
    } finally {
      this.#images.abandon();
      this.#waiters.settle(this.#state, true);
    }
  }

  async #round(life: AbortSignal): Promise<void> {
    const before = this.#state.kind;
    const began = this.#ports.clock.monotonic();
    let result: "done" | "brokenOff" | "faulted" = "brokenOff";
    this.dispatch({ kind: "roundBegan" });
    try {
      await this.#rounds.run((signal) => this.#inspectPlanAct(signal, life), life);
      result = "done";
    } catch (error) {
      if (life.aborted) throw error;
      if (!isCancelled(error)) {
        result = "faulted";
        this.#reportFault(error);
      }
    } finally {
      this.#countRound(before, began);
      const isPhaseChanged = this.#state.kind !== before;
      const isReclaiming = this.#state.kind !== "gone" && this.#state.reclaim === "underWay";
      this.dispatch({ kind: "roundEnded", result, isPhaseChanged });
      if (isReclaiming && isPhaseChanged) this.poke();
    }
  }

  /** The kubelet's operations: creation is the first round, and the end of a pod is `terminated` when all of it is gone. */
  #countRound(before: WorkerState["kind"], began: MonotonicMs): void {
    const { counts, clock } = this.#ports;
    const operation = before === "waiting" ? "create" : before === "terminating" ? "kill" : "sync";
    const now = clock.monotonic();
    if (!this.#hasRun) counts?.observe("kubelet_pod_worker_start_duration_seconds", began - this.#seenAt);
    this.#hasRun = true;
    const name = this.#state.kind === "gone" ? "terminated" : operation;
    counts?.observe("kubelet_pod_worker_duration_seconds", now - began, name);
  }

  /** A fault of ours that this pod has revealed must not end the other workers. */
  #reportFault(error: unknown): void {
    const { log, events, random } = this.#ports;
    // An error of our own with a code explains itself; any other needs its stack.
    const isOwn = isPicoletError(error) && error.code !== "internal";
    const stack = error instanceof Error && !isOwn ? { stack: error.stack ?? "" } : {};
    this.#record({ kind: "faulted", message: publicMessage(describeError(error)) });
    const { namespace, name } = this.#desired.pod.metadata;
    const fields = { pod: this.uid, namespace, name, error: describeError(error), ...stack };
    log.error("cannot go on with a pod for now", fields);
    events.record(this.#desired, "Warning", "FailedSync", `error syncing pod: ${describeError(error)}`);
    const faults = this.#state.kind === "gone" ? 0 : this.#state.faults;
    this.#rounds.dueIn(retryDelay(faults + 1, random));
  }

  /** @param life of the worker, for work that outlasts the round */
  async #inspectPlanAct(signal: AbortSignal, life: AbortSignal): Promise<void> {
    const adapter = this.#ports.adapterOf(this.#desired);
    const observed = await this.#inspection.inspect(adapter, signal);
    const view = this.#observe(adapter, observed);
    const plan = this.#ports.planPod(view);
    this.#adopt(view, plan.next, adapter);
    if (observed !== undefined) {
      this.dispatch({ kind: "planned", steps: new Set([...plan.held, ...plan.actions.map(stepOf)]) });
    }
    const work = this.#act(this.#dropFutile(plan), { view, adapter, signal, life });
    try {
      // Published while the first call is under way: the call must not wait for it.
      this.#publish({ ...view, worker: plan.next });
      this.#wakeFor(plan, observed);
      this.#reportBackOffs(plan);
      await this.#finish(work, plan, { adapter, signal });
    } finally {
      // The next round begins when nothing of this one is under way any more.
      await work.catch(ignore("`#finish` has thrown it, or ended the work"));
    }
  }

  /** Enters the planned state. @param view from which it was planned */
  #adopt(view: PodView, next: WorkerState, adapter: RuntimeAdapter | undefined): void {
    this.#enter(next);
    for (const turn of turnsOf(view, next)) this.#record(turn);
    if (next.kind !== "finished" || view.worker.kind === "finished") return;
    this.#images.abandon();
    if (view.observed !== undefined) this.#updateProbes(adapter, view.observed, view.previous);
    const { reason, message } = next.outcome;
    const { events } = this.#ports;
    if (next.outcome === DEADLINE_EXCEEDED) events.record(view.desired, "Normal", reason, message);
    if (view.rejection !== undefined) {
      events.record(view.desired, "Warning", view.rejection.reason, view.rejection.message);
      this.#ports.counts?.add("kubelet_admission_rejections_total", view.rejection.reason);
    }
  }

  #publish(view: PodView): void {
    const { statuses, placement, released } = this.#ports;
    statuses.publish(view);
    this.#countStart(view);
    const { observed } = view;
    if (observed === undefined) return;
    if (this.#isResizeCompleted(view)) {
      this.#record({ kind: "resized" });
      this.#ports.events.record(view.desired, "Normal", "ResizeCompleted", resizeCompletedMessage(view));
      released();
    }
    const wasTaken = this.isTaken;
    this.dispatch({ kind: "published", observed, isLeaving: view.leaving !== undefined });
    if (!wasTaken || this.isTaken) return;
    placement?.release(this.uid);
    released();
  }

  #countStart({ previous }: PodView): void {
    const { statuses, counts, clock } = this.#ports;
    if (previous?.phase === "Running" || counts === undefined) return;
    if (statuses.previous(this.uid)?.phase !== "Running" || previous === undefined) return;
    counts.observe("kubelet_pod_start_duration_seconds", clock.monotonic() - this.#seenAt);
  }

  /** @returns whether this view shows the end of a change of resources */
  #isResizeCompleted(view: PodView): boolean {
    const before = this.#state;
    if (before.kind !== "active") return false;
    const wasReported = view.previous?.conditions?.some(({ type }) => type === "PodResizeInProgress") === true;
    const { progress } = before.resize;
    this.dispatch({ kind: "resizeObserved", isResizing: isResizing(view), wasReported });
    const wasUnderWay = progress === "underWay" || (progress === "unknown" && wasReported);
    return wasUnderWay && this.#state.kind === "active" && this.#state.resize.progress === "idle";
  }

  /** Records the kubelet's event of each container that waits before it starts again, once for each wait. */
  #reportBackOffs({ backingOff = [] }: Plan): void {
    for (const { name, attempt } of backingOff) {
      if (this.#state.kind !== "active" || this.#state.backOffs.get(name) === attempt) continue;
      this.#record(heldBackDecision({ name, attempt }, waitOf(this.#state, name, this.#ports.clock.monotonic())));
      this.dispatch({ kind: "backOffReported", name, attempt });
      const { namespace, name: pod } = this.#desired.pod.metadata;
      const container = `container ${name} in pod ${pod}_${namespace}(${apiUidOf(this.#desired)})`;
      const message = `Back-off restarting failed ${container}`;
      this.#ports.events.record(this.#desired, "Warning", "BackOff", message, name);
    }
  }

  /**
   * Waits for the work of the round. While a pod is ending, changes of its containers are published as they happen. In
   * all other rounds they wait for the work, for instance for a hook, unless the pod's own deadline cuts it short.
   */
  async #finish(
    work: Promise<void>,
    { deadlineAt, actions }: Plan,
    { adapter, signal }: { readonly adapter: RuntimeAdapter | undefined; readonly signal: AbortSignal },
  ): Promise<void> {
    using busy = joinSignals(signal);
    const done = work.finally(() => busy.abort());
    done.catch(ignore("it is awaited below, or the deadline has ended it"));
    if (deadlineAt !== undefined && actions.length > 0) {
      const left = millis(Math.max(0, deadlineAt - this.#ports.clock.monotonic()));
      const expire = (): void => {
        this.#rounds.breakOff();
        this.poke();
      };
      this.#ports.clock.sleep(left, busy.signal).then(expire, ignore("the work ended before its deadline"));
    }
    const isEnding = this.#state.kind === "finished" || this.#state.kind === "terminating";
    if (isEnding && actions.some(({ kind }) => kind === "stopContainer")) await this.#watch(adapter, busy.signal);
    await done;
  }

  async #watch(adapter: RuntimeAdapter | undefined, busy: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await this.#rounds.due(busy);
        const observed = await this.#inspection.inspect(adapter, busy);
        this.#publish(this.#observe(adapter, observed));
        this.#recheck(observed);
      }
    } catch (error) {
      if (!busy.aborted || !isCancelled(error)) throw error;
      // A poke that arrived meanwhile is left to the next round.
      this.poke();
    }
  }

  async #act(actions: readonly PlanAction[], context: StepContext): Promise<void> {
    this.dispatch({ kind: "stepsTaken", done: NOTHING_DONE });
    if (actions.length === 0) return;
    this.dispatch({ kind: "touched" });
    const expect = (): void => {
      if (context.adapter !== undefined) this.#ports.observer.expect(context.adapter, this.uid);
    };
    expect();
    const { done, due } = await this.#steps.run(actions, context);
    this.dispatch({ kind: "stepsTaken", done });
    if (!due) return;
    expect();
    this.poke();
  }

  #wakeFor(plan: Plan, observed: ObservedPod | undefined): void {
    const now = this.#ports.clock.monotonic();
    if (plan.wakeAt !== undefined) this.#rounds.dueIn(millis(Math.max(0, plan.wakeAt - now)));
    const { retryAt } = this.#inspection;
    if (retryAt !== undefined) this.#rounds.dueIn(millis(Math.max(0, retryAt - now)));
    this.#recheck(observed);
  }

  #recheck(observed: ObservedPod | undefined): void {
    const wait = observed === undefined ? undefined : this.#inspection.takeRecheck();
    if (wait !== undefined) this.#rounds.dueIn(wait);
  }

  /** Passes an inspection on to hooks, messages and probes. @returns the view of it */
  #observe(adapter: RuntimeAdapter | undefined, observed: ObservedPod | undefined): PodView {
    if (observed !== undefined && this.#state.kind !== "gone") {
      const alive = new Set(observed.containers.filter((each) => each.state.kind !== "exited").map(({ id }) => id));
      this.dispatch({ kind: "stopsObserved", alive });
      this.#stops.release(alive);
      const messages = readMessages(this.#ports, this.#desired, { observed, known: this.#state.messages });
      this.dispatch({ kind: "messagesRead", messages });
      this.#updateProbes(adapter, observed, previousStatus(this.#ports, this, observed));
    }
    return viewOf(this.#ports, this, { adapter, observed });
  }

  #updateProbes(adapter: RuntimeAdapter | undefined, observed: ObservedPod, previous: PodStatus | undefined): void {
    const ending = this.#state.kind !== "waiting" && this.#state.kind !== "active";
    updateProbes(this.#ports, { desired: this.#desired, adapter, observed, previous, ending });
  }

  /** An action of the previous round that is planned again had no effect: it becomes a failure, and waits. */
  #dropFutile(plan: Plan): readonly PlanAction[] {
    const state = this.#state;
    if (state.kind === "waiting" || state.kind === "gone") return plan.actions;
    const isFutile = (action: PlanAction): boolean => action.kind !== "prepare" && state.done.has(identityOf(action));
    const index = plan.actions.findIndex(isFutile);
    const action = plan.actions[index];
    if (action === undefined) return plan.actions;
    const step = stepOf(action);
    const error = new PicoletError("failed", `cannot see any effect of ${step}`);
    const failure = nextFailure(state.failures, { step, error, reason: NO_EFFECT }, this.#ports);
    this.dispatch({ kind: "stepFailed", step, failure });
    this.poke();
    return plan.actions.slice(0, index);
  }
}

function hashesOf({ pod }: DesiredPod): ReadonlyMap<string, string> {
  return new Map(containersOf(pod).map((container) => [container.name, containerHash(container)]));
}
