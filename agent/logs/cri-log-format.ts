/**
 * The CRI log format, one entry a line (Kubernetes' design proposal "kubelet-cri-logging"):
 *
 *     2026-11-20T11:43:22.123456789Z stdout F text of the line
 *
 * The third field is `F` (this ends a line) or `P` (a part of a line, to be continued), more tags may follow after `:`.
 */
import type { LogStream } from "../core/pods/container-logs.ts";

/**
 * A time stamp takes at most 35 bytes, the stream 6, the tags a few: what is longer without a third space is no entry.
 */
export const MAX_HEADER_BYTES = 256;

export interface LogHeader {
  /** As it stands in the file. */
  readonly timestamp: string;
  readonly stream: LogStream;
  /** True when the line continues in the next entry of this stream. */
  readonly partial: boolean;
}

/** Parses the part of an entry before its third space; `undefined` if it is no header. */
export function parseLogHeader(text: string): LogHeader | undefined {
  const [timestamp = "", stream, tags = "", ...rest] = text.split(" ");
  if (rest.length > 0 || (stream !== "stdout" && stream !== "stderr")) return undefined;
  // A power cut can leave a hole of zero bytes before the first entry that was written after it.
  const stamp = timestamp.replace(/^\0+/, "");
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(stamp)) return undefined;
  const [kind] = tags.split(":", 1);
  if (kind !== "P" && kind !== "F") return undefined;
  return { timestamp: stamp, stream, partial: kind === "P" };
}

const SPACE = 0x20;
const NEWLINE = 0x0a;

/**
 * The header of the entry that starts at `start`, and where its content starts.
 * `undefined`: a line that is no entry, or one whose header does not end before `block` does.
 */
export function logHeaderAt(
  block: Buffer,
  start: number,
): { readonly header: LogHeader; readonly contentAt: number } | undefined {
  const limit = Math.min(block.length, start + MAX_HEADER_BYTES);
  let spaces = 0;
  for (let index = start; index < limit; index += 1) {
    const byte = block[index];
    if (byte === NEWLINE) return undefined;
    if (byte !== SPACE) continue;
    spaces += 1;
    if (spaces < 3) continue;
    const header = parseLogHeader(block.toString("latin1", start, index));
    return header === undefined ? undefined : { header, contentAt: index + 1 };
  }
  return undefined;
}
