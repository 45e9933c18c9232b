import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type PodUid, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerPlacement } from "../core/pods/container-placement.ts";
import type { PodAdmission, PodEnd, PodEnder, PodLeave, PodMover } from "../core/pods/pod-admission.ts";
import type { PodResources } from "../core/pods/pod-cgroup-ports.ts";
import type { PodObserver, PodObserverSink } from "../core/pods/pod-observer.ts";
import type { ImageManager, PodEnvironment, RuntimeChoices, RuntimeRouter } from "../core/pods/pod-ports.ts";
import type { HookRunner, Prober } from "../core/pods/probe-ports.ts";
import type { DesiredSnapshot, DesiredStore, EventRecorder } from "../core/store/store-ports.ts";
import { applyClaims } from "../plan/allocation.ts";
import { type CrashBackoffLimits, DEFAULT_CRASH_BACKOFF } from "../plan/crash-backoff.ts";
import { planPod } from "../plan/plan-pod.ts";
import type { PlanPod, PodStatusRecorder } from "../plan/pod-view.ts";
import { OrphanedPods } from "./orphaned-pods.ts";
import { PodResizes } from "./pod-resizes.ts";
import { PodWorker } from "./pod-worker.ts";
import { NameClaims, nameKeyOf } from "./ports/name-claims.ts";
import { PodEvents } from "./ports/pod-events.ts";
import { Slots } from "./ports/slots.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { TaskGroup } from "./task-group.ts";

/**
 * Each pod is looked at this often even if nobody says that anything happened. Everything that happens is told, and the
 * relist finds what was not; so this is a net under a net, and costs one inspection per pod in 10 minutes.
 */
const RESYNC_PERIOD = seconds(600);
/** One pod after the other, as evenly as these allow, so that a whole node is not looked at at once. */
const RESYNC_SHORTEST = seconds(12);
const RESYNC_LONGEST = seconds(60);
/**
 * A sandbox costs a network setup of several processes: 40 at once would take a 512 MB board's memory, and are no
 * faster. On two busy cores 40 pods ran after 6.6 s two at a time, 3.9 s four, 4.5 s eight and 3.6 to 6.7 s forty at a
 * time. One that takes longer than the patience makes room.
 */
const SANDBOX_SLOTS = { count: 8, patience: seconds(5) };
/**
 * To remove a container takes some 50 ms; a worker that waits for a hook or for a container's end does not keep the
 * others.
 */
const RECLAIM_PATIENCE = seconds(20);
/** Objects of the API server come one after the other; what waits for any of them looks once. */
const OBJECTS_SETTLE = millis(500);

export interface PodWorkersComponents {
  readonly store: DesiredStore;
  readonly router: RuntimeRouter;
  readonly environment: PodEnvironment;
  readonly images: ImageManager;
  /** Missing: no pod has a choice. */
  readonly choices?: RuntimeChoices | undefined;
  readonly observer: PodObserver;
  readonly statuses: PodStatusRecorder;
  readonly prober: Prober;
  readonly hooks: HookRunner;
  readonly admission: PodAdmission;
  /** Missing: containers run wherever the kernel likes. */
  readonly placement?: ContainerPlacement | undefined;
  /** Missing: pods have no cgroups here. */
  readonly podResources?: PodResources | undefined;
  /** Fires when what the API server gives the pods may have changed. Missing: it never does. */
  readonly objectsChanged?: Watch<unknown> | undefined;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface PodWorkersInit {
  /** The kubelet's unless given. */
  readonly crashBackoff?: CrashBackoffLimits;
  /** The node's addresses, for statuses. */
  readonly hostIps?: () => readonly string[];
  /** What stands before `://` in container ids; the adapter's name unless given. */
  readonly runtimeName?: (adapter: RuntimeAdapter) => string;
  /** Whether the pod's runtime makes mounts read-only with what is below them; it does not unless given. */
  readonly recursiveReadOnly?: WorkerPorts["recursiveReadOnly"];
  /** What that run of the container left in its termination message file; "" for nothing. */
  readonly terminationMessage?: WorkerPorts["terminationMessage"];
  readonly planPod?: PlanPod;
}

/** One worker for each pod that is wanted, or was and still has traces on this node. */
export class PodWorkers implements Component, PodObserverSink, PodEnder, PodMover {
  readonly name = "pod workers";
  readonly #components: PodWorkersComponents;
  readonly #ports: WorkerPorts;
  readonly #workers = new Map<PodUid, PodWorker>();
  readonly #strangers: OrphanedPods;
  readonly #resizes: PodResizes;
  readonly #tasks = new TaskGroup();
  /** Runtimes whose pods have all been made out since the agent started. */
  readonly #settled = new Set<RuntimeAdapter>();

