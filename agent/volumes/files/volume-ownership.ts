import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fstatSync,
  lchownSync,
  lstatSync,
  opendirSync,
  openSync,
  type Stats,
} from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** The kubelet's rights of the group: for a file, for one in a read-only volume, and further ones for a folder. */
const READ_WRITE = 0o660;
const READ_ONLY = 0o440;
const FOLDER = 0o2110;
/** open(2)'s O_PATH, which Node does not name: a handle on the thing itself, without opening a device or a FIFO. */
const O_PATH = 0o10000000;
/** A file takes some ten microseconds: others have their turn after a few milliseconds. */
const FILES_PER_TURN = 256;
/** Each level holds one open directory. Deeper folders belong to whom they belong. */
const MAX_DEPTH = 256;

export interface VolumeOwnership {
  readonly fsGroup: number;
  readonly readOnly: boolean;
  /** True when a volume whose own folder has the right owner and mode is left alone. */
  readonly onlyOnRootMismatch: boolean;
  /** Called after every few hundred files with the count so far. */
  readonly progress?: ((files: number) => void) | undefined;
}

/**
 * Gives a volume with all that is in it to the pod's `fsGroup`, as the kubelet does: the group may read and write, and
 * files made later belong to it too. Links belong to the group and are not followed, so that a pod that exchanges files
 * for links meanwhile changes nothing outside. Files that are removed meanwhile are left out.
 */
export async function changeOwnership(folder: string, wanted: VolumeOwnership, signal: AbortSignal): Promise<void> {
  if (wanted.onlyOnRootMismatch && isDone(lstatSync(folder), wanted)) return;
  await new OwnershipChange(wanted, signal).run(folder);
}

function isDone(stats: Stats, { fsGroup, readOnly }: VolumeOwnership): boolean {
  const mode = (readOnly ? READ_ONLY : READ_WRITE) | FOLDER;
  return stats.isDirectory() && stats.gid === fsGroup && (stats.mode & mode) === mode;
}

class OwnershipChange {
  readonly #wanted: VolumeOwnership;
  readonly #signal: AbortSignal;
  #files = 0;

  constructor(wanted: VolumeOwnership, signal: AbortSignal) {
    this.#wanted = wanted;
    this.#signal = signal;
  }

  async run(folder: string): Promise<void> {
    const fd = openSync(folder, O_PATH | constants.O_DIRECTORY);
    try {
      await this.#folder(fd, 0);
    } finally {
      closeSync(fd);
    }
  }

  /** The folder itself comes last: with OnRootMismatch its owner means that all the rest is done. */
  async #folder(fd: number, depth: number): Promise<void> {
    if (depth < MAX_DEPTH) {
      using entries = opendirSync(`/proc/self/fd/${fd}`, { encoding: "buffer" as unknown as BufferEncoding });
      for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
        await this.#entry(fd, entry.name as unknown as Buffer, depth);
      }
    }
    this.#change(fd);
  }

  async #entry(parent: number, name: Buffer, depth: number): Promise<void> {
    this.#files += 1;
    if (this.#files % FILES_PER_TURN === 0) {
      this.#wanted.progress?.(this.#files);
      await turn();
    }
    if (this.#signal.aborted) throw cancelled("the change of ownership");
    const path = Buffer.concat([Buffer.from(`/proc/self/fd/${parent}/`), name]);
    const fd = openUnlessGone(path);
    if (fd === undefined) return;
    try {
      const stats = fstatSync(fd);
      // A link has no handle through which it could be changed; exchanging it meanwhile gives away a group at most.
      if (stats.isSymbolicLink()) changeLink(path, stats, this.#wanted.fsGroup);
      else if (stats.isDirectory()) await this.#folder(fd, depth + 1);
      else this.#change(fd);
    } finally {
      closeSync(fd);
    }
  }

  #change(fd: number): void {
    const { fsGroup, readOnly } = this.#wanted;
    const stats = fstatSync(fd);
    const path = `/proc/self/fd/${fd}`;
    const mode = (readOnly ? READ_ONLY : READ_WRITE) | (stats.isDirectory() ? FOLDER : 0);
    const isOther = stats.gid !== fsGroup;
    if (isOther) chownHandle(path, stats, fsGroup);
    const before = stats.mode & 0o7777;
    // The kernel takes set-id bits of files away with a change of the owner.
    if (isOther || (before & mode) !== mode) chmodSync(path, before | mode);
  }
}

function chownHandle(path: string, stats: Stats, fsGroup: number): void {
  try {
    chownSync(path, stats.uid, fsGroup);
  } catch (cause) {
    throw new PicoletError("failed", "cannot give a file of the volume to its group", { cause, retryable: true });
  }
}

function changeLink(path: Buffer, stats: Stats, fsGroup: number): void {
  if (stats.gid === fsGroup) return;
  try {
    lchownSync(path, stats.uid, fsGroup);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
  }
}

function openUnlessGone(path: Buffer): number | undefined {
  try {
    return openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
