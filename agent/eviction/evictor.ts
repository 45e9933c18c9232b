import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, ignore, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import {
  type Clock,
  type Log,
  type Millis,
  type MonotonicMs,
  millis,
  type PodUid,
  seconds,
} from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { NodeUsage, PodDiskUsage, PodUsage } from "../core/node/usage.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { PodEnder, PodSwitch } from "../core/pods/pod-admission.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { Decision, DecisionRecorder } from "../core/store/decisions.ts";
import type { EventRecorder, ObjectReference } from "../core/store/store-ports.ts";
import { isCritical } from "../plan/admission/critical-pods.ts";
import { evictionDecision } from "../plan/eviction/eviction-decision.ts";
import { evictionMessage } from "../plan/eviction/eviction-message.ts";
import { conditionOf, type DiskLayout, isMemorySignal, type Observation } from "../plan/eviction/eviction-signals.ts";
import { amountOf, type EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";
import { type EvictionCandidate, podMemoryUsage, rankForEviction } from "../plan/eviction/rank-for-eviction.ts";
import { gracePeriodOf } from "../plan/grace-period.ts";

export interface EvictorComponents {
  readonly pods: () => readonly AgentPod[];
  readonly ender: PodEnder;
  /** Missing: no pod can go on as anything else. */
  readonly switcher?: PodSwitch | undefined;
  /** Sends SIGKILL to all processes in the pod's cgroup; missing: there are no cgroups. */
  readonly kill?: ((pod: DesiredPod, signal: AbortSignal) => Promise<void>) | undefined;
  /** Removes what an ended pod holds, volumes in memory and on disk. */
  readonly release: (pod: DesiredPod, signal: AbortSignal) => Promise<void>;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface EvictorInit {
  /** `evictionMaxPodGracePeriod`: what a pod gets at most when a soft threshold is met; undefined: its own. */
  readonly maxGracePeriod: Millis | undefined;
}

/** What is known of pods at the moment of the choice. Missing: it could not be seen, or is not needed. */
export interface EvictionFigures {
  readonly observed: Observation;
  readonly usage: NodeUsage | undefined;
  readonly disks: ReadonlyMap<PodUid, PodDiskUsage> | undefined;
  readonly layout: DiskLayout;
}

interface EvictionReason {
  /** The kubelet's, for event and status. */
  readonly message: string;
  readonly decide: (kind: "evicted" | "switched") => Decision;
}

/** The kubelet's, of a pod that it must get rid of at once. */
const IMMEDIATE = seconds(1);
/** The kubelet's: so long an evicted pod is waited for before another one goes. */
const CLEANUP_TIMEOUT = seconds(30);
/**
 * The kernel frees the memory of a killed process within some milliseconds; until then figures may be from before the
 * kill.
 */
const AFTER_EVICTION = millis(100);
/** A runtime reports within about 100 ms that a container was killed; one that does not is short of memory itself. */
const AFTER_KILL = seconds(2);
/**
 * SIGKILL frees memory within milliseconds, on a starved board within seconds; what is held longer is held by something
 * else.
 */
const KILLED_HOLDS = seconds(10);
/** Killed processes are in no cgroup any more, and counted, until the kernel has come round to each of them. */
const KILLED_COUNT = seconds(5);
/**
 * More than what a pod holds of which nothing runs yet or any more: its sandbox's process, and files that are still
 * cached.
 */
const UNSEEN_BYTES = 16 * MEBIBYTE;
const EVICTED = "Evicted";
const SWITCHED = "SwitchedToComponent";

/** What is logged of a pod that is seen off. */
const SEEN_OFF = {
  evicted: {
    done: "a pod has been evicted",
    late: "an evicted pod has not ended yet",
    failed: "cannot evict a pod",
  },
  switched: {
    done: "the containers of a switched pod have ended",
    late: "the containers of a switched pod have not ended yet",
    failed: "cannot end the containers of a switched pod",
  },
} as const;

function referenceTo(pod: DesiredPod): ObjectReference {
  const { namespace, name } = pod.pod.metadata;
  return { kind: "Pod", namespace, name, uid: apiUidOf(pod), fieldPath: "" };
}

const isOfDisk = ({ signal }: EvictionThreshold): boolean => conditionOf(signal) === "DiskPressure";

const processesOf = (usage: PodUsage | undefined): number | undefined => usage?.usage?.pids;

const usageByPod = (usage: NodeUsage | undefined): ReadonlyMap<PodUid, PodUsage> =>
  new Map((usage?.pods ?? []).map((each) => [each.pod.desired.uid, each]));

/** Chooses the pod that is to go, and sees it gone. */
export class Evictor {
  readonly #components: EvictorComponents;
  readonly #init: EvictorInit;
  /** The pods that are being ended. */
  readonly #leaving = new Set<PodUid>();
  /** The shortest grace period given to each pod that is still ending. */
  readonly #given = new Map<PodUid, Millis>();
  /** The time of the kill of each pod that still exists. */
  readonly #killed = new Map<PodUid, MonotonicMs>();
  /** Since when those are switched of which something is left in the runtime that they were in, as far as is seen. */
  readonly #switched = new Map<PodUid, MonotonicMs>();

  constructor(components: EvictorComponents, init: EvictorInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * One pod, waited for until nothing of it runs any more, or half a minute.
   * @returns false when there is none that may go. @throws `cancelled` alone
   */
  async evictOne(due: EvictionThreshold, figures: EvictionFigures, signal: AbortSignal): Promise<boolean> {
    const { clock, log } = this.#components;
    this.#forgetGone();
    if (this.#isOnItsWay(due, figures)) {
      await clock.sleep(AFTER_EVICTION, signal);
      return true;
    }
    const candidates = this.#candidates(due, figures);
    if (candidates.length === 0) {
      log.warn("an eviction threshold is met, but no pod is there to evict", { signal: due.signal });
    }
    for (const candidate of rankForEviction(candidates, due.signal, figures.layout)) {
      const message = evictionMessage(due, figures.observed, candidate);
      const { observed, layout } = figures;
      const decide = (kind: "evicted" | "switched"): Decision =>
        evictionDecision(kind, { due, observed, layout, candidate, candidates: candidates.length });
      const why: EvictionReason = { message, decide };
      if (isMemorySignal(due.signal) && (await this.#moved(candidate.pod, due, why, signal))) return true;
      if (isCritical(candidate.pod)) {
        log.error("cannot evict a critical pod", { pod: candidate.pod.uid });
        continue;
      }
      this.#count(due, figures);
      await this.#evict(candidate.pod, due, why, signal);
      return true;
    }
    return false;
  }

  /** @returns whether some pod may be evicted now. Cheap: no figures are read. */
  canEvict(due: EvictionThreshold): boolean {
    const { switcher } = this.#components;
    const isMoved = ({ uid }: DesiredPod): boolean =>
      isMemorySignal(due.signal) && (switcher?.canSwitch(uid) === true || switcher?.isLeaving(uid) === true);
    const mayGo = (pod: DesiredPod): boolean => !isCritical(pod) || isMoved(pod);
    return this.#components.pods().some((each) => this.#isCandidate(each, due) && mayGo(each.desired));
  }

  #candidates(due: EvictionThreshold, { usage, disks }: EvictionFigures): readonly EvictionCandidate[] {
    const used = usageByPod(usage);
    return this.#components
      .pods()
      .filter((each) => this.#isCandidate(each, due) || this.#isUnseen(each, due, used.get(each.desired.uid)))
      .map(({ desired: pod }) => ({ pod, usage: used.get(pod.uid), disk: disks?.get(pod.uid) }));
  }

  /**
   * Pods of which something runs, for disk also those that wait to run again: what they have written is there all the
   * while. Of pods that are ending already the ones that would end sooner, as the kubelet has it.
   */
  #isCandidate({ desired, containers, status, terminatingSinceMs }: AgentPod, due: EvictionThreshold): boolean {
    if (this.#leaving.has(desired.uid) || this.#isBeingSwitched(desired.uid)) return false;
    // The view of a pod may be older than its eviction: on a board in need a sample takes seconds.
    const given = this.#given.get(desired.uid);
    const isEnding = terminatingSinceMs !== undefined || given !== undefined;
    if (!containers.some(({ state }) => state.kind === "running")) {
      const isOver = status?.phase === "Failed" || status?.phase === "Succeeded";
      return isOfDisk(due) && containers.length > 0 && !isOver && !isEnding;
    }
    const own = gracePeriodOf(desired.pod);
    return !isEnding || (this.#graceFor(due) ?? own) < Math.min(own, given ?? own);
  }

  /** A container may have filled the memory before the runtime has told that it runs. */
  #isUnseen({ desired, status, terminatingSinceMs }: AgentPod, due: EvictionThreshold, usage?: PodUsage): boolean {
    const isOver = status?.phase === "Failed" || status?.phase === "Succeeded";
    const isLeaving = this.#leaving.has(desired.uid) || this.#isBeingSwitched(desired.uid);
    const isEnding = terminatingSinceMs !== undefined || this.#given.has(desired.uid) || isLeaving;
    const held = podMemoryUsage(usage) ?? 0;
    return isMemorySignal(due.signal) && !isOver && !isEnding && Number.isFinite(held) && held >= UNSEEN_BYTES;
  }

  /**
   * True while a switched pod's runtime may still release its memory. The wait is bounded: a runtime that is short of
   * memory itself may take for ever.
   */
  #isBeingSwitched(uid: PodUid): boolean {
    const since = this.#switched.get(uid);
    return since !== undefined && this.#components.clock.monotonic() - since < CLEANUP_TIMEOUT;
  }

  /**
   * @returns whether the pods killed so far still hold enough to end the shortage; processes count too, because the
   * kernel may have many to remove.
   */
  #isOnItsWay({ signal, value }: EvictionThreshold, { usage, observed }: EvictionFigures): boolean {
    if (conditionOf(signal) === "DiskPressure" || this.#killed.size === 0) return false;
    const now = this.#components.clock.monotonic();
    if (!isMemorySignal(signal) && [...this.#killed.values()].some((at) => now - at < KILLED_COUNT)) return true;
    const heldOf = isMemorySignal(signal) ? podMemoryUsage : processesOf;
    const used = usageByPod(usage);
    const latest = now - KILLED_HOLDS;
    let held = 0;
    for (const [uid, at] of this.#killed) if (at > latest) held += heldOf(used.get(uid)) ?? 0;
    return held > 0 && observed.available + held >= amountOf(value, observed.capacity);
  }

  #forgetGone(): void {
    if (this.#given.size + this.#killed.size + this.#switched.size === 0) return;
    const present = new Set(this.#components.pods().map(({ desired }) => desired.uid));
    for (const uid of this.#given.keys()) if (!present.has(uid)) this.#given.delete(uid);
    for (const uid of this.#killed.keys()) if (!present.has(uid)) this.#killed.delete(uid);
    for (const uid of this.#switched.keys()) if (!present.has(uid)) this.#switched.delete(uid);
  }

  #graceFor({ gracePeriod }: EvictionThreshold): Millis | undefined {
    return gracePeriod === undefined ? IMMEDIATE : this.#init.maxGracePeriod;
  }

  /**
   * Its containers go as those of an evicted pod, and it goes on as components; also one that is never evicted, for it
   * is not gone then. Of one that an agent before this one has switched what it left is seen off.
   * @returns false when it may not be switched, or that could not be written down: nothing has happened then
   */
  async #moved(pod: DesiredPod, due: EvictionThreshold, why: EvictionReason, signal: AbortSignal): Promise<boolean> {
    const { switcher, events, decisions, log } = this.#components;
    if (switcher?.isLeaving(pod.uid) === true) {
      await this.#seeOff(pod, "switched", (limit) => this.#leave(pod, due, limit), signal);
      return true;
    }
    if (switcher?.canSwitch(pod.uid) !== true) return false;
    const message = `Switched from containers to components. ${why.message}`;
    try {
      switcher.choose(pod.uid, message.trim());
    } catch (error) {
      log.error("cannot switch a pod to components", { pod: pod.uid, error: describeError(error) });
      return false;
    }
    const regarding = referenceTo(pod);
    events.record({ regarding, type: "Warning", reason: SWITCHED, message });
    decisions?.record(why.decide("switched"), pod);
    log.warn("a pod is switched to components", { pod: pod.uid, message: message.trim() });
    await this.#seeOff(pod, "switched", (limit) => this.#leave(pod, due, limit), signal);
    return true;
  }

  async #leave(pod: DesiredPod, due: EvictionThreshold, signal: AbortSignal): Promise<void> {
    const { switcher, clock } = this.#components;
    this.#switched.set(pod.uid, clock.monotonic());
    const left = switcher?.leave(pod.uid, { gracePeriod: this.#graceFor(due) }, signal) ?? Promise.resolve();
    if (!(await this.#killedAndOver(pod, due, left, signal))) return;
    await left;
    // Memory that the pod uses from now on is that of its components.
    this.#killed.delete(pod.uid);
    this.#switched.delete(pod.uid);
  }

  #count({ signal }: EvictionThreshold, { usage }: EvictionFigures): void {
    const { counts, clock } = this.#components;
    counts?.add("kubelet_evictions", signal);
    if (usage === undefined) return;
    const age = Math.max(0, clock.wall().getTime() - usage.atMs);
    counts?.observe("kubelet_eviction_stats_age_seconds", age, signal);
  }

  async #evict(pod: DesiredPod, due: EvictionThreshold, why: EvictionReason, signal: AbortSignal): Promise<void> {
    const { events, log } = this.#components;
    const { message } = why;
    const { namespace, name } = pod.pod.metadata;
    events.record({ regarding: referenceTo(pod), type: "Warning", reason: EVICTED, message });
    log.warn("a pod is evicted", { pod: pod.uid, name: `${namespace}/${name}`, message: message.trim() });
    await this.#seeOff(pod, "evicted", (limit) => this.#end(pod, due, why, limit), signal);
  }

  async #seeOff(
    pod: DesiredPod,
    how: keyof typeof SEEN_OFF,
    end: (limit: AbortSignal) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, log } = this.#components;
    const { done, late, failed } = SEEN_OFF[how];
    this.#leaving.add(pod.uid);
    try {
      await withDeadline(clock, CLEANUP_TIMEOUT, "see a pod end", end, signal);
      log.info(done, { pod: pod.uid });
    } catch (error) {
      if (isCancelled(error)) throw error;
      const isLate = isPicoletError(error, "deadline_exceeded");
      if (!isLate) this.#given.delete(pod.uid);
      log.error(isLate ? late : failed, { pod: pod.uid, error: describeError(error) });
    } finally {
      this.#leaving.delete(pod.uid);
    }
    await clock.sleep(AFTER_EVICTION, signal);
  }

  async #end(pod: DesiredPod, due: EvictionThreshold, why: EvictionReason, signal: AbortSignal): Promise<void> {
    const { ender, release } = this.#components;
    const { message } = why;
    const gracePeriod = this.#graceFor(due);
    if (gracePeriod !== undefined) this.#given.set(pod.uid, gracePeriod);
    const how = {
      reason: EVICTED,
      message,
      gracePeriod,
      disruption: { reason: "TerminationByKubelet", message },
      decision: why.decide("evicted"),
    };
    // First of all it is written down that the pod ends: what is killed then is not started again.
    const ended = ender.end(pod.uid, how, signal);
    if (!(await this.#killedAndOver(pod, due, ended, signal))) return;
    await ended;
    // The next sample must include the memory that this pod has freed, otherwise another one is evicted for it.
    await release(pod, signal);
  }

  /**
   * What is needed now cannot wait for a runtime, which waits for memory, or to fork, itself. @returns whether to wait
   * for `ended`
   */
  async #killedAndOver(
    pod: DesiredPod,
    due: EvictionThreshold,
    ended: Promise<void>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { kill, clock } = this.#components;
    const isHard = due.gracePeriod === undefined;
    const killed = isHard && !isOfDisk(due) ? kill?.(pod, signal) : undefined;
    if (killed === undefined) return true;
    // The kill may use up the time for both; then nothing awaits the end.
    ended.catch(ignore("the worker reports it; the kill may take the time in which it is awaited"));
    this.#killed.set(pod.uid, clock.monotonic());
    await killed.catch((error: unknown) => this.#cannotKill(pod, error));
    return await this.#isOverSoon(ended, signal);
  }

  /**
   * Its memory is free. If the runtime does not answer, the pod ends in the background, and the node is sampled again.
   */
  async #isOverSoon(ended: Promise<void>, signal: AbortSignal): Promise<boolean> {
    using wait = joinSignals(signal);
    const late = this.#components.clock.sleep(AFTER_KILL, wait.signal).then(
      () => false,
      () => true,
    );
    const isOver = await Promise.race([ended.then(() => true), late]);
    wait.abort();
    // Nothing awaits it any more.
    if (!isOver) ended.catch(ignore("the worker reports it; nothing awaits it any more"));
    return isOver;
  }

  #cannotKill({ uid: pod }: DesiredPod, error: unknown): void {
    this.#killed.delete(pod);
    if (isCancelled(error)) throw error;
    this.#components.log.warn("cannot kill an evicted pod through its cgroup", { pod, error: describeError(error) });
  }
}
