import { constants } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { LineScanner, type RingLine } from "./ring-lines.ts";

/** One read of the scan at the start: 16 of them for the default size. */
const CHUNK_BYTES = 64 * KIBIBYTE;

/**
 * The file is made page by page: what is written at once becomes one folio in the kernel's cache, which is written to
 * the disk as a whole whenever a line in it changes (64 KiB instead of 4 for each write, measured on Linux 6.18).
 */
const PAGE_BYTES = 4096;

export interface OpenRing {
  readonly file: RingFile;
  /** The newest line; `undefined`: there is none. */
  readonly newest: RingLine | undefined;
}

/**
 * A file of fixed size in which lines follow each other and the newest overwrite the oldest. The blocks are written
 * once when the file is made: a later write changes one or two pages of the disk, and no metadata but the time.
 *
 * Lines are ordered by their sequence, not by their place. So nothing but the lines themselves says where the ring
 * begins, and a write that a power cut interrupts can spoil only lines that it was overwriting or writing.
 */
export class RingFile {
  readonly #path: string;
  readonly #size: number;
  #position: number;

  private constructor(path: string, init: { readonly size: number; readonly position: number }) {
    this.#path = path;
    this.#size = init.size;
    this.#position = init.position;
  }

  /**
   * Makes the file or reads it, and gives it its size. A file of another size keeps the lines that fit.
   * @throws what the file system throws
   */
  static async open(path: string, size: number): Promise<OpenRing> {
    await mkdir(dirname(path), { recursive: true });
    const handle = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
    try {
      const { size: before } = await handle.stat();
      if (before > size) await handle.truncate(size);
      const page = Buffer.alloc(PAGE_BYTES);
      for (let at = before; at < size; at += PAGE_BYTES) {
        await handle.write(page, 0, Math.min(PAGE_BYTES, size - at), at);
      }
      if (before !== size) await handle.sync();
      let newest: RingLine | undefined;
      for await (const line of linesOf(handle))
        if (newest === undefined || line.sequence > newest.sequence) newest = line;
      return { file: new RingFile(path, { size, position: newest?.end ?? 0 }), newest };
    } finally {
      await handle.close();
    }
  }

  /**
   * Writes lines behind the newest, and returns when they are on the disk. None is divided at the end of the file. More
   * than a whole ring of lines keeps the last.
   * @throws what the file system throws; the same lines can be written again
   */
  async append(lines: readonly Buffer[]): Promise<void> {
    const handle = await open(this.#path, constants.O_RDWR | constants.O_NOFOLLOW);
    try {
      this.#position = await this.#write(handle, lines);
    } finally {
      await handle.close();
    }
  }

  async #write(handle: FileHandle, lines: readonly Buffer[]): Promise<number> {
    let position = this.#position;
    for (let index = 0; index < lines.length; ) {
      const batch: Buffer[] = [];
      const start = position + (lines[index]?.length ?? 0) > this.#size ? 0 : position;
      let end = start;
      for (; index < lines.length; index += 1) {
        const line = lines[index];
        if (line === undefined || end + line.length > this.#size) break;
        batch.push(line);
        end += line.length;
      }
      if (batch.length === 0) break;
      await handle.write(Buffer.concat(batch), 0, undefined, start);
      position = end;
    }
    await handle.datasync();
    return position;
  }
}

/** All whole lines of a ring, in no order. */
export async function* readLines(path: string): AsyncGenerator<RingLine> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    yield* linesOf(handle);
  } finally {
    await handle.close();
  }
}

async function* linesOf(handle: FileHandle): AsyncGenerator<RingLine> {
  const scanner = new LineScanner();
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (let at = 0; ; ) {
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield* scanner.lines(chunk.subarray(0, bytesRead));
  }
}
