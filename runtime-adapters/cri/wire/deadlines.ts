import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";

/** Calls something back at a time, unless it is disposed of before. */
export interface Deadline extends Disposable {
  readonly atMs: number;
  /** Reports whether the time has come, also where `onExpiry` is late. */
  isOver(): boolean;
}

/**
 * Many deadlines on one sleep. Calls end long before their deadline, so the sleep of the first one outlives thousands
 * of later calls, which then cost no timer of their own.
 */
export class Deadlines implements Disposable {
  readonly #clock: Clock;
  readonly #pending = new Map<Deadline, () => void>();
  #sleep: { readonly untilMs: number; readonly abort: AbortController } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param onExpiry must not throw. */
  add(afterMs: number, onExpiry: () => void): Deadline {
    const deadline: Deadline = {
      atMs: this.#clock.monotonic() + afterMs,
      isOver: () => deadline.atMs <= this.#clock.monotonic(),
      [Symbol.dispose]: () => this.#pending.delete(deadline),
    };
    this.#pending.set(deadline, onExpiry);
    if (this.#sleep === undefined || deadline.atMs < this.#sleep.untilMs) this.#sleepUntil(deadline.atMs);
    return deadline;
  }

  [Symbol.dispose](): void {
    this.#pending.clear();
    this.#sleep?.abort.abort();
    this.#sleep = undefined;
  }

  #sleepUntil(untilMs: number): void {
    this.#sleep?.abort.abort();
    const sleep = { untilMs, abort: new AbortController() };
    this.#sleep = sleep;
    const duration = millis(Math.max(0, Math.ceil(untilMs - this.#clock.monotonic())));
    this.#clock.sleep(duration, sleep.abort.signal).then(() => {
      if (this.#sleep !== sleep) return;
      this.#sleep = undefined;
      this.#expire();
    }, ignore("another sleep has replaced it, or no call waits any more"));
  }

  #expire(): void {
    const now = this.#clock.monotonic();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [deadline, onExpiry] of [...this.#pending]) {
      if (deadline.atMs <= now) {
        if (this.#pending.delete(deadline)) onExpiry();
      } else nextMs = Math.min(nextMs, deadline.atMs);
    }
    if (this.#sleep === undefined && nextMs !== Number.POSITIVE_INFINITY && this.#pending.size > 0) {
      this.#sleepUntil(nextMs);
    }
  }
}
