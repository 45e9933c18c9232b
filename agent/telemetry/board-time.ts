/**
 * Times of records on a board that learns the time late or never. Records are stamped by the machine's monotonic clock,
 * which all processes of a boot share, and get their wall time when that is known. Pure.
 */
export interface BoardTime {
  readonly bootId: string;
  /** Microseconds of the monotonic clock since the boot. */
  nowUs(): number;
  /** Microseconds since 1970; undefined while no time source has confirmed the clock. */
  wallUs(): number | undefined;
}

/** One run of an agent. */
export interface Life {
  readonly id: number;
  readonly queue: string;
  readonly boot: string;
  /** Wall clock minus monotonic clock; null: never known. */
  readonly offsetUs: number | null;
  /** The latest known reading of its monotonic clock. */
  readonly lastUs: number;
}

export interface BootOffset {
  readonly offsetUs: number;
  readonly isEstimated: boolean;
}

/**
 * Derives the offset of each boot. A boot that never knew the time is assumed to have ended when the next one began: no
 * record of it is later, and power usually returns soon.
 * @param lives in order of time
 * @param now the current boot
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
