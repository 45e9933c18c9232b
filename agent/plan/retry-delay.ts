/** How long a step that failed is left alone. */
import { backoffDelay, type Jitter, jittered } from "@picolet/protocol/async/backoff.ts";
import { type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";

/** Something local that is not there yet (a runtime starting, a mount) usually comes within seconds. */
const FIRST = seconds(1);
/** A step that has failed for minutes is a matter for people; once a minute shows when they have mended it. */
const MAX = seconds(60);
/** Pods that failed together do not retry together. */
const JITTER: Jitter = [0.75, 1.25];
/**
 * The image manager keeps the back-off of pulls and answers at once while it lasts; this is how often it is asked, as
 * often as the kubelet does.
 */
const IMAGE = seconds(10);

/** The start of a container costs little beside a mount; the kubelet tries it again after 10 to 15 s. */
const MAX_START = seconds(12);

/** @param count failures in a row, 1 for the first. */
export function retryDelay(count: number, random: Random): Millis {
  return backoffDelay({ first: FIRST, max: MAX, jitter: JITTER }, count, random.next());
}

/** @returns the delay after a failed start of a container. @param count as above */
export function startRetryDelay(count: number, random: Random): Millis {
  return backoffDelay({ first: FIRST, max: MAX_START, jitter: JITTER }, count, random.next());
}

/** @param count as above. The first retry comes sooner, to show the back-off instead of the error. */
export function imageRetryDelay(count: number, random: Random): Millis {
  return jittered(millis(count === 1 ? IMAGE / 2 : IMAGE), JITTER, random.next());
}
