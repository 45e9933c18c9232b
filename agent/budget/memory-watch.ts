import type { Component } from "@picolet/protocol/async/component.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Shedder } from "../core/node/shedder.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import type { OwnMemory } from "./own-memory.ts";

/**
 * The interval between samples; a sample takes 30 µs. A leak that uses up a small board's memory faster is left to the
 * OOM killer.
 */
const SAMPLE_INTERVAL = seconds(5);
/** The share of the budget at which memory is shed. Shedding costs about 100 ms, and what was shed is made again. */
const SHED_SHARE = 0.8;
/** Below it, it is over: what comes and goes near the limit is said once. */
const WELL_SHARE = 0.7;
/** V8 ends a process whose heap reaches its limit with no word: before that the heap counts like the budget. */
const HEAP_SHARE = 0.9;
/** The time between two attempts to shed while memory stays above the share. */
const SHED_INTERVAL_MS = 300_000;
/**
 * The agent restarts after so many samples above the budget, one of them after shedding: that is no burst, which
 * collections free.
 */
const SAMPLES_BEFORE_RESTART = 3;
/** Bounds restarts of an agent that needs more than its budget: each does about a hundred writes and scans. */
const RESTART_INTERVAL_S = 3600;

const AREA = "memory";
const RESTARTED = "restarted";

export interface MemoryWatchComponents {
  readonly read: () => OwnMemory;
  /** In this order; a collection of garbage belongs at the end. */
  readonly shedders: readonly Shedder[];
  /** Ends the agent in order and starts it again; pods keep running. */
  readonly restart: (reason: string) => void;
  readonly kept: KeptRecords;
  /** Seconds since the machine started: a restart may correct the clock. */
  readonly uptime: () => number;
  readonly bootId: string;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
}

export interface MemoryWatchInit {
  readonly nodeName: string;
  /** The budget of anonymous memory, swapped or not. */
  readonly budgetBytes: number;
}

type State =
  | { readonly kind: "well" }
  /** Memory is above the share at which caches are shed. */
  | { readonly kind: "tight"; readonly shedAtMs: number; readonly samplesAbove: number };

/**
 * Keeps the agent's own memory within its budget: sheds what it can do without, reports that, and restarts the agent as
 * the last resort.
 */
export class MemoryWatch implements Component {
  readonly name = "memory watch";
  readonly #components: MemoryWatchComponents;
  readonly #init: MemoryWatchInit;
  #state: State = { kind: "well" };
  /** Uptime before which it is not restarted. */
  #notBefore: number;
  #hasSaidItWaits = false;

  constructor(components: MemoryWatchComponents, init: MemoryWatchInit) {
    this.#components = components;
    this.#init = init;
    this.#notBefore = this.#lastRestart() + RESTART_INTERVAL_S;
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#components.clock.sleep(SAMPLE_INTERVAL, signal);
      this.#sample();
    }
  }

  #sample(): void {
    const share = this.#share(this.#components.read());
    const now = this.#components.clock.monotonic();
    if (this.#state.kind === "well") {
      if (share >= SHED_SHARE) this.#becomeTight(now);
      return;
    }
    if (share < WELL_SHARE) {
      this.#components.log.info("the agent's memory is within its budget again", this.#figures());
      this.#state = { kind: "well" };
      return;
    }
    let { shedAtMs } = this.#state;
    if (now - shedAtMs >= SHED_INTERVAL_MS) {
      this.#shed();
      shedAtMs = now;
    }
    const samplesAbove = share >= 1 ? this.#state.samplesAbove + 1 : 0;
    this.#state = { kind: "tight", shedAtMs, samplesAbove };
    if (samplesAbove >= SAMPLES_BEFORE_RESTART) this.#restart();
  }

  #share({ anonBytes, heapUsedBytes, heapLimitBytes }: OwnMemory): number {
    return Math.max(anonBytes / this.#init.budgetBytes, heapUsedBytes / (heapLimitBytes * HEAP_SHARE));
  }

  #becomeTight(now: number): void {
    const before = this.#figures();
    this.#shed();
    const after = this.#figures();
    this.#state = { kind: "tight", shedAtMs: now, samplesAbove: 0 };
    this.#components.log.warn("the agent's memory is near its budget: caches are shed", { before, after });
    this.#event(
      "AgentMemoryTight",
      `picolet takes ${mebibytes(before.anonBytes)} of its ${mebibytes(this.#init.budgetBytes)}; ${mebibytes(after.anonBytes)} after shedding caches`,
    );
  }

  #shed(): void {
    for (const { name, shed } of this.#components.shedders) {
      this.#components.log.debug("shedding", { name });
      shed();
    }
  }

  #restart(): void {
    const { uptime, kept, bootId, log, restart } = this.#components;
    const now = uptime();
    if (now < this.#notBefore) {
      if (!this.#hasSaidItWaits)
        log.error("the agent's memory is above its budget again, so soon after a restart for it", this.#figures());
      this.#hasSaidItWaits = true;
      return;
    }
    this.#notBefore = now + RESTART_INTERVAL_S;
    kept.put(AREA, RESTARTED, [bootId, now], "soon");
    const { anonBytes } = this.#figures();
    const message = `picolet takes ${mebibytes(anonBytes)}, more than its budget of ${mebibytes(this.#init.budgetBytes)}, and starts again; pods run on`;
    log.error("the agent's memory is above its budget: it starts again", this.#figures());
    this.#event("AgentMemoryExceeded", message);
    restart(message);
  }

  /** Uptime; long ago when there was none since the machine started. */
  #lastRestart(): number {
    const last = this.#components.kept.all(AREA).get(RESTARTED);
    const [bootId, at] = Array.isArray(last) ? (last as unknown[]) : [];
    return bootId === this.#components.bootId && typeof at === "number" ? at : -RESTART_INTERVAL_S;
  }

  #figures(): { readonly anonBytes: number; readonly heapUsedBytes: number } {
    const { anonBytes, heapUsedBytes } = this.#components.read();
    return { anonBytes, heapUsedBytes };
  }

  #event(reason: string, message: string): void {
    const regarding = nodeReference(this.#init.nodeName);
    this.#components.events.record({ regarding, type: "Warning", reason, message });
  }
}

const mebibytes = (bytes: number): string => `${Math.round((bytes / MEBIBYTE) * 10) / 10} MiB`;
