/** Small files of a hub's data directory that a power cut leaves either as they were or as they were to be. */
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** Replaces the file as a whole, readable by its owner alone; it is on the disk when this returns. */
export function writeDurably(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  try {
    writeFileSync(`${path}.new`, text, { mode: 0o600, flush: true });
    renameSync(`${path}.new`, path);
    syncFolderOf(path);
  } catch (error) {
    throw new PicoletError("failed", `cannot write ${path}`, { cause: error });
  }
}

/** @returns undefined when there is no such file. @throws `failed` when it cannot be read */
export function readOptionalFile(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  }
}

/** Makes what was created, renamed or removed in the folder of `path` survive a power cut. */
export function syncFolderOf(path: string): void {
  const folder = openSync(dirname(path), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
