/** Files that are either there as a whole or not at all, also after a power cut. */
import { createHash } from "node:crypto";
import { constants, type FileHandle, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

const CHUNK_BYTES = 65_536;

/** Numbers the temporary files of one agent; those of dead agents are swept when the next one starts. */
export class TemporaryNames {
  readonly #directory: string;
  #count = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  next(): string {
    this.#count += 1;
    return `${this.#directory}/${process.pid}-${this.#count}`;
  }
}

/** Content and name are on disk when it returns. */
export async function writeDurably(path: string, content: string, temporary: string): Promise<void> {
  const file = await open(temporary, "wx", 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await renameDurably(temporary, path);
}

/** `from` has been synced already. */
export async function renameDurably(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    await rm(from, { recursive: true, force: true });
    throw error;
  }
  await syncDirectory(dirname(to));
}

export async function syncDirectory(path: string): Promise<void> {
  let directory: FileHandle | undefined;
  try {
    directory = await open(path, "r");
    await directory.sync();
  } finally {
    await directory?.close();
  }
}

/**
 * Opens a path that a user names, which may be anything. Opening a pipe waits for a writer, and opening a device for
 * its carrier, which would block the agent's one thread for files.
 * @throws `invalid` for what is neither a regular file nor a folder; errors of `node:fs`
 */
export async function openNamed(path: string): Promise<FileHandle> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  const stats = await file.stat();
  if (stats.isFile() || stats.isDirectory()) return file;
  await file.close();
  throw new PicoletError("invalid", `${path} is no regular file`);
}

/** 64 hexadecimal digits. The file is never in memory as a whole. @throws errors of `node:fs` */
export async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let file: FileHandle | undefined;
  try {
    file = await open(path, "r");
    for (;;) {
      const { bytesRead } = await file.read(buffer, 0, CHUNK_BYTES, null);
      if (bytesRead === 0) return hash.digest("hex");
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file?.close();
  }
}

/**
 * Converts an error of `node:fs`.
 * @param message names what could not be done
 */
export function fileError(error: unknown, message: string): PicoletError {
  if (error instanceof PicoletError) return error;
  const errno = errnoOf(error);
  if (errno === "ENOSPC" || errno === "EDQUOT") {
    return new PicoletError("resource_exhausted", message, { cause: error, retryable: true });
  }
  if (errno === "ENOENT") return new PicoletError("not_found", message, { cause: error });
  if (errno === "EACCES" || errno === "EPERM" || errno === "EROFS") {
    return new PicoletError("permission_denied", message, { cause: error });
  }
  return new PicoletError("failed", message, { cause: error, retryable: true });
}