  constructor(components: PodWorkersComponents, init: PodWorkersInit = {}) {
    this.#components = components;
    const { store, clock } = components;
    this.#ports = {
      ...components,
      events: new PodEvents(components.events),
      names: new NameClaims(),
      sandboxSlots: new Slots({ clock }, SANDBOX_SLOTS),
      adapterOf: (desired) => this.#adapterOf(desired),
      isSettled: (adapter) => this.#settled.has(adapter),
      isLeaving: (desired, adapter) => desired.runtime !== undefined && this.#isElsewhere(desired, adapter),
      admit: (desired) => components.admission.admit(desired, this.#others(desired.uid)),
      released: () => this.#resizes.review(),
      forget: (desired) => {
        components.prober.forget(desired.uid);
        components.statuses.finish(desired);
        components.placement?.release(desired.uid);
        store.forget(desired.uid);
      },
      backoff: init.crashBackoff ?? DEFAULT_CRASH_BACKOFF,
      hostIps: init.hostIps ?? (() => []),
      runtimeName: init.runtimeName ?? ((adapter) => adapter.name),
      recursiveReadOnly: init.recursiveReadOnly ?? (() => false),
      planPod: init.planPod ?? planPod,
      terminationMessage: init.terminationMessage ?? (() => ""),
    };
    this.#resizes = new PodResizes(components, {
      worker: (uid) => this.#workers.get(uid),
      others: (uid) => this.#others(uid),
      isSettled: (desired) => {
        const adapter = this.#adapterOf(desired);
        return adapter === undefined || this.#settled.has(adapter);
      },
    });
    this.#strangers = new OrphanedPods(components, (found) => {
      store.adopt([found], (uid) => this.#isUntouched(uid));
      this.#reconcile(store.desired.current);
      this.#workers.get(found.uid)?.occupyName();
    });
  }

  /** How many pods have a worker. */
  get size(): number {
    return this.#workers.size;
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    this.#tasks.open(life);
    using _observing = this.#components.observer.observe(this);
    using _probing = this.#ports.prober.observe((uid) => this.#workers.get(uid)?.poke());
    this.#tasks.start(this.#follow(life.signal));
    this.#tasks.start(this.#resync(life.signal));
    const { objectsChanged } = this.#components;
    if (objectsChanged !== undefined) this.#followObjects(objectsChanged, life.signal);
    for (const adapter of this.#components.router.adapters) {
      if (this.#components.observer.listing(adapter) !== undefined) this.listed(adapter);
    }
    await this.#tasks.ended();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tasks.close();
  }

  async end(uid: PodUid, how: PodEnd, signal: AbortSignal): Promise<void> {
    await this.#workers.get(uid)?.end(how, signal);
  }

  /** @see PodMover */
  async leave(uid: PodUid, how: PodLeave, signal: AbortSignal): Promise<void> {
    // A worker may not have been told yet that it has to leave.
    this.#reconcile(this.#components.store.desired.current);
    await this.#workers.get(uid)?.leave(how, signal);
  }

  /** Every pod removes what it keeps only for logs; one that is busy may do so later. @throws `cancelled` alone */
  async deleteDead(signal: AbortSignal): Promise<void> {
    const all = (deadline: AbortSignal) =>
      Promise.all([...this.#workers.values()].map((worker) => worker.reclaim(deadline)));
    try {
      await withDeadline(this.#components.clock, RECLAIM_PATIENCE, "remove dead containers", all, signal);
    } catch (error) {
      if (!isPicoletError(error, "deadline_exceeded")) throw error;
    }
  }

  /** Pods of this node's own sources that it has ended run again: what they had to make room for is over. */
  revive(): void {
    for (const worker of this.#workers.values()) if (worker.desired.source !== "api") worker.revive();
  }

  podChanged(adapter: RuntimeAdapter, uid: PodUid, why: "hint" | "relist"): void {
    const worker = this.#workers.get(uid);
    if (worker !== undefined) worker.poke(why);
    else if (this.#settled.has(adapter) && this.#isListed(adapter, uid)) this.#identify(adapter, [uid]);
  }

  /** Pods that nobody knows are made out before any new pod of this runtime may start: one may have its name. */
  listed(adapter: RuntimeAdapter): void {
    const isBack = this.#settled.has(adapter);
    // What is wanted since is known before the runtime's own list is read.
    this.#reconcile(this.#components.store.desired.current);
    const unknown: PodUid[] = [];
    for (const uid of this.#components.observer.listing(adapter)?.keys() ?? []) {
      const worker = this.#workers.get(uid);
      if (worker === undefined) unknown.push(uid);
      else worker.occupyName();
    }
    for (const worker of this.#workers.values()) {
      if (!isBack) worker.poke();
      else if (this.#adapterOf(worker.desired) === adapter) worker.poke("relist");
    }
    this.#identify(adapter, unknown);
  }

  #identify(adapter: RuntimeAdapter, uids: readonly PodUid[]): void {
    const { signal } = this.#tasks;
    if (signal === undefined) return;
    if (uids.length === 0) this.#settle(adapter);
    else this.#tasks.start(this.#strangers.identify(adapter, uids, signal).then(() => this.#settle(adapter)));
  }

  #settle(adapter: RuntimeAdapter): void {
    if (this.#settled.has(adapter)) return;
    this.#settled.add(adapter);
    for (const worker of this.#workers.values()) worker.poke();
    this.#resizes.review();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for await (const snapshot of this.#components.store.desired.changes(signal)) this.#reconcile(snapshot);
  }

  #followObjects(objectsChanged: Watch<unknown>, signal: AbortSignal): void {
    const alarm = new Alarm(this.#components.clock);
    const follow = async (): Promise<void> => {
      for await (const _ of objectsChanged.changes(signal)) alarm.set(OBJECTS_SETTLE);
    };
    const retry = async (): Promise<void> => {
      for (;;) {
        await alarm.ring(signal);
        for (const worker of this.#workers.values()) worker.objectsChanged();
      }
    };
    this.#tasks.start(follow());
    this.#tasks.start(retry());
  }

  #reconcile({ pods, removed }: DesiredSnapshot): void {
    for (const worker of this.#workers.values()) {
      if (!pods.has(worker.uid)) worker.want(removed.get(worker.uid) ?? worker.desired, false);
    }
    for (const desired of removed.values()) this.#want(desired, false);
    for (const desired of pods.values()) this.#want(desired, true);
    this.#resizes.review();
  }

  #want(desired: DesiredPod, wanted: boolean): void {
    const known = this.#workers.get(desired.uid);
    if (known !== undefined) {
      known.want(desired, wanted);
      return;
    }
    const { signal } = this.#tasks;
    if (signal === undefined) return;
    const worker = new PodWorker(this.#ports, desired, wanted);
    this.#workers.set(desired.uid, worker);
    this.#tasks.start(this.#work(worker, signal));
  }

  async #work(worker: PodWorker, signal: AbortSignal): Promise<void> {
    await worker.run(signal);
    if (worker.state.kind !== "gone") return;
    const { desired, uid } = worker;
    this.#workers.delete(uid);
    this.#ports.names.release(desired);
    const name = nameKeyOf(desired);
    for (const other of this.#workers.values()) if (nameKeyOf(other.desired) === name) other.poke();
    // Wanted again while it was being ended: it starts afresh.
    const again = this.#components.store.desired.current.pods.get(uid);
    if (again !== undefined) this.#want(again, true);
  }

  async #resync(signal: AbortSignal): Promise<void> {
    const { clock } = this.#components;
    let turn: PodUid[] = [];
    let due = 0;
    for (;;) {
      const pods = this.#workers.size;
      const isWaiting = this.#components.store.desired.current.requested.size > 0;
      const longest = isWaiting ? RESYNC_SHORTEST : RESYNC_LONGEST;
      const pause = millis(Math.min(longest, Math.max(RESYNC_SHORTEST, RESYNC_PERIOD / Math.max(1, pods))));
      await clock.sleep(pause, signal);
      for (due += (pods * pause) / RESYNC_PERIOD; due >= 1; due -= 1) {
        if (turn.length === 0) turn = [...this.#workers.keys()];
        const uid = turn.shift();
        if (uid !== undefined) this.#workers.get(uid)?.poke("relist");
      }
      this.#resizes.tick();
    }
  }

  /** What the node has taken besides that pod, with what it was granted or, if that is more, has still. */
  #others(uid: PodUid): DesiredPod[] {
    const { statuses } = this.#ports;
    const { pods, removed } = this.#components.store.desired.current;
    const { adapters } = this.#components.router;
    // After a start a worker may not have looked yet at what the runtime shows of it.
    const isListed = ({ state, uid: own }: PodWorker): boolean =>
      state.kind === "waiting" && adapters.some((each) => this.#isListed(each, own));
    return [...this.#workers.values()]
      .filter((each) => each.uid !== uid && (each.isTaken || isListed(each)))
      .map((each) => {
        // A worker may not have been told yet.
        const desired = pods.get(each.uid) ?? removed.get(each.uid) ?? each.desired;
        const pod = applyClaims(desired.pod, statuses.previous(each.uid));
        return pod === desired.pod ? desired : { ...desired, pod };
      });
  }

  /** Nothing was started of it, and no runtime shows it. */
  #isUntouched(uid: PodUid): boolean {
    const { adapters } = this.#components.router;
    const worker = this.#workers.get(uid);
    const isWaiting = worker === undefined || worker.state.kind === "waiting" || worker.state.kind === "terminating";
    return (
      isWaiting &&
      adapters.some((each) => !this.#settled.has(each)) &&
      !adapters.some((each) => this.#isListed(each, uid))
    );
  }

  /** Whether the pod is to be run by another runtime than this one. */
  #isElsewhere(desired: DesiredPod, adapter: RuntimeAdapter): boolean {
    try {
      return this.#components.router.adapterFor(desired) !== adapter;
    } catch {
      // No runtime of this node may run it: whatever has it keeps it.
      return false;
    }
  }

  #isListed(adapter: RuntimeAdapter, uid: PodUid): boolean {
    return this.#components.observer.listing(adapter)?.has(uid) ?? false;
  }

  /** One that has the pod and is not to run it any more comes first: it has to let go of it. */
  #adapterOf(desired: DesiredPod): RuntimeAdapter | undefined {
    const { router, observer } = this.#components;
    const holders = router.adapters.filter((adapter) => this.#isListed(adapter, desired.uid));
    try {
      const own = router.adapterFor(desired);
      const isSwitched = desired.runtime?.reason === "MemoryPressure";
      // What a runtime has that has not been listed yet nobody knows, and this pod has been in another one.
      const unlisted = isSwitched ? router.adapters.find((each) => observer.listing(each) === undefined) : undefined;
      if (desired.runtime === undefined) return holders[0] ?? own;
      return holders.find((each) => each !== own) ?? unlisted ?? own;
    } catch (error) {
      if (holders.length > 0) return holders[0];
      if (isCancelled(error)) throw error;
      this.#components.log.debug("a pod has no runtime", { pod: desired.uid, error: describeError(error) });
      return undefined;
    }
  }
}
