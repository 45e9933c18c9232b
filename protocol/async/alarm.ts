import { ignore } from "../errors.ts";
import { type Clock, type Millis, type MonotonicMs, millis } from "../ports.ts";
import { cancelled, WaitCancel } from "./abort.ts";

/** A time to wake up at. It may be brought forward while a task waits for it. No timer runs while none is set. */
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

  /**
   * Resolves when it rings, which unsets it. For one waiter at a time. Rejects with `cancelled` when `signal` aborts.
   */
  ring(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(cancelled("the wait"));
        return;
      }
      let sleep: WaitCancel | undefined;
      const end = (): void => {
        this.#moved = undefined;
        signal.removeEventListener("abort", onAbort);
        sleep?.abort();
        sleep = undefined;
      };
      const onAbort = (): void => {
        end();
        reject(cancelled("the wait"));
      };
      const wait = (): void => {
        sleep?.abort();
        sleep = undefined;
        if (this.#at === undefined) return;
        const left = this.#at - this.#clock.monotonic();
        if (left <= 0) {
          this.#at = undefined;
          end();
          resolve();
          return;
        }
        const own = new WaitCancel();
        sleep = own;
        const awake = (): void => {
          if (sleep === own) wait();
        };
        this.#clock.sleep(millis(left), own).then(awake, ignore("another wait has replaced it"));
      };
      this.#moved = wait;
      signal.addEventListener("abort", onAbort);
      wait();
    });
  }
}
