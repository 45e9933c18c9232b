import { createReadStream } from "node:fs";
import { lstat, open, rename, unlink, utimes } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { errorCode } from "../core/error-code.ts";

/**
 * Replaces a log that was put aside by its gzip, `<path>.gz`, with the same times. On disk before the log goes, and
 * never seen half-written: killed at any point, it leaves the log, or a `.tmp` file that the next rotation removes.
 */
export async function compressLog(path: string, signal: AbortSignal): Promise<void> {
  const stats = await lstat(path);
  const temporary = `${path}.gz.tmp`;
  const output = await open(temporary, "w", stats.mode & 0o777);
  try {
    await pipeline(createReadStream(path), createGzip(), (chunks) => output.writeFile(chunks), { signal });
    await output.sync();
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  } finally {
    await output.close();
  }
  await utimes(temporary, stats.atime, stats.mtime);
  await rename(temporary, `${path}.gz`);
  try {
    await unlink(path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    // Somebody found it too old meanwhile: then its gzip is too.
    await unlink(`${path}.gz`);
  }
}
