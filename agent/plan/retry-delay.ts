/** How long a step that failed is left alone. */
import { type Millis, millis, type Random } from "@picolet/protocol/ports.ts";

/** Something local that is not there yet (a runtime starting, a mount) usually comes within seconds. */
const INITIAL_MS = 1000;
/** A step that has failed for minutes is a matter for people; once a minute shows when they have mended it. */
const MAX_MS = 60_000;
/** Each delay is drawn from this much around its nominal length, so that pods that failed together do not retry together. */
const JITTER = 0.25;
/**
 * The image manager keeps the back-off of pulls and answers at once while it lasts; this is how often it is asked, as
 * often as the kubelet does.
 */
const IMAGE_MS = 10_000;

/** The start of a container costs little beside a mount; the kubelet tries it again after 10 to 15 s. */
const MAX_START_MS = 12_000;

/** @param count failures in a row, 1 for the first. */
export function retryDelay(count: number, random: Random): Millis {
  return jittered(Math.min(doubled(count), MAX_MS), random);
}

/** Of the start of a container. @param count as above */
export function startRetryDelay(count: number, random: Random): Millis {
  return jittered(Math.min(doubled(count), MAX_START_MS), random);
}

/** @param count as above. The first retry comes sooner, to show the back-off instead of the error. */
export function imageRetryDelay(count: number, random: Random): Millis {
  return jittered(count === 1 ? IMAGE_MS / 2 : IMAGE_MS, random);
}

const doubled = (count: number): number => INITIAL_MS * 2 ** Math.min(count - 1, 30);

const jittered = (durationMs: number, random: Random): Millis =>
  millis(durationMs * (1 + JITTER * (2 * random.next() - 1)));
