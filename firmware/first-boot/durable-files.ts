/**
 * The few steps of which every change on disk is made; a power cut may come between any two of them. A file is replaced
 * by a whole new one, so that after a cut it is the old one or the new one.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { basename, dirname } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** Names of folders and files are absolute. */
export interface DurableFiles {
  /** Undefined: there is no such file. @param limit bytes; what is beyond is not read */
  read(path: string, limit?: number): Buffer | undefined;
  /** Undefined: there is nothing of that name. */
  modeOf(path: string): number | undefined;
  /** Not followed where it is a link. */
  isFolder(path: string): boolean;
  /** Names in a folder; empty where there is none. */
  list(folder: string): readonly string[];
  makeFolder(path: string, mode: number): void;
  /** Its content is on disk when it returns; its name only after `syncFolder`. */
  write(path: string, content: Uint8Array, mode: number): void;
  link(target: string, path: string): void;
  rename(from: string, to: string): void;
  /** A file, or a folder with all that is in it; nothing happens when there is none. */
  remove(path: string): void;
  /** Makes new names, renames and removals in a folder survive a power cut. */
  syncFolder(path: string): void;
}

/** All that is read is text of people and programs, of some KB. */
const MAX_READ_BYTES = 16_777_216;

export class FilesOnDisk implements DurableFiles {
  readonly #root: string;

  /** @param root the folder that stands for `/`, in tests */
  constructor(root = "") {
    this.#root = root;
  }

  read(path: string, limit = MAX_READ_BYTES): Buffer | undefined {
    return ifPresent(() => {
      const file = openSync(this.#root + path, constants.O_RDONLY | constants.O_NONBLOCK);
      try {
        const bytes = Buffer.alloc(Math.min(limit, fstatSync(file).size));
        let length = 0;
        for (let count = -1; length < bytes.length && count !== 0; length += count)
          count = readSync(file, bytes, length, bytes.length - length, length);
        return bytes.subarray(0, length);
      } finally {
        closeSync(file);
      }
    });
  }

  isFolder(path: string): boolean {
    return lstatSync(this.#root + path, { throwIfNoEntry: false })?.isDirectory() === true;
  }

  modeOf(path: string): number | undefined {
    const found = statSync(this.#root + path, { throwIfNoEntry: false });
    return found === undefined ? undefined : found.mode & 0o777;
  }

  list(folder: string): readonly string[] {
    return ifPresent(() => readdirSync(this.#root + folder).sort()) ?? [];
  }

  makeFolder(path: string, mode: number): void {
    mkdirSync(this.#root + path, { recursive: true, mode });
  }

  write(path: string, content: Uint8Array, mode: number): void {
    rmSync(this.#root + path, { force: true });
    const file = openSync(this.#root + path, "wx", mode);
    try {
      // The umask does not count.
      fchmodSync(file, mode);
      for (let offset = 0; offset < content.length; ) offset += writeSync(file, content, offset);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
  }

  link(target: string, path: string): void {
    rmSync(this.#root + path, { force: true });
    symlinkSync(target, this.#root + path);
  }

  rename(from: string, to: string): void {
    renameSync(this.#root + from, this.#root + to);
  }

  remove(path: string): void {
    rmSync(this.#root + path, { recursive: true, force: true });
  }

  syncFolder(path: string): void {
    const folder = openSync(this.#root + path, "r");
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  }
}

function ifPresent<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errnoOf(error))) return undefined;
    throw error;
  }
}

/** Hidden, so that nothing that watches the folder reads it. */
const temporaryName = (path: string): string => `${dirname(path)}/.${basename(path)}.new`;

/** @returns false when the file was the same already: then nothing is written, which spares the flash */
export function replaceFile(files: DurableFiles, path: string, content: Uint8Array, mode: number): boolean {
  if (files.modeOf(path) === mode && files.read(path)?.equals(content) === true) return false;
  const folder = dirname(path);
  files.makeFolder(folder, 0o755);
  const temporary = temporaryName(path);
  files.write(temporary, content, mode);
  files.rename(temporary, path);
  files.syncFolder(folder);
  return true;
}

/** With what a power cut left of writing it. */
export function removeFile(files: DurableFiles, path: string): void {
  const folder = dirname(path);
  files.remove(temporaryName(path));
  files.remove(path);
  if (files.modeOf(folder) !== undefined) files.syncFolder(folder);
}
