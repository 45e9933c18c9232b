/** An open file or directory that several resources share: a descriptor and the streams made from it. */
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync, writeSync } from "node:fs";
import type { ByteSink, ByteSource } from "../resources/streams.ts";
import { fdPath } from "./paths.ts";

export type DescriptorType =
  | "unknown"
  | "block-device"
  | "character-device"
  | "directory"
  | "fifo"
  | "symbolic-link"
  | "regular-file"
  | "socket";

export class OpenedFile {
  readonly fd: number;
  readonly type: DescriptorType;
  #users = 1;

  /** Takes `fd` over. */
  constructor(fd: number) {
    this.fd = fd;
    try {
      this.type = typeOf(fstatSync(fd, { bigint: true }));
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  stat(): BigIntStats {
    return fstatSync(this.fd, { bigint: true });
  }

  share(): this {
    this.#users += 1;
    return this;
  }

  release(): void {
    this.#users -= 1;
    if (this.#users === 0) closeSync(this.fd);
  }
}

export function typeOf(stats: BigIntStats): DescriptorType {
  if (stats.isFile()) return "regular-file";
  if (stats.isDirectory()) return "directory";
  if (stats.isSymbolicLink()) return "symbolic-link";
  if (stats.isCharacterDevice()) return "character-device";
  if (stats.isBlockDevice()) return "block-device";
  if (stats.isFIFO()) return "fifo";
  return stats.isSocket() ? "socket" : "unknown";
}

/** Reads on from an offset of its own. */
export class FileSource implements ByteSource {
  readonly #file: OpenedFile;
  #offset: bigint;

  constructor(file: OpenedFile, offset: bigint) {
    this.#file = file.share();
    this.#offset = offset;
  }

  read(length: number): Uint8Array | undefined {
    const buffer = new Uint8Array(length);
    const count = readSync(this.#file.fd, buffer, 0, length, this.#offset);
    this.#offset += BigInt(count);
    return count === 0 ? undefined : buffer.subarray(0, count);
  }

  close(): void {
    this.#file.release();
  }
}

/** Writes on from an offset of its own. */
export class FileSink implements ByteSink {
  readonly #file: OpenedFile;
  #offset: number;

  constructor(file: OpenedFile, offset: number) {
    this.#file = file.share();
    this.#offset = offset;
  }

  write(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      const count = writeSync(this.#file.fd, bytes, done, bytes.length - done, this.#offset);
      done += count;
      this.#offset += count;
    }
  }

  flush(): void {
    // Every write has reached the file already.
  }

  close(): void {
    this.#file.release();
  }
}

/** Writes at the end, wherever that is by then. */
export class AppendSink implements ByteSink {
  readonly #fd: number;

  constructor(file: OpenedFile) {
    // A file that was opened for reading only is refused here as it is for writing at an offset.
    this.#fd = openSync(fdPath(file.fd), constants.O_WRONLY | constants.O_APPEND);
  }

  write(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) done += writeSync(this.#fd, bytes, done);
  }

  flush(): void {
    // Every write has reached the file already.
  }

  close(): void {
    closeSync(this.#fd);
  }
}
