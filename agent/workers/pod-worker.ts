import { type JoinedSignal, joinSignals } from "../../protocol/async/abort.ts";
import { Alarm } from "../../protocol/async/alarm.ts";
import { containerHash } from "../../protocol/container-hash.ts";
import { describeError, isCancelled, PicoletError } from "../../protocol/errors.ts";
import type { PodStatus } from "../../protocol/pod.ts";
import { millis, type PodUid } from "../../protocol/ports.ts";
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { PodEnd, PodLeave } from "../core/pod-admission.ts";
import { apiUidOf } from "../core/pod-identity.ts";
import { mayChoose } from "../core/pod-runtime.ts";
import type { ProbeResult } from "../core/probe-ports.ts";
import { containersOf } from "../plan/container-roles.ts";
import { gracePeriodOf } from "../plan/grace-period.ts";
import { DEADLINE_EXCEEDED, isJudgedAgain, wasTaken } from "../plan/outcome.ts";
import { type PendingResize, type Plan, type PlanAction, type PodView, stepOf } from "../plan/pod-view.ts";
import { retryDelay } from "../plan/retry-delay.ts";
import { INITIAL_STATE, transition, type WorkerState } from "../plan/worker-state.ts";
import { ContainerStops } from "./container-stops.ts";
import { EndWaiters } from "./end-waiters.ts";
import { PodImages } from "./pod-images.ts";
import { PodInspection } from "./pod-inspection.ts";
import { identityOf, PodSteps, type StepContext } from "./pod-steps.ts";
import { NO_EFFECT, StepFailures } from "./step-failures.ts";
import { TerminationMessages } from "./termination-messages.ts";
import type { WorkerPorts } from "./worker-ports.ts";
import { WorkerResize } from "./worker-resize.ts";

/** The key of the failures of a change of resources. */
const RESIZE = stepOf({ kind: "resize", containers: [] });
const NOTHING: ReadonlySet<string> = new Set();

/** Rounds of look, plan, act for one pod, until nothing is left of it. The only caller of `adapter.apply`. */
export class PodWorker {
  readonly #ports: WorkerPorts;
  readonly #alarm: Alarm;
  readonly #failures: StepFailures;
  readonly #inspection: PodInspection;
  readonly #images: PodImages;
  readonly #steps: PodSteps;
  readonly #stops: ContainerStops;
  readonly #ends = new EndWaiters();
  /** Who waits until nothing dead is kept for its log alone. */
  #reclaim: EndWaiters | undefined;
  readonly #messages: TerminationMessages;
  readonly #resize: WorkerResize;
  #desired: DesiredPod;
  #wanted: boolean;
  #hashes: ReadonlyMap<string, string>;
  #state: WorkerState = INITIAL_STATE;
  /** How somebody on this node ends it. */
  #end: PodEnd | undefined;
  /** How it leaves the runtime that it is not to be run by any more, and who waits for that. */
  #leave: (PodLeave & { readonly left: EndWaiters }) | undefined;
  /** For which `desired` folders, volumes and cgroup have been made. */
  #preparedFor: DesiredPod | undefined;
  /** In a row. */
  #brokenRounds = 0;
  #round: JoinedSignal | undefined;
  /** Of each container the attempt whose wait has been told of. */
  readonly #backedOff = new Map<string, number>();
  /** As the runtime had it last. */
  #shown: PodView | undefined;
  /** Actions that were carried out in the round before. */
  #lastDone = NOTHING;

