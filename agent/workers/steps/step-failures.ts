/** Makes the failure of a step of an error: its reason, and when the step may be tried again. */
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, MonotonicMs, Random } from "@picolet/protocol/ports.ts";
import { imageRetryDelay, retryDelay, startRetryDelay } from "../../plan/retry-delay.ts";
import type { Failure, Failures } from "../../plan/worker-memory.ts";

/** Reasons of steps that need an object of the API server, or a device plugin, which is not there yet. */
const OBJECT_REASONS: ReadonlySet<string | undefined> = new Set([
  "FailedMount",
  "CreateContainerConfigError",
  "FailedPrepareDynamicResources",
  "DevicePluginAway",
]);

const DELAYS = { image: imageRetryDelay, start: startRetryDelay, other: retryDelay } as const;

export interface StepError {
  /** By `stepOf`. */
  readonly step: string;
  readonly error: unknown;
  /** Used when the error has none. */
  readonly reason: string;
  readonly kind?: keyof typeof DELAYS;
}

/** @param known the failures so far, which count */
export function nextFailure(
  known: Failures,
  { step, error, reason, kind = "other" }: StepError,
  { clock, random }: { readonly clock: Clock; readonly random: Random },
): Failure {
  const count = (known.get(step)?.count ?? 0) + 1;
  const delay = DELAYS[kind](count, random);
  return {
    reason: (isPicoletError(error) ? error.reason : undefined) ?? reason,
    message: describeError(error),
    count,
    retryAt: (clock.monotonic() + delay) as MonotonicMs,
    awaitsObject: kind !== "image" && mayAwaitObject(error),
  };
}

/** A missing RuntimeClass has no reason of its own. */
const mayAwaitObject = (error: unknown): boolean =>
  isPicoletError(error) && (OBJECT_REASONS.has(error.reason) || error.code === "not_found");
