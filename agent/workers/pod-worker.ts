import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodEnd, PodLeave } from "../core/pods/pod-admission.ts";
import { hasRuntimeChoice } from "../core/pods/pod-runtime.ts";
import { containersOf } from "../plan/container-roles.ts";
import { gracePeriodOf } from "../plan/grace-period.ts";
import { DEADLINE_EXCEEDED, needsReadmission, wasAdmitted } from "../plan/outcome.ts";
import { type PendingResize, type Plan, type PlanAction, type PodView, stepOf } from "../plan/pod-view.ts";
import { INITIAL_STATE, transition, type WorkerState } from "../plan/worker-state.ts";
import { BackOffEvents } from "./back-off-events.ts";
import { updateProbes } from "./followed-probes.ts";
import { PodEndings } from "./pod-endings.ts";
import { PodInspection } from "./pod-inspection.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { hasSamePreparation } from "./prepared-pods.ts";
import { ContainerStops } from "./steps/container-stops.ts";
import { PreviousSteps } from "./steps/last-steps.ts";
import { PodImages } from "./steps/pod-images.ts";
import { PodSteps } from "./steps/pod-steps.ts";
import { StepFailures } from "./steps/step-failures.ts";
import type { StepContext } from "./steps/step-run.ts";
import { TerminationMessages } from "./termination-messages.ts";
import { WorkerResize } from "./worker-resize.ts";
import { WorkerRounds } from "./worker-rounds.ts";

/** The key of the failures of a change of resources. */
const RESIZE = stepOf({ kind: "resize", containers: [] });

/** Rounds of look, plan, act for one pod, until nothing is left of it. The only caller of `adapter.apply`. */
export class PodWorker {
  readonly #ports: WorkerPorts;
  readonly #rounds: WorkerRounds;
  readonly #failures: StepFailures;
  readonly #inspection: PodInspection;
  readonly #images: PodImages;
  readonly #steps: PodSteps;
  readonly #stops: ContainerStops;
  readonly #endings = new PodEndings();
  readonly #lastSteps: PreviousSteps;
  readonly #backOffs: BackOffEvents;
  readonly #messages: TerminationMessages;
  readonly #resize: WorkerResize;
  #desired: DesiredPod;
  #wanted: boolean;
  #hashes: ReadonlyMap<string, string>;
  #state: WorkerState = INITIAL_STATE;
  /** For which `desired` folders, volumes and cgroup have been made. */
  #preparedFor: DesiredPod | undefined;
  /** As the runtime had it last. */
  #shown: PodView | undefined;

