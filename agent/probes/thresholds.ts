/** Counts equal results of a probe, which take effect at its threshold. */

export interface Streak {
  readonly result: "success" | "failure";
  /** In a row. */
  readonly count: number;
}

export interface Thresholds {
  readonly successThreshold: number;
  readonly failureThreshold: number;
}

/** One more result. @returns the streak, and whether it is long enough to count. Pure. */
export function extendStreak(
  streak: Streak | undefined,
  result: Streak["result"],
  { successThreshold, failureThreshold }: Thresholds,
): { readonly streak: Streak; readonly counts: boolean } {
  const count = streak?.result === result ? streak.count + 1 : 1;
  return { streak: { result, count }, counts: count >= (result === "success" ? successThreshold : failureThreshold) };
}
