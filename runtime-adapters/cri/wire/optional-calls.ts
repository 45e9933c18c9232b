import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";

/** The runtime may be replaced by another one meanwhile, which has the call. */
const ASK_AGAIN = seconds(600);

/** Calls that not every runtime has: after an answer `unimplemented` one is not made for ten minutes. */
export class OptionalCalls {
  readonly #clock: Pick<Clock, "monotonic">;
  /** Bounded by the names that the code has. */
  readonly #missing = new Map<string, MonotonicMs>();

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** @returns undefined: the runtime has no such call */
  async use<T>(name: string, call: () => Promise<T>): Promise<T | undefined> {
    const until = this.#missing.get(name);
    if (until !== undefined && this.#clock.monotonic() < until) return undefined;
    try {
      const used = await call();
      this.#missing.delete(name);
      return used;
    } catch (error) {
      if (!isPicoletError(error, "unimplemented")) throw error;
      this.#missing.set(name, (this.#clock.monotonic() + ASK_AGAIN) as MonotonicMs);
      return undefined;
    }
  }
}
