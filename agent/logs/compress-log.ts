import { constants } from "node:fs";
import { type FileHandle, open, rename, rm, unlink } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/**
 * Replaces a log that was put aside by its gzip, `<path>.gz`, with the same times. On disk before the log goes, and
 * never seen half-written: killed at any point, it leaves the log, or a `.tmp` file that the next rotation removes.
 *
 * A component's runner writes into the same folder. Should it have been taken over, it may put links there, or pipes:
 * nothing is read from, or written to, where they lead.
 */
export async function compressLog(path: string, signal: AbortSignal): Promise<void> {
  const temporary = `${path}.gz.tmp`;
  const input = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = await input.stat();
    if (!stats.isFile()) throw new PicoletError("invalid", "cannot compress a log that is no regular file");
    await rm(temporary, { force: true });
    // Fails where there is anything by that name again.
    const output = await open(temporary, "wx", stats.mode & 0o777);
    try {
      await pipeline(input.createReadStream({ autoClose: false }), createGzip(), written(output), { signal });
      await output.utimes(stats.atime, stats.mtime);
      await output.sync();
    } catch (error) {
      await unlink(temporary).catch(ignore("the first error is thrown; the next rotation removes the file"));
      throw error;
    } finally {
      await output.close();
    }
  } finally {
    await input.close();
  }
  await rename(temporary, `${path}.gz`);
  try {
    await unlink(path);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
    // The log was deleted for its age meanwhile: so is its gzip.
    await unlink(`${path}.gz`);
  }
}

const written =
  (output: FileHandle) =>
  (chunks: AsyncIterable<Uint8Array>): Promise<void> =>
    output.writeFile(chunks);
