/** Bytes that are pulled piece by piece: from a file, out of gzip, out of a tar entry. */
import type { FileHandle } from "node:fs/promises";

/** The size of one piece, and the most of a file that is in memory at a time. */
export const CHUNK_BYTES = 65_536;

export interface ByteStream extends AsyncDisposable {
  /** Any number of bytes, at most `limit`, valid until the next call; undefined at the end. */
  read(limit: number): Promise<Uint8Array | undefined>;
  /** Passes over up to `count` bytes; less than that at the end. */
  skip(count: number): Promise<void>;
}

/** From the start of an open file, which stays open. */
export class FileBytes implements ByteStream {
  readonly #file: FileHandle;
  readonly #buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  #position = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    const wanted = Math.min(limit, CHUNK_BYTES);
    const { bytesRead } = await this.#file.read(this.#buffer, 0, wanted, this.#position);
    this.#position += bytesRead;
    return bytesRead === 0 ? undefined : this.#buffer.subarray(0, bytesRead);
  }

  async skip(count: number): Promise<void> {
    this.#position += count;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The file is its owner's to close.
  }
}
