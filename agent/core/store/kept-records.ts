/**
 * Small facts that a part of the agent keeps across restarts and that can be lost with the database without harm: when
 * an image was last used, what was written to flash today. On disk with the store's batches, never with an fsync of
 * their own.
 */
export interface KeptRecords {
  /** All of one area, by key. What cannot be read any more is left out. */
  all(area: string): ReadonlyMap<string, unknown>;
  /**
   * Plain data (CBOR); equal to what is there: nothing is written. @param urgency `later`: within a minute, or with the
   * next batch
   */
  put(area: string, key: string, value: unknown, urgency?: "soon" | "later"): void;
  delete(area: string, key: string): void;
}

/** Keys of all areas together. What is put beyond that is dropped, and said once. */
export const MAX_KEPT_RECORDS = 4096;
/** Bounds one encoded value. */
export const MAX_KEPT_VALUE_BYTES = 4096;
