import { isCancelled } from "../errors.ts";
import { type Clock, type Millis, type MonotonicMs, millis } from "../ports.ts";
import { cancelled, type JoinedSignal, joinSignals } from "./abort.ts";

/** One time to wake up at, which may be brought forward while somebody waits for it. No timer runs while none is set. */
export class Alarm {
  readonly #clock: Clock;
  #at: MonotonicMs | undefined;
  #moved: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isSet(): boolean {
    return this.#at !== undefined;
  }

  /** Rings in `delay`, unless it is to ring earlier than that. */
  set(delay: Millis): void {
    const at = (this.#clock.monotonic() + delay) as MonotonicMs;
    if (this.#at !== undefined && this.#at <= at) return;
    this.#at = at;
    this.#moved?.();
  }

  /** Resolves when it rings, which unsets it. For one waiter at a time. Rejects with `cancelled` when `signal` aborts. */
  async ring(signal: AbortSignal): Promise<void> {
    for (;;) {
      if (signal.aborted) throw cancelled("the wait");
      const at = this.#at;
      const left = at === undefined ? undefined : at - this.#clock.monotonic();
      if (left !== undefined && left <= 0) {
        this.#at = undefined;
        return;
      }
      await this.#wait(left, signal);
    }
  }

  /** Until the time is over or has been moved. */
  async #wait(left: number | undefined, signal: AbortSignal): Promise<void> {
    using joined: JoinedSignal = joinSignals(signal);
    try {
      if (left === undefined) await this.#untilMoved(joined);
      else {
        this.#moved = () => joined.abort();
        await this.#clock.sleep(millis(left), joined.signal);
      }
    } catch (error) {
      if (signal.aborted || !isCancelled(error)) throw error;
    } finally {
      this.#moved = undefined;
    }
  }

  #untilMoved(joined: JoinedSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#moved = resolve;
      joined.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }
}
