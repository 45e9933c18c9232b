/** The files of one container's log: the one being written and those the rotation put aside, compressed or not. */

import { constants } from "node:fs";
import { type FileHandle, open, readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Gunzip } from "node:zlib";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { logHeaderAt, MAX_HEADER_BYTES } from "./cri-log-format.ts";

/** Bounds one read of a log file. A larger read gains nothing measurable. */
export const BLOCK_BYTES = 64 * KIBIBYTE;

/** `containerLogMaxFiles` is 5 unless configured; of more rotated files than this the oldest are not read. */
const MAX_ROTATED_FILES = 16;

/** A rotation between listing and opening makes one open fail; twice in a row would take a log of no size at all. */
const MAX_OPEN_ATTEMPTS = 4;

const NEWLINE = 0x0a;

export interface LogFile {
  readonly name: string;
  readonly handle: FileHandle;
  readonly compressed: boolean;
  readonly inode: number;
  /** The time at which the file was opened. */
  readonly size: number;
  readonly modifiedAtMs: number;
}

/**
 * Names of the rotated files of the log at `path`, oldest first: `0.log.20261120-114322`, with `.gz` when compressed.
 * A file that exists in both forms (its compression has just ended) is named once.
 */
export async function rotatedNames(path: string): Promise<string[]> {
  const prefix = `${basename(path)}.`;
  const entries = await readdir(dirname(path));
  const names = new Map<string, string>();
  for (const name of entries.sort()) {
    if (!name.startsWith(prefix) || name.endsWith(".tmp")) continue;
    const plain = name.replace(/\.gz$/, "");
    if (!names.has(plain)) names.set(plain, name);
  }
  return [...names.values()].slice(-MAX_ROTATED_FILES);
}

const isMissing = (error: unknown): boolean => ["ENOENT", "ENOTDIR"].includes(errnoOf(error));

/** @returns `undefined` when there is none. Symbolic links and what is no regular file are refused. */
export async function openLogFile(path: string): Promise<LogFile | undefined> {
  let handle: FileHandle;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw toPicoletError(error, "failed", "cannot open the log file");
  }
  const stat = await handle.stat();
  if (!stat.isFile()) {
    await handle.close();
    throw new PicoletError("invalid", "cannot read a log that is no regular file");
  }
  return {
    name: basename(path),
    handle,
    compressed: path.endsWith(".gz"),
    inode: stat.ino,
    size: stat.size,
    modifiedAtMs: stat.mtimeMs,
  };
}

/**
 * Every file of the log at `path`, oldest first, the one being written last when it exists. They stay readable when
 * they are renamed, compressed or removed meanwhile. The caller closes them.
 */
export async function openLogFiles(path: string): Promise<LogFile[]> {
  for (let attempt = 1; ; attempt += 1) {
    const files = await tryOpenLogFiles(path);
    if (files.complete || attempt === MAX_OPEN_ATTEMPTS) return files.opened;
    await closeAll(files.opened);
  }
}

async function tryOpenLogFiles(path: string): Promise<{ readonly opened: LogFile[]; readonly complete: boolean }> {
  const opened: LogFile[] = [];
  try {
    // The current one first: when it is rotated just now it shows up again among the others, known by its inode.
    const current = await openLogFile(path);
    const names = await rotatedNames(path).catch((error: unknown) => {
      if (isMissing(error)) return [];
      throw toPicoletError(error, "failed", "cannot list the log's folder");
    });
    let complete = true;
    for (const name of names) {
      const file = await openLogFile(join(dirname(path), name));
      if (file === undefined) complete = false;
      else if (file.inode === current?.inode) {
        complete = false;
        await file.handle.close();
      } else opened.push(file);
    }
    if (current !== undefined) opened.push(current);
    return { opened, complete };
  } catch (error) {
    await closeAll(opened);
    throw error;
  }
}

export async function closeAll(files: readonly LogFile[]): Promise<void> {
  for (const file of files) await file.handle.close();
}

