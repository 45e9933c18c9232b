/** Opens files and directories safely, even while others change their names. */
import { constants, lstatSync, openSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { fileCall, fileFailure } from "../resources/failure.ts";
import { OpenedFile } from "./opened-file.ts";
import { fdPath, O_PATH, type ResolvedPath } from "./paths.ts";

export interface OpenFlags {
  readonly create?: boolean;
  readonly directory?: boolean;
  readonly exclusive?: boolean;
  readonly truncate?: boolean;
}

export interface DescriptorFlags {
  readonly read?: boolean;
  readonly write?: boolean;
  readonly fileIntegritySync?: boolean;
  readonly dataIntegritySync?: boolean;
  readonly requestedWriteSync?: boolean;
  readonly mutateDirectory?: boolean;
}

/** As for a container whose umask is 022. */
const FILE_MODE = 0o644;
/** Bounds retries. Another process that creates and removes the file in a loop does not win that often by chance. */
const MAX_OPEN_TRIES = 16;

export function openEntry(resolved: ResolvedPath, openFlags: OpenFlags, flags: DescriptorFlags): OpenedFile {
  const wantsDirectory = openFlags.directory === true || resolved.mustBeDirectory;
  if (wantsDirectory && openFlags.create === true) {
    throw fileFailure(openFlags.directory === true ? "invalid" : "is-directory");
  }
  // Only a missing file is created, by O_EXCL. An existing one is inspected before it is opened.
  const making = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | accessOf(flags);
  const made = (): OpenedFile => new OpenedFile(openSync(resolved.path, making, FILE_MODE));
  if (openFlags.create === true && openFlags.exclusive === true) return made();
  for (let tries = 1; ; tries += 1) {
    try {
      return openThere(resolved.path, { directory: wantsDirectory, truncate: openFlags.truncate === true }, flags);
    } catch (error) {
      if (openFlags.create !== true || errnoOf(error) !== "ENOENT") throw error;
    }
    try {
      return made();
    } catch (error) {
      if (errnoOf(error) !== "EEXIST" || tries >= MAX_OPEN_TRIES) throw error;
    }
  }
}

/**
 * Opens an existing file or directory, and nothing else: opening a FIFO would block the runner until its other end is
 * opened, and opening a device has effects. No link is followed: those of the path have been resolved, and one that was
 * put there since is refused.
 */
function openThere(
  path: string,
  how: { readonly directory: boolean; readonly truncate: boolean },
  flags: DescriptorFlags,
): OpenedFile {
  const found = new OpenedFile(openSync(path, O_PATH | constants.O_NOFOLLOW));
  try {
    if (how.directory && found.type !== "directory") throw fileFailure("not-directory");
    if (found.type === "symbolic-link") throw fileFailure("loop");
    const access = found.type === "directory" ? directoryAccess(how.truncate, flags) : accessOf(flags);
    return reopenFile(found, access | (how.truncate ? constants.O_TRUNC : 0));
  } finally {
    found.release();
  }
}

/** As open(2) has it. */
function directoryAccess(truncate: boolean, flags: DescriptorFlags): number {
  if (truncate || flags.write === true) throw fileFailure("is-directory");
  return constants.O_RDONLY | constants.O_DIRECTORY;
}

/** @throws `not-permitted` for an entry that is neither file nor directory */
export function reopenFile(found: OpenedFile, access: number): OpenedFile {
  if (found.type !== "regular-file" && found.type !== "directory") throw fileFailure("not-permitted");
  return new OpenedFile(openSync(fdPath(found.fd), access | constants.O_NOCTTY));
}

/** Opens as Linux does on a read-only file system: an existing file may be opened for reading, also with O_CREAT. */
export function readOnlyOpenFlags(resolved: ResolvedPath, openFlags: OpenFlags, flags: DescriptorFlags): OpenFlags {
  const { create, ...rest } = openFlags;
  if (!fileCall(() => exists(resolved.path))) {
    throw fileFailure(create === true ? "read-only" : "no-entry");
  }
  if (create === true && openFlags.exclusive === true) throw fileFailure("exist");
  if (flags.write === true || openFlags.truncate === true) throw fileFailure("read-only");
  return rest;
}

export function accessOf(flags: DescriptorFlags): number {
  const access =
    flags.write !== true ? constants.O_RDONLY : flags.read === true ? constants.O_RDWR : constants.O_WRONLY;
  const sync = flags.fileIntegritySync === true ? constants.O_SYNC : 0;
  return access | sync | (flags.dataIntegritySync === true ? constants.O_DSYNC : 0);
}

export const exists = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined;