  constructor(ports: WorkerPorts, desired: DesiredPod, wanted: boolean) {
    this.#ports = ports;
    this.#desired = desired;
    this.#wanted = wanted;
    this.#hashes = hashesOf(desired);
    this.#rounds = new WorkerRounds(ports);
    this.#resize = new WorkerResize(ports.events, desired);
    this.#failures = new StepFailures(ports);
    this.#lastSteps = new PreviousSteps(this.#failures);
    this.#backOffs = new BackOffEvents(ports.events);
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
    this.#messages = new TerminationMessages(ports);
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

  /**
   * Whether the node has taken the pod, and something of it runs or is to: it counts for what else the node can take.
   */
  get isTaken(): boolean {
    const { kind } = this.#state;
    if (kind === "waiting") return wasAdmitted(this.#desired, this.#ports.statuses.previous(this.uid));
    return kind === "active" || (kind !== "gone" && !this.#endings.isOver);
  }

  /** The pod may have something on this node already. */
  occupyName(): void {
    this.#ports.names.occupy(this.#desired);
  }

  /** Something may be new. Poked twice or in the middle of a round, it looks once more after it. */
  poke(why?: "hint" | "relist"): void {
    if (why === "hint") this.#inspection.hinted();
    if (why !== undefined) this.#inspection.touched();
    this.#rounds.dueIn(millis(0));
  }

  /**
   * What its sources want now. A pod that is no longer wanted drops what it is doing, however long that would take; so
   * does one that is being ended and has got less time for it.
   */
  want(desired: DesiredPod, wanted: boolean): void {
    if (desired === this.#desired && wanted === this.#wanted) return;
    if (desired !== this.#desired) {
      this.#hashes = hashesOf(desired);
      // What could not be done before may be possible now.
      if (this.#resize.follow(this.#desired, desired)) this.#failures.delete(RESIZE);
      if (this.#preparedFor === this.#desired && hasSamePreparation(this.#desired, desired))
        this.#preparedFor = desired;
    }
    const isShortened = gracePeriodOf(desired.pod) < gracePeriodOf(this.#desired.pod);
    this.#desired = desired;
    this.#wanted = wanted;
    if (!wanted && this.#state.kind !== "terminating") {
      this.#rounds.breakOff();
      this.#images.abandon();
    } else if (!wanted && isShortened) {
      // A stop that is under way has the longer time.
      this.#rounds.breakOff();
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
    if (this.#endings.begin(how)) {
      this.#rounds.breakOff();
      this.#images.abandon();
      this.poke();
      this.#tellEnd();
    }
    return this.#endings.ended(signal);
  }

  /** @see PodMover */
  leave(how: PodLeave, signal: AbortSignal): Promise<void> {
    const left = this.#endings.left(how, signal);
    this.#rounds.breakOff();
    this.#images.abandon();
    this.poke();
    return left;
  }

  /**
   * Before anybody kills what is to end, and without a look at a runtime that may be short of memory itself: an agent
   * that takes over in the middle goes on ending it. What has never been looked at is told of when it has been.
   */
  #tellEnd(): void {
    const { statuses, clock, planPod } = this.#ports;
    if (this.#shown === undefined || this.#state.kind !== "active") return;
    const now = { monotonic: clock.monotonic(), wallMs: clock.wall().getTime() };
    const own = { desired: this.#desired, hashes: this.#hashes, wanted: this.#wanted, worker: this.#state };
    const view = { ...this.#shown, ...own, ...now, end: this.#endings.end, previous: statuses.previous(this.uid) };
    statuses.publish({ ...view, worker: planPod(view).next });
    statuses.flush();
  }

  /** Runs again, if somebody on this node has ended it or the node has not taken it. */
  revive(): void {
    const revived = transition(this.#state, { kind: "revived" });
    if (revived === this.#state) return;
    this.#state = revived;
    this.#endings.revived();
    // Its volumes went when it had ended.
    this.#preparedFor = undefined;
    this.#rounds.breakOff();
    this.poke();
  }

  /**
   * Removes what of it is kept only for logs. Resolves after a round that changed nothing else. @throws `cancelled`
   * alone
   */
  reclaim(signal: AbortSignal): Promise<void> {
    const reclaimed = this.#endings.reclaimed(signal);
    this.poke();
    return reclaimed;
  }

  /** Until nothing is left of the pod, or `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (this.#state.kind !== "gone") {
        await this.#rounds.due(signal);
        await this.#interruptible(signal);
      }
    } catch (error) {
      if (!signal.aborted || !isCancelled(error)) throw error;
    } finally {
      this.#images.abandon();
      this.#endings.workerEnded(this.#state.kind === "gone");
    }
  }

  async #interruptible(signal: AbortSignal): Promise<void> {
    const roundOver = this.#endings.round();
    const before = this.#state.kind;
    const round = (inner: AbortSignal): Promise<void> => this.#lookPlanAct(inner, signal);
    try {
      await this.#rounds.run(() => this.#desired, round, signal);
    } finally {
      if (roundOver(this.#state.kind !== before)) this.poke();
    }
  }

  /** @param life of the worker, for what outlasts the round. */
  async #lookPlanAct(signal: AbortSignal, life: AbortSignal): Promise<void> {
    const adapter = this.#ports.adapterOf(this.#desired);
    const observed = await this.#inspection.look(adapter, this.#wanted, signal);
    const view = this.#view(adapter, observed);
    const plan = this.#ports.planPod(view);
    this.#enter(view, plan.next, adapter);
    if (observed !== undefined) this.#failures.keep(new Set([...plan.held, ...plan.actions.map(stepOf)]));
    const work = this.#act(this.#effective(plan), { view, adapter, signal, life });
    try {
      // Published while the first call is under way: it must not wait for this.
      this.#publish({ ...view, worker: plan.next });
      this.#wakeFor(plan, observed);
      this.#backOffs.tell(this.#desired, plan);
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
    this.#endings.seenLeaving(view, observed);
    if (this.#resize.published(view, view.previous)) this.#ports.released();
    const wasAdmitted = this.isTaken;
    this.#endings.seen(worker, observed);
    if (!wasAdmitted || this.isTaken) return;
    this.#ports.placement?.release(this.uid);
    this.#ports.released();
  }

  /**
   * A pod that is ending takes its time: what happens to its containers meanwhile is told as it happens. All else is
   * held up by what is under way, a hook above all, unless the pod's own time is over.
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
        this.#rounds.breakOff();
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
        await this.#rounds.due(busy);
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

  async #act(actions: readonly PlanAction[], context: StepContext): Promise<void> {
    this.#lastSteps.were();
    if (actions.length === 0) return;
    this.#inspection.touched();
    const expect = (): void => {
      if (context.adapter !== undefined) this.#ports.observer.expect(context.adapter, this.uid);
    };
    expect();
    const { done, due } = await this.#steps.run(actions, context);
    this.#lastSteps.were(done);
    if (!due) return;
    expect();
    this.poke();
  }

  #wakeFor(plan: Plan, observed: ObservedPod | undefined): void {
    const now = this.#ports.clock.monotonic();
    if (plan.wakeAt !== undefined) this.#rounds.dueIn(millis(Math.max(0, plan.wakeAt - now)));
    const { retryAt } = this.#inspection;
    if (retryAt !== undefined) this.#rounds.dueIn(millis(Math.max(0, retryAt - now)));
    this.#lookAgain(observed);
  }

  #lookAgain(observed: ObservedPod | undefined): void {
    const wait = observed === undefined ? undefined : this.#inspection.takeLookAgain();
    if (wait !== undefined) this.#rounds.dueIn(wait);
  }

  #view(adapter: RuntimeAdapter | undefined, observed: ObservedPod | undefined): PodView {
    const { clock, names, statuses, backoff, hostIps, runtimeName, prober, recursiveReadOnly } = this.#ports;
    const claims = this.#wanted && observed !== undefined && this.#state.kind === "waiting";
    const blockedBy = claims ? names.claim(this.#desired) : undefined;
    const told = statuses.previous(this.uid);
    const previous = claims && needsReadmission(this.#desired, told) ? undefined : told;
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
      rejection: isNew && this.#endings.end === undefined ? this.#ports.admit(this.#desired) : undefined,
      undecided:
        this.#ports.choices !== undefined && this.#desired.runtime === undefined && hasRuntimeChoice(this.#desired.pod),
      leaving:
        adapter !== undefined && this.#ports.isLeaving(this.#desired, adapter)
          ? (this.#endings.leave ?? {})
          : undefined,
      end: this.#endings.end,
      worker: this.#state,
      observed,
      prepared: this.#preparedFor === this.#desired,
      hasRefreshedVolumes: this.#ports.environment.hasRefreshedVolumes(this.#desired),
      hashes: this.#hashes,
      failures: this.#failures.current,
      resize: this.#resize.view,
      reclaim: this.#endings.isReclaimed,
      probes: prober.results(this.uid),
      messages: this.#messages.of(this.#desired, observed),
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
    const ending = !this.#wanted || this.#endings.end !== undefined || this.#state.kind === "finished";
    updateProbes(this.#ports, { desired: this.#desired, adapter, observed, previous, ending });
  }

  #effective(plan: Plan): readonly PlanAction[] {
    const effective = this.#lastSteps.withoutVain(plan);
    if (effective !== plan.actions) this.poke();
    return effective;
  }
}

function hashesOf({ pod }: DesiredPod): ReadonlyMap<string, string> {
  return new Map(containersOf(pod).map((container) => [container.name, containerHash(container)]));
}

const isNothing = ({ sandboxes, containers }: ObservedPod): boolean => sandboxes.length + containers.length === 0;
