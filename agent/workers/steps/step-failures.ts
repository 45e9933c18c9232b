/** The steps of one pod that failed, and when each may be tried again. */
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, MonotonicMs, Random } from "@picolet/protocol/ports.ts";
import type { Failure, Failures } from "../../plan/pod-view.ts";
import { imageRetryDelay, retryDelay, startRetryDelay } from "../../plan/retry-delay.ts";

/** The reason of a step that is carried out again and again, and nothing changes. */
export const NO_EFFECT = "NoEffect";

/** What a step needs of the API server that is not there yet fails it with one of these. */
const OBJECT_REASONS: ReadonlySet<string | undefined> = new Set(["FailedMount", "CreateContainerConfigError"]);

const DELAYS = { image: imageRetryDelay, start: startRetryDelay, other: retryDelay } as const;

interface KnownFailure extends Failure {
  /** Whether an object of the API server may mend it. */
  readonly awaitsObject: boolean;
}

export class StepFailures {
  readonly #clock: Clock;
  readonly #random: Random;
  /** At most one for each step of the last plan. */
  readonly #failures = new Map<string, KnownFailure>();

  constructor(components: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = components.clock;
    this.#random = components.random;
  }

  get current(): Failures {
    return this.#failures;
  }

  /** @param reason when the error brings none. */
  add(step: string, error: unknown, reason: string, kind: keyof typeof DELAYS = "other"): Failure {
    const count = (this.#failures.get(step)?.count ?? 0) + 1;
    const delay = DELAYS[kind](count, this.#random);
    const failure: KnownFailure = {
      reason: (isPicoletError(error) ? error.reason : undefined) ?? reason,
      message: describeError(error),
      count,
      retryAt: (this.#clock.monotonic() + delay) as MonotonicMs,
      awaitsObject: kind !== "image" && mayAwaitObject(error),
    };
    this.#failures.set(step, failure);
    return failure;
  }

  /**
   * What the API server gives the node has changed: steps that may have waited for it are due now.
   * @returns whether there are any
   */
  objectsChanged(): boolean {
    const retryAt = this.#clock.monotonic();
    const due = [...this.#failures].filter(([, { awaitsObject }]) => awaitsObject);
    for (const [step, failure] of due) this.#failures.set(step, { ...failure, retryAt });
    return due.length > 0;
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

/** A RuntimeClass that is not there has no reason of its own. */
const mayAwaitObject = (error: unknown): boolean =>
  isPicoletError(error) && (OBJECT_REASONS.has(error.reason) || error.code === "not_found");
