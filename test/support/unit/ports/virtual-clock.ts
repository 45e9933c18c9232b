/**
 * Time that passes only when a test lets it: a sleeper wakes when the clock is moved past its hour, in order of the
 * hours, ties in order of arrival or by lot. Between two wakings everything that can run has run.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  type CancelSignal,
  type Clock,
  type Millis,
  type MonotonicMs,
  millis,
  type Random,
} from "@picolet/protocol/ports.ts";

interface Sleeper {
  readonly at: number;
  readonly order: number;
  readonly wake: () => void;
}

/** Until every promise that can go on has gone on. */
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** 2026-01-01T00:00:00Z. */
const DEFAULT_WALL_MS = 1_767_225_600_000;

export class VirtualClock implements Clock {
  #now = 0;
  #wallOffset: number;
  #order = 0;
  readonly #lots: Random | undefined;
  readonly #sleepers = new Set<Sleeper>();

  /** @param lots draws the order of those who wake in the same millisecond. */
  constructor(wallMs: number = DEFAULT_WALL_MS, lots?: Random) {
    this.#wallOffset = wallMs;
    this.#lots = lots;
  }

  monotonic(): MonotonicMs {
    return this.#now as MonotonicMs;
  }

  wall(): Date {
    return new Date(this.#now + this.#wallOffset);
  }

  /** Sets the wall clock; durations are untouched. */
  setWall(wallMs: number): void {
    this.#wallOffset = wallMs - this.#now;
  }

  sleep(duration: Millis, signal: CancelSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = (): void => {
        signal.removeEventListener("abort", cancel);
        this.#sleepers.delete(sleeper);
        reject(new PicoletError("cancelled", "the wait was cancelled"));
      };
      const wake = (): void => {
        signal.removeEventListener("abort", cancel);
        resolve();
      };
      this.#order += 1;
      const order = this.#lots?.next() ?? this.#order;
      const sleeper: Sleeper = { at: this.#now + Math.max(0, duration), order, wake };
      if (signal.aborted) {
        cancel();
        return;
      }
      signal.addEventListener("abort", cancel);
      this.#sleepers.add(sleeper);
    });
  }

  /** How many sleep; what is left when all is at an end has leaked. */
  get sleeping(): number {
    return this.#sleepers.size;
  }

  /** The time until the next sleeper wakes; `undefined` without sleepers. */
  get untilNext(): Millis | undefined {
    const next = this.#next();
    return next === undefined ? undefined : millis(Math.max(0, next.at - this.#now));
  }

  /** Lets everything run that waits for no time. */
  settle(): Promise<void> {
    return nextTurn();
  }

  /**
   * Lets `duration` pass, waking sleepers on the way.
   * @param enough asked after each waking; time stands still there when it says so.
   */
  async advance(duration: Millis, enough: () => boolean = () => false): Promise<void> {
    const end = this.#now + duration;
    await this.settle();
    for (let next = this.#next(); next !== undefined && next.at <= end; next = this.#next()) {
      await this.#wake(next);
      if (enough()) return;
    }
    this.#now = end;
  }

  /**
   * Goes to the time of the next sleeper and wakes it.
   * @returns false without sleepers
   */
  async step(): Promise<boolean> {
    await this.settle();
    const next = this.#next();
    if (next === undefined) return false;
    await this.#wake(next);
    return true;
  }

  async #wake(sleeper: Sleeper): Promise<void> {
    this.#now = Math.max(this.#now, sleeper.at);
    this.#sleepers.delete(sleeper);
    sleeper.wake();
    await this.settle();
  }

  #next(): Sleeper | undefined {
    let best: Sleeper | undefined;
    for (const each of this.#sleepers) {
      if (best === undefined || each.at < best.at || (each.at === best.at && each.order < best.order)) best = each;
    }
    return best;
  }
}
