import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { settled } from "../ports/settled.ts";
import { entriesBelow } from "./folder-tree.ts";

const ROOT = "/sys/fs/cgroup";
/** Below an agent's root: of the runner that is kept ready, made with the first component. */
export const SPARE_CGROUP = "picolet-spare";

/** The folders of the cgroup and of those below, on every controller; each before its children. */
export function cgroupFolders(path: string): readonly string[] {
  // Links are second names of controllers that are mounted together.
  const controllers = readdirSync(ROOT, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const tops = controllers.map(({ name }) => join(ROOT, name, path)).filter((top) => existsSync(top));
  const below = (top: string): readonly string[] =>
    entriesBelow(top)
      .filter(({ isFolder }) => isFolder)
      .map((entry) => join(top, entry.path));
  return tops.flatMap((top) => [top, ...below(top)]);
}

/** The cgroup and those below, which must be empty, on every controller. */
export async function removeCgroups(path: string): Promise<void> {
  const left = (): readonly string[] =>
    cgroupFolders(path)
      .toReversed()
      .filter((folder) => !removed(folder));
  assert.deepEqual(await settled(left), [], "cgroups that cannot be removed");
}

/** One whose last process has just ended is busy for some milliseconds still. */
function removed(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EBUSY") return false;
    throw error;
  }
}

/**
 * Until no process is left in the cgroup and those below: one that was killed stays in it for a moment, and what a
 * killed agent had begun, as a transpilation, comes to its end there by itself.
 */
export async function untilCgroupEmpty(path: string): Promise<void> {
  const used = (): readonly string[] => cgroupFolders(path).filter((folder) => processesIn(folder) !== "");
  assert.deepEqual(await settled(used), [], "cgroups with processes");
}

/** The processes of the cgroup and of those below. */
export const cgroupProcesses = (path: string): readonly number[] =>
  cgroupFolders(path).flatMap((folder) => processesIn(folder).split("\n").filter(Boolean).map(Number));

function processesIn(folder: string): string {
  try {
    return readFileSync(join(folder, "cgroup.procs"), "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENODEV") return "";
    throw error;
  }
}
