/**
 * When something was, on a board that learns late, or never, what time it is: everything is stamped by the machine's
 * monotonic clock, which is one for all processes of a boot, and gets its time when that is known. Pure.
 */
export interface BoardTime {
  readonly bootId: string;
  /** Microseconds of the monotonic clock since the boot. */
  nowUs(): number;
  /** Microseconds since 1970; undefined while nobody has confirmed what the clock says. */
  wallUs(): number | undefined;
}

/** One life of an agent. */
export interface Life {
  readonly id: number;
  readonly queue: string;
  readonly boot: string;
  /** Of the wall clock, before the monotonic one; null: never known. */
  readonly offsetUs: number | null;
  /** The latest that is known of its monotonic clock. */
  readonly lastUs: number;
}

export interface BootOffset {
  readonly offsetUs: number;
  readonly isEstimated: boolean;
}

/**
 * The offset of each boot. One that never knew the time is taken to have ended when the next one began: nothing of it
 * is later than that, and a board that lost power usually has it back soon.
 * @param lives in their order
 * @param now of the current boot
 */
export function bootOffsets(
  lives: readonly Life[],
  now: { readonly boot: string } & BootOffset,
): ReadonlyMap<string, BootOffset> {
  const offsets = new Map<string, BootOffset>([[now.boot, now]]);
  const lasts = new Map<string, number>();
  for (const { boot, offsetUs, lastUs } of lives) {
    lasts.set(boot, Math.max(lastUs, lasts.get(boot) ?? 0));
    if (offsetUs !== null && boot !== now.boot) offsets.set(boot, { offsetUs, isEstimated: false });
  }
  let nextStartUs = now.offsetUs;
  for (const { boot } of lives.toReversed()) {
    const known = offsets.get(boot);
    const offset = known ?? { offsetUs: nextStartUs - (lasts.get(boot) ?? 0), isEstimated: true };
    offsets.set(boot, offset);
    nextStartUs = offset.offsetUs;
  }
  return offsets;
}
