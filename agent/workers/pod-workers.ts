import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type PodUid, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { ContainerDevices, DeviceResources } from "../core/pods/container-devices.ts";
import type { ContainerPlacement } from "../core/pods/container-placement.ts";
import type { PodAdmission, PodEnd, PodEnder, PodLeave, PodMover } from "../core/pods/pod-admission.ts";
import type { PodResources } from "../core/pods/pod-cgroup-ports.ts";
import type { PodObserver, PodObserverSink } from "../core/pods/pod-observer.ts";
import type { ImageManager, PodEnvironment, RuntimeChoices, RuntimeRouter } from "../core/pods/pod-ports.ts";
import type { HookRunner, Prober } from "../core/pods/probe-ports.ts";
import { type DecisionRecorder, NO_DECISIONS } from "../core/store/decisions.ts";
import type { DesiredSnapshot, DesiredStore, EventRecorder } from "../core/store/store-ports.ts";
import { type Amounts, allocatableAmounts, mayFitSince } from "../plan/admission/admission-resources.ts";
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
 * Each pod is inspected this often without any reason. Hints report changes and the relist finds missed ones; this is a
 * second safety net, which costs one inspection per pod in 10 minutes.
 */
const RESYNC_PERIOD = seconds(600);
/** Limits of the pause between the inspections of two pods, which spread the load of a whole node. */
const RESYNC_SHORTEST = seconds(12);
const RESYNC_LONGEST = seconds(60);
/**
 * A sandbox costs a network setup of several processes: 40 at once would take a 512 MB board's memory, and are no
 * faster. On two busy cores 40 pods ran after 6.6 s two at a time, 3.9 s four, 4.5 s eight and 3.6 to 6.7 s forty at a
 * time. A sandbox that takes longer than `patience` frees its slot.
 */
const SANDBOX_SLOTS = { count: 8, patience: seconds(5) };
/**
 * The removal of a container takes some 50 ms. A worker that waits for a hook or for a container's end does not delay
 * the caller for longer than this.
 */
const RECLAIM_PATIENCE = seconds(20);
/** Objects of the API server arrive one by one; steps that wait for them are retried once for all within it. */
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
  /** Missing: containers run on any CPU. */
  readonly placement?: ContainerPlacement | undefined;
  /** Missing: containers get no devices. */
  readonly devices?: (ContainerDevices & { readonly changes: Watch<DeviceResources> }) | undefined;
  /** Missing: pods have no cgroups here. */
  readonly podResources?: PodResources | undefined;
  /** Fires when what the API server gives the pods may have changed. Missing: it never does. */
  readonly objectsChanged?: Watch<unknown> | undefined;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface PodWorkersInit {
  /** Default: the kubelet's. */
  readonly crashBackoff?: CrashBackoffLimits;
  /** The node's addresses, for statuses. */
  readonly hostIps?: () => readonly string[];
  /** The part of container ids before `://`. Default: the adapter's name. */
  readonly runtimeName?: (adapter: RuntimeAdapter) => string;
  /** True when the pod's runtime can make mounts recursively read-only. Default: false. */
  readonly recursiveReadOnly?: WorkerPorts["recursiveReadOnly"];
  /** Reads a run's termination message file; "" without one. */
  readonly terminationMessage?: WorkerPorts["terminationMessage"];
  readonly planPod?: PlanPod;
}

/** Has one worker for each pod that is wanted, and for each that was wanted and still has traces on this node. */
export class PodWorkers implements Component, PodObserverSink, PodEnder, PodMover {
  readonly name = "pod workers";
  readonly #components: PodWorkersComponents;
  readonly #ports: WorkerPorts;
  readonly #workers = new Map<PodUid, PodWorker>();
  readonly #orphans: OrphanedPods;
  readonly #resizes: PodResizes;
  readonly #tasks = new TaskGroup();
  /** Runtimes all of whose pods have been identified since the agent's start. */
  readonly #settled = new Set<RuntimeAdapter>();

  constructor(components: PodWorkersComponents, init: PodWorkersInit = {}) {
    this.#components = components;
    const { store, clock } = components;
    this.#ports = {
      ...components,
      events: new PodEvents(components.events),
      decisions: components.decisions ?? NO_DECISIONS,
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
    this.#orphans = new OrphanedPods(components, (found) => {
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
    const { objectsChanged, devices } = this.#components;
    if (objectsChanged !== undefined) this.#followObjects(objectsChanged, life.signal);
    if (devices !== undefined) this.#tasks.start(this.#followDevices(devices.changes, life.signal));
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
    // The worker may not have the pod's new version yet.
    this.#reconcile(this.#components.store.desired.current);
    await this.#workers.get(uid)?.leave(how, signal);
  }

