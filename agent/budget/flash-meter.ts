import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { FlashReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type MonotonicMs, NEVER, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import { dayShare, FlashDays, keptDay, largest } from "./flash-days.ts";
import type { DiskWrites, OwnWrites, WriteCounters } from "./write-counters.ts";
import { writePace } from "./write-pace.ts";

/**
 * The interval between samples. Writes of a pod's last moments are missed, at most those of one interval; a sample of
 * 50 pods costs 10 ms.
 */
const SAMPLE_INTERVAL = seconds(60);
/**
 * What is not on disk yet when the agent is killed is counted from the counters' last values; what it wrote itself is
 * not.
 */
const KEEP_INTERVAL = seconds(3600);
/** Disks come and go with mounts; runtimes tell late where their images are. */
const DISKS_INTERVAL = seconds(3600);

const AREA = "flash";
const LAST_AREA = "flash-last";
/** Readings in one record, each some 50 bytes: below the limit of a record's size. */
const READINGS_PER_RECORD = 50;
/** Named in messages. */
const NAMED_WRITERS = 3;
/** The number of writers that `edgectl status` shows. */
const SHOWN_WRITERS = 5;

export interface MeteredPod {
  readonly desired: DesiredPod;
  /** The adapter that runs it. */
  readonly runtime: string;
}

export interface FlashMeterComponents {
  readonly counters: WriteCounters;
  readonly kept: KeptRecords;
  /** Names of the disks that wear; `flashDisks`. */
  readonly findDisks: (signal: AbortSignal) => Promise<readonly string[]>;
  readonly pods: () => readonly MeteredPod[];
  /** A pod's cgroup; "": it has none. */
  readonly podCgroup: (pod: DesiredPod) => string;
  /** Takes the factor by which delayable writes are delayed; called when it changes. */
  readonly stretch: (factor: number) => void;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
}

export interface FlashMeterInit {
  readonly nodeName: string;
  /** The budget of all disks together, bytes a day. 0: no budget, and no condition. */
  readonly budgetBytes: number;
  /** The agent's budget, bytes a day. */
  readonly agentBudgetBytes: number;
}

/** The counters of the last sample. */
interface Readings {
  readonly disks: Map<string, number>;
  readonly pods: Map<PodUid, number>;
  own: OwnWrites;
}

/**
 * Meters what is written to the disks that the node lives on, by day: in all, by the agent, by each pod. Holds the
 * agent to its own share by having the store keep back for longer what can wait.
 */
export class FlashMeter implements Component {
  readonly name = "flash meter";
  readonly #components: FlashMeterComponents;
  readonly #init: FlashMeterInit;
  readonly #days = new FlashDays();
  readonly #last: Readings;
  readonly #pressure = new WatchSource<readonly PressureCondition[]>([]);
  #disks: readonly string[] = [];
  #disksFoundAt: MonotonicMs | undefined;
  #keptAt: MonotonicMs;
  /** True when the machine was started since the last sample: the next one counts everything that the counters have. */
  #isFirstOfBoot: boolean;
  /** Their processes' parent is the agent. */
  readonly #componentPods = new Set<PodUid>();
  #stretch = 1;

  constructor(components: FlashMeterComponents, init: FlashMeterInit) {
    this.#components = components;
    this.#init = init;
    this.#keptAt = components.clock.monotonic();
    this.#last = { disks: new Map(), pods: new Map(), own: components.counters.own() };
    this.#days.load(components.kept.all(AREA));
    this.#isFirstOfBoot = this.#loadReadings();
    if (init.budgetBytes > 0) this.#pressure.set([NO_PRESSURE]);
  }

  /** Empty without a budget. */
  get pressure(): Watch<readonly PressureCondition[]> {
    return this.#pressure;
  }

  report(): FlashReport {
    const { today, average } = this.#days;
    const { budgetBytes, agentBudgetBytes } = this.#init;
    const knowsDisks = this.#disks.length > 0;
    return {
      disks: this.#disks,
      day: today.day,
      today: {
        bytes: knowsDisks ? today.disks : null,
        agentBytes: today.agent,
        pods: [...largest(today.pods, SHOWN_WRITERS)].map(([name, bytes]) => ({ name, bytes })),
      },
      dailyAverage:
        average === undefined
          ? null
          : {
              bytes: knowsDisks ? Math.round(average.disks) : null,
              agentBytes: Math.round(average.agent),
              days: average.days,
            },
      budgetBytes: budgetBytes > 0 ? budgetBytes : null,
      agentBudgetBytes,
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#findDisks(signal);
      await this.#sample(signal);
      await this.#components.clock.sleep(SAMPLE_INTERVAL, signal);
    }
  }

  /** Keeps what has been counted: the store, which is disposed of later, writes it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disksFoundAt !== undefined) await this.#sample(NEVER);
    this.#keep();
  }

  async #findDisks(signal: AbortSignal): Promise<void> {
    const { clock, log, findDisks } = this.#components;
    const now = clock.monotonic();
    if (this.#disksFoundAt !== undefined && now - this.#disksFoundAt < DISKS_INTERVAL) return;
    const disks = await findDisks(signal);
    if (this.#disksFoundAt === undefined || disks.join() !== this.#disks.join())
      log.info("metering what is written to disk", { disks: disks.join(", ") || "unknown" });
    this.#disks = disks;
    this.#disksFoundAt = now;
  }

  async #sample(signal: AbortSignal): Promise<void> {
    const { clock, counters } = this.#components;
    const wall = clock.wall();
    const isNewDay = this.#days.turn(wall, clock.monotonic());
    const disks = counters.disks(this.#disks);
    const { pods, reaped } = await this.#samplePods(disks, signal);
    const agent = this.#sampleAgent(reaped);
    this.#days.add({ disks: this.#sampleDisks(disks), agent, pods });
    this.#judge();
    this.#hold(wall);
    if (isNewDay || clock.monotonic() - this.#keptAt >= KEEP_INTERVAL) this.#keep();
  }

  #sampleDisks(disks: ReadonlyMap<string, DiskWrites>): number {
    let sum = 0;
    for (const [name, { bytes }] of disks) {
      const last = this.#last.disks.get(name);
      if (last !== undefined || this.#isFirstOfBoot) sum += grown(bytes, last ?? 0);
      this.#last.disks.set(name, bytes);
    }
    this.#isFirstOfBoot = false;
    return sum;
  }

  /**
   * @returns what each wrote, and what processes of components had written that have ended: their parent is the agent
   */
  async #samplePods(
    disks: ReadonlyMap<string, DiskWrites>,
    signal: AbortSignal,
  ): Promise<{ readonly pods: ReadonlyMap<string, number>; readonly reaped: number }> {
    const { counters, podCgroup } = this.#components;
    const numbers = new Set([...disks.values()].map((each) => each.numbers));
    const found = new Map<string, number>();
    const seen = new Set<PodUid>();
    let reaped = 0;
    for (const { desired, runtime } of this.#components.pods()) {
      const path = podCgroup(desired);
      if (path === "") continue;
      const isComponent = runtime === COMPONENTS;
      const bytes = counters.pod(path, numbers, isComponent ? "processes" : "cgroup") ?? 0;
      const last = this.#last.pods.get(desired.uid) ?? 0;
      seen.add(desired.uid);
      this.#last.pods.set(desired.uid, bytes);
      const name = `${desired.pod.metadata.namespace}/${desired.pod.metadata.name}`;
      found.set(name, (found.get(name) ?? 0) + grown(bytes, last));
      if (isComponent) {
        this.#componentPods.add(desired.uid);
        reaped += Math.max(0, last - bytes);
      }
      await turn();
      signal.throwIfAborted();
    }
    for (const [uid, last] of this.#last.pods) {
      if (seen.has(uid)) continue;
      this.#last.pods.delete(uid);
      if (this.#componentPods.delete(uid)) reaped += last;
    }
    return { pods: found, reaped };
  }

  /** Children are its own as far as they were not components. */
  #sampleAgent(reaped: number): number {
    const now = this.#components.counters.own();
    const { own: last } = this.#last;
    this.#last.own = now;
    const threads = grown(now.threads, last.threads);
    const children = Math.max(0, now.whole - last.whole - threads - reaped);
    return threads + children;
  }

  /** True until the day is over: what is written is written. */
  #judge(): void {
    const { budgetBytes, nodeName } = this.#init;
    if (budgetBytes === 0) return;
    const { today } = this.#days;
    const [{ status } = NO_PRESSURE] = this.#pressure.current;
    if (this.#disks.length === 0) {
      if (status !== "Unknown") this.#pressure.set([UNKNOWN]);
      return;
    }
    if (today.disks <= budgetBytes) {
      if (status !== "False") this.#pressure.set([NO_PRESSURE]);
      return;
    }
    if (status === "True") return;
    const message = `${inUnits(today.disks)} were written to ${this.#disks.join(", ")} today, the budget is ${inUnits(budgetBytes)}${this.#writers()}`;
    this.#pressure.set([{ type: "FlashWearPressure", status: "True", reason: EXCEEDED, message }]);
    const regarding = nodeReference(nodeName);
    this.#components.events.record({ regarding, type: "Warning", reason: EXCEEDED, message });
  }

  #writers(): string {
    const { pods, agent } = this.#days.today;
    const all = largest(new Map([...pods, ["the agent", agent]]), NAMED_WRITERS);
    const named = [...all].filter(([, bytes]) => bytes > 0).map(([name, bytes]) => `${name} ${inUnits(bytes)}`);
    return named.length === 0 ? "" : `; most by ${named.join(", ")}`;
  }

  #hold(wall: Date): void {
    const { agent } = this.#days.today;
    const stretch = writePace(agent, this.#init.agentBudgetBytes, dayShare(wall));
    if (stretch === this.#stretch) return;
    const { log } = this.#components;
    const fields = { writtenToday: agent, budget: this.#init.agentBudgetBytes, stretch };
    if (this.#stretch === 1)
      log.info("the agent has written much today: what can wait is kept back for longer", fields);
    else if (stretch === 1) log.info("the agent writes as usual again", fields);
    this.#stretch = stretch;
    this.#components.stretch(stretch);
  }

  #keep(): void {
    const { kept, clock, counters } = this.#components;
    this.#keptAt = clock.monotonic();
    const { today, past } = this.#days;
    if (today.day === "") return;
    const days = [...past, today];
    const wanted = new Set(days.map(({ day }) => day));
    for (const day of kept.all(AREA).keys()) if (!wanted.has(day)) kept.delete(AREA, day);
    for (const each of days) kept.put(AREA, each.day, keptDay(each));
    const readings = [...this.#last.pods].filter(([, bytes]) => bytes > 0);
    const chunks = new Map<string, unknown>([
      ["disks", [counters.bootId, [...this.#last.disks]]],
      ...Array.from(
        { length: Math.ceil(readings.length / READINGS_PER_RECORD) },
        (_, n) => [`pods-${n}`, readings.slice(n * READINGS_PER_RECORD, (n + 1) * READINGS_PER_RECORD)] as const,
      ),
    ]);
    for (const key of kept.all(LAST_AREA).keys()) if (!chunks.has(key)) kept.delete(LAST_AREA, key);
    for (const [key, value] of chunks) kept.put(LAST_AREA, key, value);
  }

  /** Loads the last sample, so that counting continues. @returns whether the machine was started since */
  #loadReadings(): boolean {
    const records = this.#components.kept.all(LAST_AREA);
    const [bootId, disks] = asList(records.get("disks"));
    if (typeof bootId !== "string") return false;
    if (bootId !== this.#components.counters.bootId) return true;
    // The first reading of a new disk, or of a counter without a record, is only the starting point.
    for (const [name, bytes] of pairs(disks)) this.#last.disks.set(name, bytes);
    for (const [key, value] of records)
      if (key.startsWith("pods-")) for (const [uid, bytes] of pairs(value)) this.#last.pods.set(uid as PodUid, bytes);
    return false;
  }
}

/** The adapter whose containers are children of the agent. */
const COMPONENTS = "wasm";

const EXCEEDED = "FlashWearBudgetExceeded";

const NO_PRESSURE: PressureCondition = {
  type: "FlashWearPressure",
  status: "False",
  reason: "KubeletHasNoFlashWearPressure",
  message: "kubelet has no flash wear pressure",
};

const UNKNOWN: PressureCondition = {
  type: "FlashWearPressure",
  status: "Unknown",
  reason: "FlashWearUnknown",
  message: "the system does not report what is written to the node's disks",
};

/** A counter that has decreased counts another thing of the same name. */
const grown = (now: number, last: number): number => (now >= last ? now - last : 0);

/** Lets other work run first: a sample of 50 pods takes 10 ms, 50 on a small board. */
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const inUnits = (bytes: number): string =>
  bytes < MEBIBYTE ? `${Math.ceil(bytes / 1024)} KiB` : `${Math.round((bytes / MEBIBYTE) * 10) / 10} MiB`;

const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function pairs(value: unknown): [string, number][] {
  const isPair = (each: unknown): each is [string, number] =>
    Array.isArray(each) && typeof each[0] === "string" && typeof each[1] === "number" && each[1] >= 0;
  return asList(value).filter(isPair);
}
