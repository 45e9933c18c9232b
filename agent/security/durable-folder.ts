/** The few steps of which every replacement on disk is made; a power cut may come between any two of them. */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

export interface DurableFolder {
  /**
   * Undefined: there is no such file. @throws `corrupt` when it is none or too large, `unavailable` when it cannot be
   * read
   */
  read(name: string): string | undefined;
  /** The content is on disk when it returns; the name only after `sync`. */
  write(name: string, text: string): void;
  /** Replaces `to`. On disk after `sync`, at the latest. */
  rename(from: string, to: string): void;
  /** Nothing happens when there is no such file. */
  remove(name: string): void;
  /** Makes renames, new files and removals survive a power cut. */
  sync(): void;
}

/** Chain, key and a bundle of CAs have 10 KiB. */
const MAX_FILE_BYTES = 262_144;

/** 0700 for the folder, 0600 for the files: there are keys in them. */
export class DurableFolderOnDisk implements DurableFolder {
  readonly #path: string;

  /** Made, with those above it, if it is not there. */
  constructor(init: { readonly path: string }) {
    this.#path = init.path;
    mkdirSync(init.path, { recursive: true, mode: 0o700 });
  }

  read(name: string): string | undefined {
    let file: number;
    try {
      file = openSync(join(this.#path, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw unreadable(name, error);
    }
    try {
      const { size } = fstatSync(file);
      if (size > MAX_FILE_BYTES) throw new PicoletError("corrupt", `${name} is too large`);
      const buffer = Buffer.alloc(size);
      return buffer.toString("utf8", 0, readSync(file, buffer, 0, size, 0));
    } catch (error) {
      throw error instanceof PicoletError ? error : unreadable(name, error);
    } finally {
      closeSync(file);
    }
  }

  write(name: string, text: string): void {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;
    const file = openSync(join(this.#path, name), flags, 0o600);
    try {
      fchmodSync(file, 0o600);
      const bytes = Buffer.from(text);
      for (let offset = 0; offset < bytes.length; ) offset += writeSync(file, bytes, offset);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
  }

  rename(from: string, to: string): void {
    renameSync(join(this.#path, from), join(this.#path, to));
  }

  remove(name: string): void {
    rmSync(join(this.#path, name), { force: true });
  }

  sync(): void {
    const folder = openSync(this.#path, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  }
}

const unreadable = (name: string, cause: unknown): PicoletError =>
  new PicoletError("unavailable", `cannot read ${name}`, { cause, retryable: true });
