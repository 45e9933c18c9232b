import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { MemoryEvents } from "../core/node/memory-events.ts";
import type { MemoryReading } from "../core/node/memory-reading.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { NodeReclaim } from "../core/node/node-reclaim.ts";
import type { NodeFilesystems, NodeUsage, UsageSampler } from "../core/node/usage.ts";
import { nodeReference } from "../core/store/store-ports.ts";
import { DISK_SAMPLE_INTERVAL, type DiskSample, nextDiskSampleIn } from "../plan/eviction/disk-sampling.ts";
import {
  conditionOf,
  type DiskLayout,
  filesystemObservations,
  isMemorySignal,
  layoutOf,
  type Observations,
  readingObservations,
  reclaimSteps,
  resourceOf,
  usageObservations,
} from "../plan/eviction/eviction-signals.ts";
import { isMet } from "../plan/eviction/eviction-state.ts";
import { containerfsThresholds, type EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";
import {
  MEMORY_SAMPLE_MIN_INTERVAL,
  needsHeldStalls,
  planMemorySampling,
  type StallWindow,
} from "../plan/eviction/memory-sampling.ts";
import { type EvictionFigures, Evictor, type EvictorComponents } from "./evictor.ts";
import { pressureConditions } from "./pressure-conditions.ts";
import { PressureLoop } from "./pressure-loop.ts";

export interface EvictionManagerComponents extends EvictorComponents {
  readonly usage: UsageSampler;
  /**
   * @param range within which it is exact, in bytes: `near` the pods' limit, and where the node is `short` of memory
   */
  readonly memory: (range: { readonly near: number; readonly short: number }) => MemoryReading;
  /**
   * The sum of the stalls of pods that are held at memory limits of their own, in microseconds. Missing: they cannot be
   * distinguished.
   */
  readonly heldStalls?: ((now: MonotonicMs) => number) | undefined;
  /** Missing: the kernel does not report it. */
  readonly memoryEvents?: MemoryEvents | undefined;
  readonly reclaim: NodeReclaim;
}

export interface EvictionManagerInit {
  readonly nodeName: string;
  readonly thresholds: readonly EvictionThreshold[];
  readonly transitionPeriod: Millis;
  /** `evictionMaxPodGracePeriod`; undefined when it is negative: the pods' own. */
  readonly maxGracePeriod: Millis | undefined;
  /** The node's limit of processes; undefined: unknown. */
  readonly maxPids: number | undefined;
}

/** The kubelet's monitoring interval, while a threshold is met or was met lately. */
const INTERVAL = seconds(10);
/** The interval between samples while no threshold is near. Memory events still wake the loop at once. */
const CALM_INTERVAL = seconds(60);
/** Bounds one sample, so that a runtime that hangs delays no eviction. */
const SAMPLE_TIMEOUT = seconds(5);
/**
 * Bounds counting pods' files. Without their sizes the wrong pod may be evicted, and a slow card takes long to count.
 */
const MEASURE_TIMEOUT = seconds(60);
/** After its start the node gets so long to learn what it can reclaim. A runtime that is silent then has nothing. */
const RECLAIM_PATIENCE = seconds(30);
const RECLAIM_POLL = millis(100);
/** After an eviction for a disk, the wait for freed space before another pod is evicted. */
const AWAITED_FOR = seconds(10);
const AWAITED_POLL = millis(500);
/** When pods' memory is this near to their limit, in multiples of the threshold, it is read exactly. */
const NEARNESS = 2;
const EXACTLY = { near: Infinity, short: Infinity };
const NO_DISKS: DiskLayout = { dedicatedImagefs: false, splitContainerfs: false };

const isOfDisk = ({ signal }: EvictionThreshold): boolean => conditionOf(signal) === "DiskPressure";

/**
 * Ends pods before the node runs out of memory, disk, inodes or processes (the kubelet's eviction manager). Memory and
 * disks have a loop each: a runtime that takes its time to say where its images are holds up no pod that has to go now.
 */
export class EvictionManager implements Component {
  readonly name = "eviction manager";
  readonly #components: EvictionManagerComponents;
  readonly #init: EvictionManagerInit;
  readonly #pressure: WatchSource<readonly PressureCondition[]>;
  readonly #evictor: Evictor;
  readonly #memory: PressureLoop;
  readonly #disk: PressureLoop;
  /** The thresholds of memory and processes. */
  readonly #fast: readonly EvictionThreshold[];
  #ofDisk: readonly EvictionThreshold[];
  /** The last sample taken while a resource was short. */
  #usage: NodeUsage | undefined;
  /** The layout of the last sample. */
  #layout: DiskLayout | undefined;
  #disks: DiskSample | undefined;
  #untilDisks: Millis = DISK_SAMPLE_INTERVAL;
  /** The last pod that was evicted for a disk, and what was available before. */
  #awaited: { readonly due: EvictionThreshold; readonly available: number; readonly since: MonotonicMs } | undefined;
  #stalls: StallWindow | undefined;
  readonly #startedAt: MonotonicMs;
  /** Signals that could not be sampled; each is logged once until it can be. */
  readonly #unseen = new Set<string>();

  constructor(components: EvictionManagerComponents, init: EvictionManagerInit) {
    const { clock, log } = components;
    this.#components = components;
    this.#init = init;
    this.#startedAt = clock.monotonic();
    this.#pressure = new WatchSource(pressureConditions(new Set()));
    this.#evictor = new Evictor(components, init);
    this.#ofDisk = init.thresholds.filter(isOfDisk);
    this.#fast = init.thresholds.filter((each) => !isOfDisk(each));
    const conditionsChanged = (): void => this.#publish();
    const canRelieve = (due: EvictionThreshold): boolean => this.#evictor.canEvict(due);
    const rhythm = { transitionPeriod: init.transitionPeriod };
    this.#memory = new PressureLoop(
      {
        ...{ clock, log, conditionsChanged },
        thresholds: () => this.#fast,
        interval: () => (this.#memory.isCalm ? CALM_INTERVAL : INTERVAL),
        observe: (signal) => this.#sampleUsage(signal),
        canRelieve,
        relieve: (due, observations, signal) => this.#relieve(due, observations, signal),
      },
      rhythm,
    );
    this.#disk = new PressureLoop(
      {
        ...{ clock, log, conditionsChanged },
        thresholds: () => this.#ofDisk,
        interval: () => this.#untilDisks,
        observe: (signal) => this.#sampleDisks(signal),
        canRelieve,
        relieve: (due, observations, signal) => this.#relieveDisk(due, observations, signal),
      },
      rhythm,
    );
  }

  /** MemoryPressure, DiskPressure and PIDPressure. */
  get pressure(): Watch<readonly PressureCondition[]> {
    return this.#pressure;
  }

  async run(signal: AbortSignal): Promise<void> {
    using _events = this.#components.memoryEvents;
    await Promise.all([
      ...(this.#fast.length === 0 ? [] : [this.#memory.run(signal), this.#watchMemory(signal)]),
      ...(this.#ofDisk.length === 0 ? [] : [this.#disk.run(signal)]),
    ]);
  }

  #publish(): void {
    const next = pressureConditions(new Set([...this.#memory.conditions, ...this.#disk.conditions]));
    const isSame = next.every(({ status }, index) => status === this.#pressure.current[index]?.status);
    if (!isSame) this.#pressure.set(next);
  }

  /**
   * Samples memory and processes only, more often the less is available. Memory events bring the next sample forward,
   * but never make samples more frequent: a pod held at its limit causes a hundred events a second.
   */
  async #watchMemory(signal: AbortSignal): Promise<void> {
    const { clock, memory, memoryEvents, heldStalls, pods, log } = this.#components;
    const hard = this.#fast.find((each) => isMemorySignal(each.signal) && each.gracePeriod === undefined);
    const alarm = new Alarm(clock);
    while (!signal.aborted) {
      memoryEvents?.listen(() => alarm.set(MEMORY_SAMPLE_MIN_INTERVAL));
      const reading = memory(this.#exactRange());
      const isEmpty = reading.pods === undefined && pods().length === 0;
      const now = clock.monotonic();
      const seen = { reading, window: this.#stalls, now, isEmpty };
      const view = { ...seen, heldUs: needsHeldStalls(this.#fast, seen) ? heldStalls?.(now) : undefined };
      const { crossed, stalled, nextSampleIn, window } = planMemorySampling(this.#fast, view);
      this.#stalls = window;
      if (crossed.length > 0) this.#memory.crossed(crossed);
      else if (stalled && hard !== undefined && this.#memory.urge(hard)) {
        log.warn("processes wait for memory, though the eviction threshold is not met", {
          ...view.reading.node,
        });
      }
      alarm.set(nextSampleIn);
      await alarm.ring(signal);
    }
  }

  #exactRange(): { near: number; short: number } {
    const ofMemory = this.#fast.filter(({ signal }) => isMemorySignal(signal));
    const amounts = ofMemory.map(({ value }) => (value.kind === "quantity" ? value.value : Infinity));
    const short = Math.max(0, ...amounts);
    return { near: short * NEARNESS, short };
  }

  /**
   * The node's own figures suffice while nothing is short. Otherwise the sample that judges is the one that the pod is
   * chosen by: if the kernel kills a pod in between, another one would be evicted for it.
   */
  async #sampleUsage(signal: AbortSignal): Promise<Observations> {
    const seen = this.#sampleMemory();
    this.#usage = undefined;
    if (!this.#fast.some((each) => isMet(each, seen, true))) return seen;
    this.#usage = await this.#measured(signal);
    return this.#usage === undefined ? new Map() : usageObservations(this.#usage, this.#init.maxPids);
  }

  #measured(signal: AbortSignal): Promise<NodeUsage | undefined> {
    const { usage } = this.#components;
    return this.#seen("sample the usage of pods", (limit) => usage.sample(millis(0), limit), signal);
  }

  #sampleMemory(): Observations {
    const { memory } = this.#components;
    const what = "read memory";
    const observations = readingObservations(memory(EXACTLY));
    if (observations.has("memory.available")) this.#unseen.delete(what);
    else this.#reportUnseen(what, "the kernel does not report it");
    return observations;
  }

  async #sampleDisks(signal: AbortSignal): Promise<Observations> {
    const { usage } = this.#components;
    const found = await this.#seen("sample file systems", (limit) => usage.filesystems(millis(0), limit), signal);
    if (found === undefined) return new Map();
    if (this.#layout === undefined) this.#addContainerfs(found);
    this.#layout = layoutOf(found);
    const now = { observations: filesystemObservations(found), at: this.#components.clock.monotonic() };
    this.#untilDisks = nextDiskSampleIn(this.#ofDisk, this.#disks, now);
    this.#disks = now;
    return now.observations;
  }

  /** The kubelet's: what containers write is held to the thresholds of the file system that it is on. */
  #addContainerfs({ nodefs, containerfs }: NodeFilesystems): void {
    const sameAs = containerfs === nodefs ? "nodefs" : "imagefs";
    this.#ofDisk = [...this.#ofDisk, ...containerfsThresholds(this.#ofDisk, sameAs)];
  }

  /** Undefined when it cannot be seen now, which is said once. @throws `cancelled` alone */
  async #seen<T>(
    what: string,
    sample: (limit: AbortSignal) => Promise<T>,
    signal: AbortSignal,
    timeout = SAMPLE_TIMEOUT,
  ): Promise<T | undefined> {
    const { clock } = this.#components;
    try {
      const found = await withDeadline(clock, timeout, what, sample, signal);
      this.#unseen.delete(what);
      return found;
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#reportUnseen(what, describeError(error));
      return undefined;
    }
  }

  #reportUnseen(what: string, error: string): void {
    const message = "cannot see what is left: no pod is evicted for it until that is seen";
    if (!this.#unseen.has(what)) this.#components.log.warn(message, { error });
    this.#unseen.add(what);
  }

  async #relieve(due: EvictionThreshold, observations: Observations, signal: AbortSignal): Promise<boolean> {
    // Urged to: nothing was short by what the node itself showed.
    const usage = this.#usage ?? (await this.#measured(signal));
    if (usage === undefined) return false;
    this.#report(due);
    return await this.#evictor.evictOne(due, this.#figures(due, observations, { usage }), signal);
  }

  async #relieveDisk(due: EvictionThreshold, observations: Observations, signal: AbortSignal): Promise<boolean> {
    if (!this.#isAwaited(due, observations)) this.#report(due);
    const after = await this.#reclaim(due, signal);
    if (after !== undefined && !this.#ofDisk.some((each) => isMet(each, after, true))) return true;
    const { usage, clock } = this.#components;
    if (this.#isAwaited(due, after ?? observations)) {
      await clock.sleep(AWAITED_POLL, signal);
      return true;
    }
    const measure = (limit: AbortSignal) => usage.disk(millis(0), limit);
    const files = await this.#seen("measure what pods have on disk", measure, signal, MEASURE_TIMEOUT);
    if (files === undefined) return false;
    const figures = this.#figures(due, after ?? observations, { disks: files });
    const isDone = await this.#evictor.evictOne(due, figures, signal);
    if (isDone) this.#awaited = { due, available: figures.observed.available, since: clock.monotonic() };
    return isDone;
  }

  /**
   * A busy runtime takes its time to remove what the last pod has written: until then the disk says nothing of what is
   * left.
   */
  #isAwaited({ signal }: EvictionThreshold, observations: Observations): boolean {
    const last = this.#awaited;
    if (last === undefined || last.due.signal !== signal) return false;
    const available = observations.get(signal)?.available ?? 0;
    return available <= last.available && this.#components.clock.monotonic() - last.since < AWAITED_FOR;
  }

  #report({ signal }: EvictionThreshold): void {
    this.#components.events.record({
      regarding: nodeReference(this.#init.nodeName),
      type: "Warning",
      reason: "EvictionThresholdMet",
      message: `Attempting to reclaim ${resourceOf(signal)}`,
    });
  }

  #figures(
    due: EvictionThreshold,
    observations: Observations,
    { usage, disks }: Partial<Pick<EvictionFigures, "usage" | "disks">>,
  ): EvictionFigures {
    const observed = observations.get(due.signal) ?? { available: 0, capacity: 0 };
    return { observed, usage, disks, layout: this.#layout ?? NO_DISKS };
  }

  /** @returns what is left then; undefined when there was nothing to give back */
  async #reclaim({ signal: starved }: EvictionThreshold, signal: AbortSignal): Promise<Observations | undefined> {
    const { reclaim, log } = this.#components;
    const steps = reclaimSteps(starved, this.#layout ?? NO_DISKS);
    if (steps.length === 0) return undefined;
    await this.#untilReclaimable(signal);
    for (const step of steps) {
      try {
        if (step === "deadContainers") await reclaim.deleteDeadContainers(signal);
        else await reclaim.deleteUnusedImages(signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        log.warn("cannot give back what the node has to spare", { step, error: describeError(error) });
      }
    }
    return await this.#sampleDisks(signal);
  }

  /**
   * After the agent's start: no pod goes for what an unused image would give back, which is not known to be unused yet.
   */
  async #untilReclaimable(signal: AbortSignal): Promise<void> {
    const { reclaim, clock } = this.#components;
    while (!reclaim.isReady() && clock.monotonic() - this.#startedAt < RECLAIM_PATIENCE)
      await clock.sleep(RECLAIM_POLL, signal);
  }
}
