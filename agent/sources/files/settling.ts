/** When a file that changes is taken to be complete. Pure. */
import type { FileStamp } from "./manifest-files.ts";

/**
 * After a rename to its place a file is complete by custom; what is waited for is only that, had it been made and
 * written instead, the event of the first write has come.
 */
export const RENAMED_QUIET_MS = 1;
/** Between two writes of one program that makes a file; part of the time from a manifest to its container. */
export const WRITTEN_QUIET_MS = 5;
/** In place a good version is at stake: an editor on a slow card, a copy over a slow line in blocks. */
export const IN_PLACE_QUIET_MS = 100;
/**
 * The wait for an empty or shortened file, which is being written again, and for a broken one before it is reported.
 */
export const HALF_WRITTEN_QUIET_MS = 1000;
/** Editors that move the old version away before they write the new one need some milliseconds. */
export const DELETION_QUIET_MS = 100;
/** What is written without an end is no manifest. It is named as a problem then, and still waited for. */
export const MAX_UNSETTLED_MS = 30_000;

/** A file system's times are those of the last timer tick, 10 ms ago at most (CONFIG_HZ=100). */
const TIMESTAMP_SLACK_MS = 10;

export interface FileChange {
  /** The stamp of the last read; `undefined` for a new file. */
  readonly before: FileStamp | undefined;
  readonly now: FileStamp;
  /** Since it was last seen to change. */
  readonly quietMs: number;
  /** Since its modification, by the wall clock: nonsense when the clock was set meanwhile. */
  readonly ageMs: number;
  /** True when the file may have been written in place. */
  readonly isWritten: boolean;
  /** True when it was seen in another state since it was last read. */
  readonly isChanging: boolean;
}

/** @returns how long the file must have been unchanged */
export function requiredQuietMs({ before, now, isWritten, isChanging }: FileChange): number {
  if (before !== undefined && before.inode === now.inode) {
    return now.sizeBytes < before.sizeBytes ? HALF_WRITTEN_QUIET_MS : IN_PLACE_QUIET_MS;
  }
  if (isChanging) return IN_PLACE_QUIET_MS;
  return isWritten ? WRITTEN_QUIET_MS : RENAMED_QUIET_MS;
}

/** @returns how long the file has been unchanged, by the larger one of both measures */
export function elapsedQuietMs({ quietMs, ageMs }: FileChange): number {
  return Math.max(quietMs, ageMs - TIMESTAMP_SLACK_MS);
}
