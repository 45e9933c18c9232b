/** Bytes that are pulled piece by piece: from a file, out of gzip, out of a tar entry. */
import type { FileHandle } from "node:fs/promises";
import { cancelled } from "@picolet/protocol/async/abort.ts";

/** Bounds one piece, and so how much of a file is in memory. */
export const CHUNK_BYTES = 65_536;

export interface ByteStream extends AsyncDisposable {
  /** Any number of bytes, at most `limit`, valid until the next call; undefined at the end. */
  read(limit: number): Promise<Uint8Array | undefined>;
  /** Passes over up to `count` bytes; less than that at the end. */
  skip(count: number): Promise<void>;
}

/** Reads an open file from its start. The file stays open. */
export class FileBytes implements ByteStream {
  readonly #file: FileHandle;
  readonly #signal: AbortSignal | undefined;
  readonly #buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  #position = 0;

  /** @param signal each read after its abort throws `cancelled`, also one below a decompressor */
  constructor(file: FileHandle, signal?: AbortSignal) {
    this.#file = file;
    this.#signal = signal;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    if (this.#signal?.aborted === true) throw cancelled("the read of a file");
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