  constructor(ports: WorkerPorts, desired: DesiredPod, wanted: boolean) {
    this.#ports = ports;
    this.#desired = desired;
    this.#wanted = wanted;
    this.#hashes = hashesOf(desired);
    this.#alarm = new Alarm(ports.clock);
    this.#resize = new WorkerResize(ports.events, desired);
    this.#failures = new StepFailures(ports);
    this.#inspection = new PodInspection(ports, { uid: desired.uid, failures: this.#failures });
    this.#images = new PodImages(ports, () => this.poke());
    this.#stops = new ContainerStops(ports);
    this.#steps = new PodSteps(ports, {
      failures: this.#failures,
      images: this.#images,
      stops: this.#stops,
      listener: {
        happened: (event) => {
          this.#state = transition(this.#state, event);
        },
        prepared: (prepared) => {
          this.#preparedFor = prepared;
        },
        resized: (resized) => this.#resize.done(resized, this.#desired),
      },
    });
    this.#messages = new TerminationMessages((ended) => this.#terminationMessage(ended));
    if (!wanted) this.occupyName();
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

  /** Whether the node has taken the pod, and something of it runs or is to: it counts for what else the node can take. */
  get isTaken(): boolean {
    const { kind } = this.#state;
    if (kind === "waiting") return wasTaken(this.#desired, this.#ports.statuses.previous(this.uid));
    return kind === "active" || (kind !== "gone" && !this.#ends.isOver);
  }

  /** The pod may have something on this node already. */
  occupyName(): void {
    this.#ports.names.occupy(this.#desired);
  }

  /** Something may be new. Poked twice or in the middle of a round, it looks once more after it. */
  poke(why?: "hint" | "relist"): void {
    if (why === "hint") this.#inspection.hinted();
    if (why !== undefined) this.#inspection.touched();
    this.#alarm.set(millis(0));
  }

  /**
   * What its sources want now. A pod that is no longer wanted drops what it is doing, however long that would take; so does
   * one that is being ended and has got less time for it.
   */
  want(desired: DesiredPod, wanted: boolean): void {
    if (desired === this.#desired && wanted === this.#wanted) return;
    if (desired !== this.#desired) {
      this.#hashes = hashesOf(desired);
      // What could not be done before may be possible now.
      if (this.#resize.follow(this.#desired, desired)) this.#failures.delete(RESIZE);
    }
    const isShortened = gracePeriodOf(desired.pod) < gracePeriodOf(this.#desired.pod);
    this.#desired = desired;
    this.#wanted = wanted;
    if (!wanted && this.#state.kind !== "terminating") {
      this.#round?.abort();
      this.#images.abandon();
    } else if (!wanted && isShortened) {
      // A stop that is under way has the longer time.
      this.#round?.abort();
    }
    this.poke();
  }

  /** What stands against the resources that its source wants now. */
  judged(resize: PendingResize | undefined): void {
    if (this.#resize.judged(resize)) this.poke();
  }

  /** What the API server gives this node has changed. */
  objectsChanged(): void {
    if (this.#failures.objectsChanged()) this.poke();
  }

  /** @see PodEnder */
  end(how: PodEnd, signal: AbortSignal): Promise<void> {
    const before = this.#end;
    const isShorter = (how.gracePeriod ?? Number.POSITIVE_INFINITY) < (before?.gracePeriod ?? Number.POSITIVE_INFINITY);
    if (!this.#ends.isOver && (before === undefined || isShorter)) {
      this.#end = before === undefined ? how : { ...before, gracePeriod: how.gracePeriod };
      this.#round?.abort();
      this.#images.abandon();
      this.poke();
      this.#tellEnd();
    }
    return this.#ends.wait(signal);
  }

  /** @see PodMover */
  leave(how: PodLeave, signal: AbortSignal): Promise<void> {
    this.#leave ??= { ...how, left: new EndWaiters() };
    this.#round?.abort();
    this.#images.abandon();
    this.poke();
    return this.#leave.left.wait(signal);
  }

  /**
   * Before anybody kills what is to end, and without a look at a runtime that may be short of memory itself: an agent that
   * takes over in the middle goes on ending it. What has never been looked at is told of when it has been.
   */
  #tellEnd(): void {
    const { statuses, clock, planPod } = this.#ports;
    if (this.#shown === undefined || this.#state.kind !== "active") return;
    const now = { monotonic: clock.monotonic(), wallMs: clock.wall().getTime() };
    const own = { desired: this.#desired, hashes: this.#hashes, wanted: this.#wanted, worker: this.#state };
    const view = { ...this.#shown, ...own, ...now, end: this.#end, previous: statuses.previous(this.uid) };
    statuses.publish({ ...view, worker: planPod(view).next });
    statuses.flush();
  }

  /** Runs again, if somebody on this node has ended it or the node has not taken it. */
  revive(): void {
    const revived = transition(this.#state, { kind: "revived" });
    if (revived === this.#state) return;
    this.#state = revived;
    this.#end = undefined;
    // Its volumes went when it had ended.
    this.#preparedFor = undefined;
    this.#ends.settle(false);
    this.#round?.abort();
    this.poke();
  }

  /** Removes what of it is kept only for logs. Resolves after a round that changed nothing else. @throws `cancelled` alone */
  reclaim(signal: AbortSignal): Promise<void> {
    this.#reclaim ??= new EndWaiters();
    this.poke();
    return this.#reclaim.wait(signal);
  }

  /** Until nothing is left of the pod, or `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (this.#state.kind !== "gone") {
        await this.#alarm.ring(signal);
        await this.#interruptible(signal);
      }
    } catch (error) {
      if (!signal.aborted || !isCancelled(error)) throw error;
    } finally {
      this.#images.abandon();
      this.#leave?.left.settle(true);
      this.#reclaim?.settle(true);
      if (this.#state.kind === "gone") this.#ends.settle(true);
    }
  }

  async #interruptible(signal: AbortSignal): Promise<void> {
    using round = joinSignals(signal);
    this.#round = round;
    const reclaim = this.#reclaim;
    const before = this.#state.kind;
    try {
      await this.#lookPlanAct(round.signal, signal);
      this.#brokenRounds = 0;
    } catch (error) {
      if (signal.aborted) throw error;
      if (!isCancelled(error)) this.#broke(error);
    } finally {
      this.#round = undefined;
      // What may go is known only once the pod is seen to be over: a round that found that out has taken nothing away yet.
      if (this.#state.kind === before) {
        reclaim?.settle(true);
        if (this.#reclaim === reclaim) this.#reclaim = undefined;
      } else if (reclaim !== undefined) this.poke();
    }
  }

  /** A fault of ours that this pod has brought to light is no reason to leave the others alone. */
  #broke(error: unknown): void {
    const { log, events, random } = this.#ports;
    this.#brokenRounds += 1;
    const stack = error instanceof Error ? (error.stack ?? "") : "";
    log.error("cannot go on with a pod for now", { pod: this.uid, error: describeError(error), stack });
    events.record(this.#desired, "Warning", "FailedSync", `error syncing pod: ${describeError(error)}`);
    this.#alarm.set(retryDelay(this.#brokenRounds, random));
  }

  /** @param life of the worker, for what outlasts the round. */
  async #lookPlanAct(signal: AbortSignal, life: AbortSignal): Promise<void> {
    const adapter = this.#ports.adapterOf(this.#desired);
    const observed = await this.#inspection.look(adapter, this.#wanted, signal);
    const view = this.#view(adapter, observed);
    const plan = this.#ports.planPod(view);
    this.#enter(view, plan.next, adapter);
    if (observed !== undefined) this.#failures.keep(new Set([...plan.held, ...plan.actions.map(stepOf)]));
    const work = this.#act(this.#withoutVain(plan), { view, adapter, signal, life });
    try {
      // Published while the first call is under way: it must not wait for this.
      this.#publish({ ...view, worker: plan.next });
      this.#wakeFor(plan, observed);
      this.#tellBackOffs(plan);
      await this.#finish(work, plan, { adapter, signal });
    } finally {
      // The next round begins when nothing of this one is under way any more, however it went.
      await work.catch(() => undefined);
    }
  }

  /** What a pod's end begins with. */
  #enter(view: PodView, next: WorkerState, adapter: RuntimeAdapter | undefined): void {
    const before = view.worker.kind;
    this.#state = next;
    if (next.kind !== "finished" || before === "finished") return;
    this.#images.abandon();
    // What is being ended is asked no more whether it is alive.
    if (view.observed !== undefined) this.#follow(adapter, view.observed, view.previous);
    const { reason, message } = next.outcome;
    const { events } = this.#ports;
    if (next.outcome === DEADLINE_EXCEEDED) events.record(view.desired, "Normal", reason, message);
    if (view.rejection !== undefined) {
      events.record(view.desired, "Warning", view.rejection.reason, view.rejection.message);
    }
  }

  #publish(view: PodView): void {
    this.#ports.statuses.publish(view);
    const { observed, worker } = view;
    if (observed === undefined) return;
    this.#shown = view;
    this.#settleLeave(view, observed);
    if (this.#resize.published(view, view.previous)) this.#ports.released();
    const wasTaken = this.isTaken;
    const runs = observed.containers.some(({ state }) => state.kind === "running");
    this.#ends.settle(!runs && (worker.kind === "finished" || worker.kind === "terminating"));
    if (!wasTaken || this.isTaken) return;
    this.#ports.placement?.release(this.uid);
    this.#ports.released();
  }

  /** Its memory is free when nothing of it runs in the runtime that it leaves; what is left there goes by and by. */
  #settleLeave({ leaving, worker }: PodView, { containers }: ObservedPod): void {
    if (this.#leave === undefined) return;
    const isOver = worker.kind !== "active" || leaving === undefined;
    if (isOver || !containers.some(({ state }) => state.kind === "running")) this.#leave.left.settle(true);
    // Nothing of it is there any more, or it is not to leave after all.
    if (leaving === undefined) this.#leave = undefined;
  }

  /**
   * A pod that is ending takes its time: what happens to its containers meanwhile is told as it happens. All else is held
   * up by what is under way, a hook above all, unless the pod's own time is over.
   */
  async #finish(
    work: Promise<void>,
    { deadlineAt, actions }: Plan,
    { adapter, signal }: { readonly adapter: RuntimeAdapter | undefined; readonly signal: AbortSignal },
  ): Promise<void> {
    using busy = joinSignals(signal);
    const done = work.finally(() => busy.abort());
    done.catch(() => undefined);
    if (deadlineAt !== undefined && actions.length > 0) {
      const left = millis(Math.max(0, deadlineAt - this.#ports.clock.monotonic()));
      const expire = (): void => {
        this.#round?.abort();
        this.poke();
      };
      this.#ports.clock.sleep(left, busy.signal).then(expire, () => undefined);
    }
    const isEnding = this.#state.kind === "finished" || this.#state.kind === "terminating";
    if (isEnding && actions.some(({ kind }) => kind === "stopContainer")) await this.#watch(adapter, busy.signal);
    await done;
  }

  async #watch(adapter: RuntimeAdapter | undefined, busy: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await this.#alarm.ring(busy);
        const observed = await this.#inspection.look(adapter, this.#wanted, busy);
        this.#publish(this.#view(adapter, observed));
        this.#lookAgain(observed);
      }
    } catch (error) {
      if (!busy.aborted || !isCancelled(error)) throw error;
      // What rang is for the next round to look at.
      this.poke();
    }
  }

  /** Once for each wait. */
  #tellBackOffs({ backingOff = [] }: Plan): void {
    for (const { name, attempt } of backingOff) {
      if (this.#backedOff.get(name) === attempt) continue;
      this.#backedOff.set(name, attempt);
      const { namespace, name: pod } = this.#desired.pod.metadata;
      const message = `Back-off restarting failed container ${name} in pod ${pod}_${namespace}(${apiUidOf(this.#desired)})`;
      this.#ports.events.record(this.#desired, "Warning", "BackOff", message, name);
    }
  }

  async #act(actions: readonly PlanAction[], context: StepContext): Promise<void> {
    this.#lastDone = NOTHING;
    if (actions.length === 0) return;
    this.#inspection.touched();
    const { done, due } = await this.#steps.run(actions, context);
    this.#lastDone = done;
    if (!due) return;
    if (context.adapter !== undefined) this.#ports.observer.expect(context.adapter, this.uid);
    this.poke();
  }

  #wakeFor(plan: Plan, observed: ObservedPod | undefined): void {
    const now = this.#ports.clock.monotonic();
    if (plan.wakeAt !== undefined) this.#alarm.set(millis(Math.max(0, plan.wakeAt - now)));
    const { retryAt } = this.#inspection;
    if (retryAt !== undefined) this.#alarm.set(millis(Math.max(0, retryAt - now)));
    this.#lookAgain(observed);
  }

  #lookAgain(observed: ObservedPod | undefined): void {
    const wait = observed === undefined ? undefined : this.#inspection.takeLookAgain();
    if (wait !== undefined) this.#alarm.set(wait);
  }

  #view(adapter: RuntimeAdapter | undefined, observed: ObservedPod | undefined): PodView {
    const { clock, names, statuses, backoff, hostIps, runtimeName, prober, recursiveReadOnly } = this.#ports;
    const claims = this.#wanted && observed !== undefined && this.#state.kind === "waiting";
    const blockedBy = claims ? names.claim(this.#desired) : undefined;
    const told = statuses.previous(this.uid);
    const previous = claims && isJudgedAgain(this.#desired, told) ? undefined : told;
    const runtime = adapter === undefined ? "" : runtimeName(adapter);
    const isNew = claims && blockedBy === undefined && previous?.startTime === undefined && isNothing(observed);
    if (observed !== undefined) {
      this.#stops.seen(observed);
      this.#follow(adapter, observed, previous);
    }
    return {
      desired: this.#desired,
      wanted: this.#wanted,
      blockedBy,
      rejection: isNew && this.#end === undefined ? this.#ports.admit(this.#desired) : undefined,
      undecided:
        this.#ports.choices !== undefined && this.#desired.runtime === undefined && mayChoose(this.#desired.pod),
      leaving: adapter !== undefined && this.#ports.isLeaving(this.#desired, adapter) ? (this.#leave ?? {}) : undefined,
      end: this.#end,
      worker: this.#state,
      observed,
      prepared: this.#preparedFor === this.#desired,
      hashes: this.#hashes,
      failures: this.#failures.current,
      resize: this.#resize.view,
      reclaim: this.#reclaim !== undefined,
      probes: prober.results(this.uid),
      messages: this.#messages.of(observed),
      previous,
      runtime,
      hostIps: hostIps(),
      recursiveReadOnly: recursiveReadOnly(this.#desired),
      backoff,
      monotonic: clock.monotonic(),
      wallMs: clock.wall().getTime(),
    };
  }

  #follow(adapter: RuntimeAdapter | undefined, observed: ObservedPod, previous: PodStatus | undefined): void {
    if (adapter === undefined) return;
    const ending = !this.#wanted || this.#end !== undefined || this.#state.kind === "finished";
    const runtime = this.#ports.runtimeName(adapter);
    const wasReady = (id: string): ProbeResult | undefined => readinessTold(previous, `${runtime}://${id}`);
    this.#ports.prober.follow(this.#desired, observed, adapter, { ending, wasReady });
  }

  #terminationMessage(ended: ObservedContainer): string {
    const container = containersOf(this.#desired.pod).find((each) => each.name === ended.name);
    if (container === undefined) return "";
    try {
      return this.#ports.terminationMessage(this.#desired, container, ended);
    } catch (error) {
      this.#ports.log.debug("cannot read a termination message", { pod: this.uid, error: describeError(error) });
      return "";
    }
  }

  /** An action that was carried out a moment ago and is planned again had no effect; it is not repeated without end. */
  #withoutVain(plan: Plan): readonly PlanAction[] {
    const vain = plan.actions.findIndex(
      (action) => action.kind !== "prepare" && this.#lastDone.has(identityOf(action)),
    );
    const action = plan.actions[vain];
    if (action === undefined) return plan.actions;
    this.#failures.add(
      stepOf(action),
      new PicoletError("failed", `cannot see any effect of ${stepOf(action)}`),
      NO_EFFECT,
    );
    this.poke();
    return plan.actions.slice(0, vain);
  }
}

function hashesOf({ pod }: DesiredPod): ReadonlyMap<string, string> {
  return new Map(containersOf(pod).map((container) => [container.name, containerHash(container)]));
}

const isNothing = ({ sandboxes, containers }: ObservedPod): boolean => sandboxes.length + containers.length === 0;

/** What was written of a run, by its id in statuses. */
function readinessTold(previous: PodStatus | undefined, containerID: string): ProbeResult | undefined {
  const { initContainerStatuses = [], containerStatuses = [] } = previous ?? {};
  const told = [...initContainerStatuses, ...containerStatuses].find((each) => each.containerID === containerID);
  return told?.state.running === undefined ? undefined : { started: told.started === true, ready: told.ready };
}
