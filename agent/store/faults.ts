import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/**
 * The meaning of a database error for the store:
 *
 * - `damaged`     the file contradicts itself or cannot be read any more
 * - `full`        no room on the disk, or the database's own limit is reached
 * - `unwritable`  this process may not write here, or the disk refuses
 * - `busy`        another process has the file open
 * - `other`       none of these
 */
export type Fault = "damaged" | "full" | "unwritable" | "busy" | "other";

/**
 * By the result codes of https://sqlite.org/rescode.html; a longer code that begins with one of these is a case of it.
 */
const FAULTS: readonly (readonly [prefix: string, fault: Fault])[] = [
  ["SQLITE_CORRUPT", "damaged"],
  ["SQLITE_NOTADB", "damaged"],
  ["SQLITE_FORMAT", "damaged"],
  ["SQLITE_IOERR_READ", "damaged"],
  ["SQLITE_IOERR_SHORT_READ", "damaged"],
  ["SQLITE_IOERR_CORRUPTFS", "damaged"],
  ["SQLITE_IOERR_DATA", "damaged"],
  ["SQLITE_FULL", "full"],
  ["SQLITE_BUSY", "busy"],
  ["SQLITE_LOCKED", "busy"],
  ["SQLITE_IOERR", "unwritable"],
  ["SQLITE_READONLY", "unwritable"],
  ["SQLITE_NOMEM", "unwritable"],
  ["SQLITE_CANTOPEN", "unwritable"],
  ["SQLITE_PERM", "unwritable"],
  ["SQLITE_AUTH", "unwritable"],
];

export function faultOf(error: unknown): Fault {
  if (error instanceof PicoletError && error.code === "corrupt") return "damaged";
  const code = errnoOf(error);
  if (["ENOSPC", "EDQUOT"].includes(code)) return "full";
  if (["EROFS", "EACCES", "EPERM", "EIO", "EMFILE", "ENFILE"].includes(code)) return "unwritable";
  return FAULTS.find(([prefix]) => code.startsWith(prefix))?.[1] ?? "other";
}

/** @returns the error for the caller of a write */
export function writeError(error: unknown, message: string): PicoletError {
  const fault = faultOf(error);
  if (fault === "full") return new PicoletError("resource_exhausted", message, { cause: error, retryable: true });
  const code = fault === "other" ? "internal" : fault === "damaged" ? "corrupt" : "unavailable";
  return new PicoletError(code, message, { cause: error, retryable: fault !== "other" });
}
