import { execFileSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { basename, dirname } from "node:path";
import { mountPointsWithin, parseMountInfo } from "@picolet/agent/core/node/mount-info.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { isAbandoned, writeOwner } from "./owner-file.ts";
import { TempFolder } from "./temp-folder.ts";

/** Folders whose tests remove nothing else than the folder and its mounts. */
const NAMES = /^picolet-(?:node|test|unit)-/;

/** A `TempFolder` in which file systems are mounted. The next one removes those of tests that were killed. */
export class MountFolder extends TempFolder {
  constructor() {
    super();
    removeAbandoned();
    writeOwner(this.path);
  }

  override [Symbol.dispose](): void {
    unmountWithin(this.path);
    super[Symbol.dispose]();
  }
}

/** Lazily, because a process that was killed a moment ago may still hold a mount. */
export function unmountWithin(folder: string): void {
  for (const target of mountsWithin(folder)) execFileSync("umount", ["-l", target], { stdio: "pipe" });
}

/** Removes the folders that have mounts, and an owner file whose process has ended. */
export function removeAbandoned(): void {
  const folders = new Set(mountsWithin("/").flatMap(foldersAbove).filter(isAbandoned));
  for (const folder of folders) removeWithMounts(folder);
}

/** Removes what no process uses; keeps a folder in which a mount stays, whose files may be those of something else. */
export function removeWithMounts(folder: string): void {
  try {
    unmountWithin(folder);
  } catch {
    ignore("another test removes the same folder");
  }
  if (mountsWithin(folder).length === 0) rmSync(folder, { recursive: true, force: true });
}

/** The innermost last. */
function foldersAbove(path: string): readonly string[] {
  const parent = dirname(path);
  if (parent === path) return [];
  return [...foldersAbove(parent), ...(NAMES.test(basename(parent)) ? [parent] : [])];
}

const mountsWithin = (folder: string): readonly string[] =>
  mountPointsWithin(parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")), folder);
