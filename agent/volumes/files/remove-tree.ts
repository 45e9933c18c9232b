import type { Dir } from "node:fs";
import { chmod, lstat, opendir, realpath, rename, rmdir, unlink } from "node:fs/promises";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** PATH_MAX is 4096 bytes; below this a name of 255 bytes can always be appended. A pod can make deeper folders. */
const MAX_PATH_BYTES = 3000;
/** Each level of folders holds one open directory. */
const MAX_DEPTH = 128;
/** Bounds the passes while a process goes on writing; the removal fails then, and is tried again. */
const MAX_PASSES = 8;

const IS_ROOT = process.geteuid?.() === 0;
const SLASH = Buffer.from("/");

/** @param folder a canonical path. @returns what is mounted on it and below. */
export type MountPointsWithin = (folder: string) => readonly string[];

/**
 * Removes `root` and all below it; a missing root is no error. Symbolic links are removed, never followed. Nothing is
 * removed while something is mounted in it. Names are bytes, because a pod may use any. No process that could exchange
 * a folder for a link may run any more.
 * @throws `conflict` for a mount, or when it does not get empty; `failed` for all else; both may be tried again
 */
export async function removeTree(root: string, mounts: MountPointsWithin, signal: AbortSignal): Promise<void> {
  try {
    const stats = await lstat(root);
    if (!stats.isDirectory()) {
      await unlink(root);
      return;
    }
    // A bind mount of the same file system has the same device number; only the kernel's list has it.
    const [mounted] = mounts(await realpath(root));
    if (mounted !== undefined) throw stillMounted(mounted);
    await new Removal(Buffer.from(root), stats.dev, signal).run();
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return;
    if (error instanceof PicoletError) throw error;
    throw new PicoletError("failed", `cannot remove ${root}`, { cause: error, retryable: true });
  }
}

const stillMounted = (path: string | Buffer): PicoletError =>
  new PicoletError("conflict", `cannot remove ${path}: something is mounted there`, { retryable: true });

class Removal {
  readonly #root: Buffer;
  readonly #device: number;
  readonly #signal: AbortSignal;
  #moved = 0;

  constructor(root: Buffer, device: number, signal: AbortSignal) {
    this.#root = root;
    this.#device = device;
    this.#signal = signal;
  }

  async run(): Promise<void> {
    await this.#removeFolder(this.#root, 0);
  }

  async #removeFolder(folder: Buffer, depth: number): Promise<void> {
    // Without root, a folder that was made unreadable or read-only has to be opened up first.
    if (!IS_ROOT) await chmod(folder, 0o700);
    for (let pass = 1; ; pass += 1) {
      await this.#empty(folder, depth);
      try {
        await rmdir(folder);
        return;
      } catch (error) {
        const code = errnoOf(error);
        if (code === "ENOENT") return;
        // The next pass empties folders that were moved up out of the depth.
        if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
        if (pass === MAX_PASSES)
          throw new PicoletError("conflict", `cannot empty ${folder}: a process still writes to it`, {
            retryable: true,
          });
      }
    }
  }

  async #empty(folder: Buffer, depth: number): Promise<void> {
    // An asynchronous iteration closes the directory, also after an exception.
    for await (const entry of await openFolder(folder)) {
      if (this.#signal.aborted) throw cancelled("the removal");
      const name = entry.name as unknown as Buffer;
      const path = Buffer.concat([folder, SLASH, name]);
      if (entry.isDirectory()) await this.#removeSubfolder(path, depth + 1);
      else await unlink(path).catch(unlessGone);
    }
  }

  async #removeSubfolder(path: Buffer, depth: number): Promise<void> {
    const stats = await lstat(path);
    if (stats.dev !== this.#device) throw stillMounted(path);
    if (depth < MAX_DEPTH && path.length < MAX_PATH_BYTES) {
      await this.#removeFolder(path, depth);
      return;
    }
    this.#moved += 1;
    const name = Buffer.from(`.removing-${process.pid}-${Date.now().toString(36)}-${this.#moved}`);
    await rename(path, Buffer.concat([this.#root, SLASH, name]));
  }
}

function openFolder(folder: Buffer): Promise<Dir> {
  // The types of opendir know neither a path nor names in bytes; Node does.
  return opendir(folder as unknown as string, { encoding: "buffer" as unknown as BufferEncoding });
}

function unlessGone(error: unknown): void {
  if (errnoOf(error) !== "ENOENT") throw error;
}
