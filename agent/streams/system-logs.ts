/**
 * Answers `/logs/…` as a kubelet does: the files below the machine's folder of logs. No symbolic link is followed, and
 * each folder is opened before the next name is looked up in it, so that a pod that writes there leads nowhere else.
 * Loaded with the first request.
 */
import { constants } from "node:fs";
import { type FileHandle, open, readdir } from "node:fs/promises";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { KubeletAnswer } from "./kubelet-answers.ts";

const TEXT_TYPE = "text/plain; charset=utf-8";
const CHUNK_BYTES = 65_536;
/** Bounds the opens of one request; logs are two or three folders deep. */
const MAX_DEPTH = 16;
/** Bounds the answer about a folder; the first names are shown. */
const MAX_NAMES = 10_000;
/** A FIFO that has no writer does not block. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** @param root absolute; may be a link itself. @param pathname from `/logs` on, as the request has it */
export async function answerSystemLogs(root: string, pathname: string): Promise<KubeletAnswer> {
  const names = namesIn(pathname);
  if (names === undefined) return NOT_FOUND;
  let handle: FileHandle | undefined;
  try {
    handle = await openBelow(root, names);
    const status = await handle.stat();
    if (status.isFile()) {
      const body = contentOf(handle, status.size);
      handle = undefined;
      return { status: 200, contentType: TEXT_TYPE, body };
    }
    if (!status.isDirectory()) return NOT_FOUND;
    return { status: 200, contentType: TEXT_TYPE, body: [await listing(handle)] };
  } catch (error) {
    if (ABSENT.has(errnoOf(error))) return NOT_FOUND;
    return text(500, `the log cannot be read: ${errnoOf(error) || String(error)}\n`);
  } finally {
    await handle?.close();
  }
}

const text = (status: number, body: string): KubeletAnswer => ({ status, contentType: TEXT_TYPE, body: [body] });
const NOT_FOUND = text(404, "404 page not found\n");
/** A link (ELOOP) is as good as absent: what it names has a path of its own. */
const ABSENT: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "ENXIO"]);

/** Undefined: it names no file below the folder. */
function namesIn(pathname: string): readonly string[] | undefined {
  try {
    const names = pathname
      .split("/")
      .slice(2)
      .filter((name) => name !== "")
      .map(decodeURIComponent);
    const isPlain = names.every((name) => !/[/\0]/.test(name) && name !== "." && name !== "..");
    return isPlain && names.length <= MAX_DEPTH ? names : undefined;
  } catch {
    return undefined;
  }
}

async function openBelow(root: string, names: readonly string[]): Promise<FileHandle> {
  let handle = await open(root, constants.O_RDONLY | constants.O_DIRECTORY);
  for (const name of names) {
    const above = handle;
    try {
      handle = await open(`/proc/self/fd/${above.fd}/${name}`, FLAGS);
    } finally {
      await above.close();
    }
  }
  return handle;
}

/** A name a line, as plain text: a browser gets no markup from a board. */
async function listing(folder: FileHandle): Promise<string> {
  const entries = await readdir(`/proc/self/fd/${folder.fd}`, { withFileTypes: true });
  const names = entries.map((entry) => `${encodeURIComponent(entry.name)}${entry.isDirectory() ? "/" : ""}\n`);
  return names.sort().slice(0, MAX_NAMES).join("");
}

/** The bytes that the file had when it was opened: a log that grows has an end. */
async function* contentOf(handle: FileHandle, size: number): AsyncGenerator<Uint8Array> {
  try {
    for (let at = 0; at < size; ) {
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, at);
      // It was truncated.
      if (bytesRead === 0) return;
      yield buffer.subarray(0, Math.min(bytesRead, size - at));
      at += bytesRead;
    }
  } finally {
    await handle.close();
  }
}
