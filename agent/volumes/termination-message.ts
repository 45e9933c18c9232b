import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  unlinkSync,
} from "node:fs";
import { join } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { terminationLogName } from "./files/pod-paths.ts";

/** Kubernetes' limit for one container's message; what is longer is cut. */
export const MAX_TERMINATION_MESSAGE_BYTES = 4096;
/** The kubelet's limit of the end of a log that becomes a message. */
const FALLBACK_LINES = 80;
const MAX_FALLBACK_BYTES = 2048;
/** A runtime cuts lines at 16 KiB, so this holds the last one whole, or 80 short ones. */
const LOG_TAIL_BYTES = 20 * KIBIBYTE;
/** Files of runs older than the one before the last are not read again. */
const KEPT_RUNS = 2;

/**
 * Makes an empty file in `folder` for the termination message, which any user of the container can write to.
 * @param keep true when this run has begun already: its message stays
 * @returns its path
 */
export function makeTerminationLog(folder: string, attempt: number, keep: boolean): string {
  mkdirSync(folder, { recursive: true, mode: 0o750 });
  const path = join(folder, terminationLogName(attempt));
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW | (keep ? 0 : constants.O_TRUNC);
  const fd = openSync(path, flags, 0o666);
  try {
    fchmodSync(fd, 0o666);
  } finally {
    closeSync(fd);
  }
  removeOld(folder, attempt);
  return path;
}

/** The message of one run; "" when it left none. Never more than MAX_TERMINATION_MESSAGE_BYTES. */
export function readTerminationLog(folder: string, attempt: number): string {
  const path = join(folder, terminationLogName(attempt));
  const fd = openIfThere(path);
  if (fd === undefined) return "";
  try {
    if (!fstatSync(fd).isFile()) return "";
    const buffer = Buffer.alloc(MAX_TERMINATION_MESSAGE_BYTES);
    const length = readSync(fd, buffer, 0, buffer.length, 0);
    // A character that the limit cuts in two is left out.
    return new TextDecoder().decode(buffer.subarray(0, length), { stream: true });
  } finally {
    closeSync(fd);
  }
}

/**
 * The end of a log in CRI's format, without its time stamps: what fits of the last lines. "" when there is none.
 */
export function readLogTail(path: string): string {
  const fd = openIfThere(path);
  if (fd === undefined) return "";
  try {
    const { size } = fstatSync(fd);
    const buffer = Buffer.alloc(Math.min(size, LOG_TAIL_BYTES));
    const length = readSync(fd, buffer, 0, buffer.length, size - buffer.length);
    const lines = buffer.toString("utf8", 0, length).split("\n");
    // The text before the first newline is the rest of a line, unless the log begins there.
    if (size > LOG_TAIL_BYTES) lines.shift();
    const text = lines
      .slice(-FALLBACK_LINES - 1)
      .map(logContent)
      .join("");
    return Buffer.from(text)
      .subarray(-MAX_FALLBACK_BYTES)
      .toString()
      .replace(/^\uFFFD+/, "");
  } finally {
    closeSync(fd);
  }
}

/** `<time> <stream> <tags> <content>`; the tag P marks a line that the next one continues. Other lines are ignored. */
function logContent(line: string): string {
  const match = /^\S+ (?:stdout|stderr) (\S+) (.*)$/s.exec(line);
  if (match === null) return "";
  return match[1]?.split(":").includes("P") ? (match[2] ?? "") : `${match[2]}\n`;
}

function removeOld(folder: string, attempt: number): void {
  const oldest = terminationLogName(Math.max(0, attempt - KEPT_RUNS + 1));
  for (const name of readdirSync(folder)) {
    if (!/^[0-9a-f]{8,}$/.test(name) || name >= oldest) continue;
    try {
      unlinkSync(join(folder, name));
    } catch {
      ignore("the file only has the message of an older run");
    }
  }
}

/** Follows no link, and does not wait for a writer of a pipe. */
function openIfThere(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return undefined;
    throw error;
  }
}