/** Blocks of `file` from `start` to `end`, each good until the next is asked for. */
export async function* plainBlocks(
  file: LogFile,
  start: number,
  end: number,
  block: Buffer = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, Math.max(end - start, 1))),
): AsyncGenerator<Buffer> {
  let at = start;
  while (at < end) {
    const { bytesRead } = await file.handle.read(block, 0, Math.min(block.length, end - at), at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield block.subarray(0, bytesRead);
  }
}

/** Blocks of what a compressed file holds. One that ends early or is damaged (a power cut) gives what it has. */
export async function* unzippedBlocks(file: LogFile): AsyncGenerator<Buffer> {
  const { createGunzip } = await import("node:zlib");
  const unzip = createGunzip({ chunkSize: BLOCK_BYTES });
  const feeding = feed(unzip, file);
  try {
    for await (const block of unzip) if (Buffer.isBuffer(block)) yield block;
  } catch (error) {
    if (!errnoOf(error).startsWith("Z_")) throw toPicoletError(error, "failed", "cannot read the log file");
  } finally {
    unzip.destroy();
    await feeding;
  }
}

/** Ends, without an error, when `unzip` is destroyed. */
async function feed(unzip: Gunzip, file: LogFile): Promise<void> {
  try {
    for await (const block of plainBlocks(file, 0, file.size)) {
      // The block is used again as soon as it has been taken.
      await new Promise<void>((resolve) => {
        unzip.once("close", resolve);
        unzip.write(block, () => {
          unzip.removeListener("close", resolve);
          resolve();
        });
      });
      if (unzip.destroyed) return;
    }
    unzip.end();
  } catch (error) {
    unzip.destroy(toPicoletError(error, "failed", "cannot read the log file"));
  }
}

/** Counts the complete lines of a compressed file. */
export async function countLines(file: LogFile): Promise<number> {
  let count = 0;
  let rest: Buffer = Buffer.alloc(0);
  for await (const block of unzippedBlocks(file)) {
    // Only the start of an entry matters, so of a long one that spans blocks no more than its header is kept.
    const joined = Buffer.concat([rest, block]);
    let start = 0;
    for (;;) {
      const end = joined.indexOf(NEWLINE, start);
      if (end < 0) break;
      if (logHeaderAt(joined, start)?.header.partial === false) count += 1;
      start = end + 1;
    }
    rest = Buffer.from(joined.subarray(start, start + MAX_HEADER_BYTES));
  }
  return count;
}

/** Finds the start of the last `wanted` lines of a plain file, from its end. */
export async function findTail(
  file: LogFile,
  wanted: number,
  open: boolean,
): Promise<{ readonly start: number; readonly lines: number }> {
  if (wanted <= 0) return { start: file.size, lines: 0 };
  // Overlaps the block to its right by one header, so that an entry's header is always whole.
  const buffer = Buffer.allocUnsafe(BLOCK_BYTES + MAX_HEADER_BYTES);
  let lines = 0;
  let sawEntry = false;
  let right = file.size;
  for (let high = file.size; high > 0; high -= BLOCK_BYTES) {
    const low = Math.max(0, high - BLOCK_BYTES);
    const length = Math.min(high + MAX_HEADER_BYTES, file.size) - low;
    const block = buffer.subarray(0, await readFully(file, buffer, length, low));
    for (const relative of startsBackwards(block, high - low - 1, low === 0)) {
      const start = low + relative;
      if (start >= file.size) continue;
      const entry = logHeaderAt(block, relative);
      if (entry !== undefined) {
        const ends = !entry.header.partial || (open && !sawEntry);
        sawEntry = true;
        if (ends && lines === wanted) return { start: right, lines };
        if (ends) lines += 1;
      }
      right = start;
    }
  }
  return { start: 0, lines };
}

/** Where lines start in `block`, last first: after each newline up to `from`, and at 0 when the file starts there. */
function* startsBackwards(block: Buffer, from: number, atFileStart: boolean): Generator<number> {
  for (let at = from; at >= 0; ) {
    const newline = block.lastIndexOf(NEWLINE, at);
    if (newline < 0) break;
    yield newline + 1;
    at = newline - 1;
  }
  if (atFileStart) yield 0;
}

async function readFully(file: LogFile, buffer: Buffer, length: number, position: number): Promise<number> {
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await file.handle.read(buffer, filled, length - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
