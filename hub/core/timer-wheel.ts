import { aborted, cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type Clock, type Millis, millis } from "@picolet/protocol/ports.ts";

/** Everything timed here is about links and retries: half a second late is on time. */
const TICK_MS = 500;

export interface WheelTimer {
  /** The tick it is due at; undefined when it is not set. */
  slot: number | undefined;
  readonly onDue: () => void;
}

/**
 * One timer for thousands of sessions. Each has one entry that is moved rarely: when it fires, the session checks
 * whether it is due, and otherwise sets it again. No timer of the process runs while nothing is set.
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #alarm: Alarm;
  readonly #slots = new Map<number, Set<WheelTimer>>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#alarm = new Alarm(clock);
  }

  /** Due in `delay`, up to a tick later; replaces what it was set to. */
  set(timer: WheelTimer, delay: Millis): void {
    this.clear(timer);
    const slot = Math.ceil((this.#clock.monotonic() + delay) / TICK_MS);
    let timers = this.#slots.get(slot);
    if (timers === undefined) {
      timers = new Set();
      this.#slots.set(slot, timers);
    }
    timers.add(timer);
    timer.slot = slot;
    this.#alarm.set(millis(Math.max(0, slot * TICK_MS - this.#clock.monotonic())));
  }

  clear(timer: WheelTimer): void {
    if (timer.slot === undefined) return;
    const timers = this.#slots.get(timer.slot);
    timers?.delete(timer);
    if (timers?.size === 0) this.#slots.delete(timer.slot);
    timer.slot = undefined;
  }

  /** Resolves in `delay`, up to a tick later. @throws `cancelled` */
  async sleep(delay: Millis, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw cancelled("the wait");
    using joined = joinSignals(signal);
    const timer: WheelTimer = { slot: undefined, onDue: () => joined.abort() };
    this.set(timer, delay);
    await aborted(joined.signal);
    this.clear(timer);
    if (signal.aborted) throw cancelled("the wait");
  }

  /** Turns until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#alarm.ring(signal);
      this.#turn();
    }
  }

  #turn(): void {
    const now = Math.floor(this.#clock.monotonic() / TICK_MS);
    let next = Number.POSITIVE_INFINITY;
    for (const [slot, timers] of [...this.#slots]) {
      if (slot > now) {
        next = Math.min(next, slot);
        continue;
      }
      this.#slots.delete(slot);
      for (const timer of timers) timer.slot = undefined;
      for (const timer of timers) if (timer.slot === undefined) timer.onDue();
    }
    if (next !== Number.POSITIVE_INFINITY) this.#alarm.set(millis(next * TICK_MS - this.#clock.monotonic()));
  }
}
