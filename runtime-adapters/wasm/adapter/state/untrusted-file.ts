/**
 * Files that a component's process writes and the agent reads. It may have been taken over, and put anything in their
 * place.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";

/**
 * Errors for another object in the place of a file: a link, a socket or a pipe without a peer, a device that is gone.
 */
const NO_FILE: ReadonlySet<string> = new Set(["ENOENT", "ELOOP", "ENXIO", "ENODEV", "EISDIR"]);

/** The beginning of it; undefined for what is no regular file. Never blocks, and follows no link. */
export function readUntrusted(path: string, maxBytes: number): string | undefined {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    if (NO_FILE.has(errnoOf(error))) return undefined;
    throw error;
  }
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) return undefined;
    const bytes = Buffer.alloc(Math.min(stats.size, maxBytes));
    return bytes.toString("utf8", 0, readSync(fd, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(fd);
  }
}

/** The fields of a JSON object in it; none where there is no such thing, or not all of it yet. */
export function readUntrustedFields(path: string, maxBytes: number): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(readUntrusted(path, maxBytes) ?? "");
    return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}
