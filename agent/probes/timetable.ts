import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock, MonotonicMs } from "@picolet/protocol/ports.ts";
import { millis } from "@picolet/protocol/ports.ts";

/** Something to be called once at a time; may be set again, by itself too. */
export class TimetableEntry {
  readonly call: () => void;
  at = 0 as MonotonicMs;
  /** Its place in the heap; -1: it is not set. */
  index = -1;

  /** @param call must not throw. */
  constructor(call: () => void) {
    this.call = call;
  }
}

/**
 * Any number of wakes on one sleep of the clock, so that a probe costs an object and no timer of the machine's own. A
 * binary heap by time; every wake is there once at most, so that it is as long as there are probes and attempts.
 */
export class Timetable implements Disposable {
  readonly #clock: Clock;
  readonly #heap: TimetableEntry[] = [];
  #sleep: { readonly until: number; readonly abort: AbortController } | undefined;
  /** True while entries are called; entries set meanwhile are handled afterwards. */
  #isRinging = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The number of entries. */
  get size(): number {
    return this.#heap.length;
  }

  set(wake: TimetableEntry, at: MonotonicMs): void {
    this.#remove(wake);
    wake.at = at;
    this.#place(wake, this.#heap.length);
    this.#rise(wake);
    if (!this.#isRinging && (this.#sleep === undefined || at < this.#sleep.until)) this.#sleepUntil(at);
  }

  /** The current sleep is kept: an early wakeup costs less than a new sleep. */
  cancel(wake: TimetableEntry): void {
    this.#remove(wake);
    const [next] = this.#heap;
    if (this.#sleep === undefined || next?.at === this.#sleep.until) return;
    if (next !== undefined) this.#sleepUntil(next.at);
    else {
      this.#sleep.abort.abort();
      this.#sleep = undefined;
    }
  }

  #remove(wake: TimetableEntry): void {
    const { index } = wake;
    if (index < 0) return;
    wake.index = -1;
    const last = this.#heap.pop();
    if (last === undefined || last === wake) return;
    this.#place(last, index);
    this.#rise(last);
    this.#sink(last);
  }

  [Symbol.dispose](): void {
    for (const wake of this.#heap.splice(0)) wake.index = -1;
    this.#sleep?.abort.abort();
    this.#sleep = undefined;
  }

  #sleepUntil(until: number): void {
    this.#sleep?.abort.abort();
    const sleep = { until, abort: new AbortController() };
    this.#sleep = sleep;
    const duration = millis(Math.max(0, Math.ceil(until - this.#clock.monotonic())));
    this.#clock.sleep(duration, sleep.abort.signal).then(() => {
      if (this.#sleep === sleep) this.#ring();
    }, ignore("another sleep has taken its place, or nothing is set any more"));
  }

  #ring(): void {
    this.#sleep = undefined;
    this.#isRinging = true;
    const now = this.#clock.monotonic();
    for (let first = this.#heap[0]; first !== undefined && first.at <= now; first = this.#heap[0]) {
      this.#remove(first);
      first.call();
    }
    this.#isRinging = false;
    const [next] = this.#heap;
    if (next !== undefined) this.#sleepUntil(next.at);
  }

  #place(wake: TimetableEntry, index: number): void {
    this.#heap[index] = wake;
    wake.index = index;
  }

  #rise(wake: TimetableEntry): void {
    for (;;) {
      const { index } = wake;
      const above = this.#heap[(index - 1) >> 1];
      if (index === 0 || above === undefined || above.at <= wake.at) return;
      this.#place(wake, above.index);
      this.#place(above, index);
    }
  }

  #sink(wake: TimetableEntry): void {
    for (;;) {
      const { index } = wake;
      const left = this.#heap[2 * index + 1];
      const right = this.#heap[2 * index + 2];
      const least = right !== undefined && left !== undefined && right.at < left.at ? right : left;
      if (least === undefined || wake.at <= least.at) return;
      this.#place(wake, least.index);
      this.#place(least, index);
    }
  }
}
