/** Distinguishes a tar archive, plain or in gzip, from other files. */
import type { FileHandle } from "node:fs/promises";
import { START_BYTES } from "../image-file-kind.ts";
import { gunzipStream } from "./byte-stream.ts";
import { type ByteStream, FileBytes } from "./file-bytes.ts";

export interface ArchiveStart {
  readonly isGzip: boolean;
  /** The first `START_BYTES` bytes, decompressed; fewer when the file has fewer. */
  readonly start: Buffer;
}

/** @throws `corrupt` for gzip that is damaged or cut off within these bytes */
export async function readArchiveStart(file: FileHandle): Promise<ArchiveStart> {
  const start = await startOf(new FileBytes(file));
  if (start[0] !== 0x1f || start[1] !== 0x8b) return { isGzip: false, start };
  await using inflated = gunzipStream(new FileBytes(file));
  return { isGzip: true, start: await startOf(inflated) };
}

async function startOf(stream: ByteStream): Promise<Buffer> {
  const start = Buffer.alloc(START_BYTES);
  for (let filled = 0; filled < START_BYTES; ) {
    const chunk = await stream.read(START_BYTES - filled);
    if (chunk === undefined) return start.subarray(0, filled);
    start.set(chunk, filled);
    filled += chunk.length;
  }
  return start;
}
