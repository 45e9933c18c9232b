/** Computes how long the agent delays its writes, so that a day's writes stay within the budget. Pure. */

/** The share of the budget that is available at the start of a day, because starting pods write a burst. */
const FREE_SHARE = 0.25;
/** Each twelfth of the budget beyond what is due doubles the wait. */
const STEP_SHARE = 1 / 12;
/**
 * Bounds the delay: a second becomes a minute. A power cut loses statuses of that time, which the next agent finds out
 * again.
 */
export const MAX_STRETCH = 60;

/**
 * @param used bytes that the agent has written today
 * @param dayShare of the day that is over, 0 to 1
 * @returns by what the time until a batch is written is multiplied, 1 to MAX_STRETCH
 */
export function writePace(used: number, budget: number, dayShare: number): number {
  if (used >= budget) return MAX_STRETCH;
  const due = FREE_SHARE + (1 - FREE_SHARE) * dayShare;
  const beyond = used / budget - due;
  return beyond <= 0 ? 1 : Math.min(MAX_STRETCH, 2 ** Math.ceil(beyond / STEP_SHARE));
}
