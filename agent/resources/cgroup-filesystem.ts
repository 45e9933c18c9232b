/** Folders and files of a mounted cgroup hierarchy. An entry that disappears during a read counts as missing. */
import { readFileSync } from "node:fs";
import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** Bounds recursion: below a pod are its containers, and below those the cgroups that they make. */
const MAX_DEPTH = 16;

export const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** `folder` and all below it, parents before children; empty when it is not there. */
export async function foldersWithin(folder: string): Promise<string[]> {
  const found: string[] = [];
  let level = [folder];
  for (let depth = 0; depth < MAX_DEPTH && level.length > 0; depth += 1) {
    const next: string[] = [];
    for (const each of level) {
      const names = await subfolders(each, () => found.push(each));
      for (const name of names) next.push(join(each, name));
    }
    level = next;
  }
  return found;
}

export async function subfolders(folder: string, onFound?: () => void): Promise<string[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    onFound?.();
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return [];
    throw error;
  }
}

/** "" for a file that is not there or goes while it is read (ENODEV). */
export const readText = (path: string): Promise<string> => readFile(path, "utf8").catch(() => "");

export function readTextSync(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

export function counter(text: string, name: string): number {
  const line = text.split("\n").find((each) => each.startsWith(`${name} `));
  const value = Number(line?.slice(name.length + 1));
  return Number.isSafeInteger(value) ? value : 0;
}