  /** Removes dead containers kept only for their logs; a busy worker may do so later. @throws `cancelled` alone */
  async deleteDead(signal: AbortSignal): Promise<void> {
    const all = (deadline: AbortSignal) =>
      Promise.all([...this.#workers.values()].map((worker) => worker.reclaim(deadline)));
    try {
      await withDeadline(this.#components.clock, RECLAIM_PATIENCE, "remove dead containers", all, signal);
    } catch (error) {
      if (!isPicoletError(error, "deadline_exceeded")) throw error;
    }
  }

  /** Runs pods of this node's own sources again that the node has ended: the reason for it is over. */
  revive(): void {
    for (const worker of this.#workers.values()) if (worker.desired.source !== "api") worker.revive();
  }

  podChanged(adapter: RuntimeAdapter, uid: PodUid, why: "hint" | "relist"): void {
    const worker = this.#workers.get(uid);
    if (worker !== undefined) worker.poke(why);
    else if (this.#settled.has(adapter) && this.#isListed(adapter, uid)) this.#identify(adapter, [uid]);
  }

  /** Orphans are identified before any new pod of this runtime may start: one of them may have its name. */
  listed(adapter: RuntimeAdapter): void {
    const isBack = this.#settled.has(adapter);
    // The latest desired set comes first, so that none of its pods counts as an orphan.
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
    else this.#tasks.start(this.#orphans.identify(adapter, uids, signal).then(() => this.#settle(adapter)));
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

  /**
   * Pods that wait for a plugin go on, and the health of devices is published. A pod of the node's own that was
   * rejected is judged again when there are more devices of those that it asks for, because no controller replaces it.
   */
  async #followDevices(changes: Watch<DeviceResources>, signal: AbortSignal): Promise<void> {
    let before: Amounts = new Map();
    for await (const { allocatable } of changes.changes(signal)) {
      const now = allocatableAmounts(allocatable);
      for (const worker of this.#workers.values()) {
        const { desired, state } = worker;
        worker.objectsChanged();
        worker.poke();
        const isRejected = state.kind === "finished" && state.outcome.rejected === true;
        if (isRejected && desired.source !== "api" && mayFitSince(desired.pod, before, now)) worker.revive();
      }
      before = now;
    }
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
    // A pod that became wanted again while it was being removed gets a new worker.
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

  /** The other pods that the node has taken, with the larger of granted and actual resources. */
  #others(uid: PodUid): DesiredPod[] {
    const { statuses } = this.#ports;
    const { pods, removed } = this.#components.store.desired.current;
    const { adapters } = this.#components.router;
    // After the agent's start a worker may not have inspected its pod yet.
    const isListed = ({ state, uid: own }: PodWorker): boolean =>
      state.kind === "waiting" && adapters.some((each) => this.#isListed(each, own));
    return [...this.#workers.values()]
      .filter((each) => each.uid !== uid && (each.isTaken || isListed(each)))
      .map((each) => {
        // The worker may not have the latest version yet.
        const desired = pods.get(each.uid) ?? removed.get(each.uid) ?? each.desired;
        const pod = applyClaims(desired.pod, statuses.previous(each.uid));
        return pod === desired.pod ? desired : { ...desired, pod };
      });
  }

  /** True when nothing of the pod was started and no runtime lists it. */
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

  /** True when another runtime must run the pod. */
  #isElsewhere(desired: DesiredPod, adapter: RuntimeAdapter): boolean {
    try {
      return this.#components.router.adapterFor(desired) !== adapter;
    } catch {
      // No runtime of this node may run it: the one that has it keeps it.
      return false;
    }
  }

  #isListed(adapter: RuntimeAdapter, uid: PodUid): boolean {
    return this.#components.observer.listing(adapter)?.has(uid) ?? false;
  }

  /** A runtime that has the pod and must not run it comes first, because it must release the pod. */
  #adapterOf(desired: DesiredPod): RuntimeAdapter | undefined {
    const { router, observer } = this.#components;
    const holders = router.adapters.filter((adapter) => this.#isListed(adapter, desired.uid));
    try {
      const own = router.adapterFor(desired);
      const isSwitched = desired.runtime?.reason === "MemoryPressure";
      // A runtime that was not listed yet may still have this pod, which was switched to another one.
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
