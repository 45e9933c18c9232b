/** The wait between the runs of a container that keeps ending: the kubelet's crash loop back-off. */
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";

export interface CrashBackoffLimits {
  /** Before the second restart; the first comes at once. Doubles from there. */
  readonly initial: Millis;
  readonly max: Millis;
  /** A run that lasted as long forgives those before it. */
  readonly resetAfter: Millis;
}

/** The kubelet's: `MaxContainerBackOff` 300 s, first 10 s, forgotten after twice the maximum. */
export const DEFAULT_CRASH_BACKOFF: CrashBackoffLimits = {
  initial: seconds(10),
  max: seconds(300),
  resetAfter: seconds(600),
};

/** Between sandboxes that die one after the other; the kubelet's own pace is one a second. */
export const SANDBOX_BACKOFF: CrashBackoffLimits = { initial: seconds(1), max: seconds(60), resetAfter: seconds(600) };

/**
 * @param ended the run before; `undefined` when there is none, or one of another spec. @returns the new run's back-off.
 */
export function backoffOfNextRun(
  ended: { readonly backoff: Millis; readonly lasted: Millis } | undefined,
  limits: CrashBackoffLimits,
): Millis {
  if (ended === undefined) return millis(0);
  if (ended.backoff === 0 || ended.lasted >= limits.resetAfter) return millis(Math.min(limits.initial, limits.max));
  return millis(Math.min(ended.backoff * 2, limits.max));
}
