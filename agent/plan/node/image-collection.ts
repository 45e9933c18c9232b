/** Selects images for removal by the kubelet's rules (pkg/kubelet/images, image_gc_manager). */
import type { Millis } from "@picolet/protocol/ports.ts";

export interface ImageGcPolicy {
  /** `imageGCHighThresholdPercent`: at that use of the file system images begin to go. 100: never, for lack of room. */
  readonly highThresholdPercent: number;
  /** `imageGCLowThresholdPercent`: down to that use. */
  readonly lowThresholdPercent: number;
  /** `imageMinimumGCAge`: what has been here for less stays. */
  readonly minimumAge: Millis;
  /** `imageMaximumGCAge`: images unused for longer are removed even if there is room. 0: none is. */
  readonly maximumAge: Millis;
}

export interface ImageSpace {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

export interface AgedImage {
  /** True when a container uses it or will use it, or it is pinned or prefetched. */
  readonly isKept: boolean;
  /** With what was made of it. */
  readonly sizeBytes: number;
  /** Since it was found here. */
  readonly age: Millis;
  /** Since something was last made of it; undefined: nothing ever was. */
  readonly unused: Millis | undefined;
}

/** Bytes to free so that use falls to the lower threshold; 0 while it is below the higher one. */
export function bytesToFree(
  { capacityBytes, availableBytes }: ImageSpace,
  { highThresholdPercent, lowThresholdPercent }: ImageGcPolicy,
): number {
  const available = Math.min(availableBytes, capacityBytes);
  const usedPercent = 100 - Math.floor((available * 100) / capacityBytes);
  if (usedPercent < highThresholdPercent) return 0;
  return Math.max(0, Math.floor((capacityBytes * (100 - lowThresholdPercent)) / 100) - available);
}

/** Those that may go, first what never was used, then by last use, the oldest first. */
export function collectionOrder<T extends AgedImage>(images: readonly T[]): readonly T[] {
  const unused = ({ unused: since }: T): number => since ?? Number.POSITIVE_INFINITY;
  return images
    .filter(({ isKept }) => !isKept)
    .sort((a, b) => (unused(a) === unused(b) ? b.age - a.age : unused(b) - unused(a)));
}

/** The age of an image that was never used counts from its arrival. The kubelet takes it for the oldest. */
export const isTooOld = ({ unused, age }: AgedImage, { maximumAge }: ImageGcPolicy): boolean =>
  maximumAge > 0 && (unused ?? age) > maximumAge;
