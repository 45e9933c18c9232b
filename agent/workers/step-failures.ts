/** The steps of one pod that failed, and when each may be tried again. */
import { describeError, isPicoletError } from "../../protocol/errors.ts";
import type { Clock, MonotonicMs, Random } from "../../protocol/ports.ts";
import type { Failure, Failures } from "../plan/pod-view.ts";
import { imageRetryDelay, retryDelay } from "../plan/retry-delay.ts";

/** The reason of a step that is carried out again and again, and nothing changes. */
export const NO_EFFECT = "NoEffect";

export class StepFailures {
  readonly #clock: Clock;
  readonly #random: Random;
  /** At most one for each step of the last plan. */
  readonly #failures = new Map<string, Failure>();

  constructor(components: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = components.clock;
    this.#random = components.random;
  }

  get current(): Failures {
    return this.#failures;
  }

  /** @param reason when the error brings none. */
  add(step: string, error: unknown, reason: string, kind: "image" | "other" = "other"): Failure {
    const count = (this.#failures.get(step)?.count ?? 0) + 1;
    const delay = (kind === "image" ? imageRetryDelay : retryDelay)(count, this.#random);
    const failure: Failure = {
      reason: (isPicoletError(error) ? error.reason : undefined) ?? reason,
      message: describeError(error),
      count,
      retryAt: (this.#clock.monotonic() + delay) as MonotonicMs,
    };
    this.#failures.set(step, failure);
    return failure;
  }

  delete(step: string): void {
    this.#failures.delete(step);
  }

  /** The step was carried out. Whether one that had no effect before has one now is for the next look to say. */
  succeeded(step: string): void {
    if (this.#failures.get(step)?.reason !== NO_EFFECT) this.#failures.delete(step);
  }

  /** Forgets all others: they are not to be done any more. */
  keep(steps: ReadonlySet<string>): void {
    for (const step of this.#failures.keys()) if (!steps.has(step)) this.#failures.delete(step);
  }
}
