import {
  type BigIntStats,
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  realpathSync,
} from "node:fs";
import { isAbsolute, join, relative } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** open(2)'s O_PATH, which Node does not name: a handle on the thing itself, without opening a device or a FIFO. */
const O_PATH = 0o10000000;
const HANDLE_FLAGS = O_PATH | constants.O_NOFOLLOW;
/** As the kernel does. */
const MAX_SYMLINKS = 40;

/** The file or folder that a `subPath` leads to, held open so that a pod cannot exchange it. */
export interface SubPathHandle extends Disposable {
  readonly fd: number;
  readonly isDirectory: boolean;
  readonly device: bigint;
  readonly inode: bigint;
}

/** `undefined`: it may be used. The kubelet's own words. */
export function subPathProblem(subPath: string): string | undefined {
  if (isAbsolute(subPath)) return `error SubPath \`${subPath}\` must not be an absolute path`;
  if (subPath.split("/").includes("..")) return `unable to provision SubPath \`${subPath}\`: must not contain '..'`;
  return undefined;
}

/**
 * Opens `subPath` below `volume`; folders that are missing are made, with the volume's mode. Symbolic links are
 * followed as long as they stay inside the volume. The checked path is opened step by step without following links, so
 * that a pod that writes to the volume meanwhile can make it fail, but not lead it out.
 * @throws when the path leads out, or is changed while it is checked
 */
export function openSubPath(volume: string, subPath: string): SubPathHandle {
  const base = realpathSync(volume);
  const { existing, missing } = resolveInside(base, subPath);
  const mode = lstatSync(base).mode & 0o7777;
  let fd = openSync(base, HANDLE_FLAGS);
  try {
    for (const name of names(relative(base, existing))) fd = step(fd, name);
    for (const name of missing) {
      const isOurs = makeFolder(fd, name, mode);
      fd = step(fd, name);
      // The umask has removed rights, and the kernel sets no set-id bits on a new folder.
      if (isOurs && fstatSync(fd).isDirectory()) chmodSync(`/proc/self/fd/${fd}`, mode);
    }
    const stats = fstatSync(fd, { bigint: true });
    if (stats.isSymbolicLink()) throw new Error("a symbolic link has come in between");
    return handleOf(fd, stats);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** A folder of the path that is missing cannot be made. */
export class SubPathError extends Error {}

/** @returns false when another process has made the folder, or something in its place, meanwhile */
function makeFolder(parent: number, name: string, mode: number): boolean {
  try {
    mkdirSync(childOf(parent, name), { mode });
    return true;
  } catch (cause) {
    if (errnoOf(cause) === "EEXIST") return false;
    throw new SubPathError("cannot make a folder", { cause });
  }
}

/** @returns the part of the path that exists, without links, and the folders that must be made below it */
function resolveInside(
  base: string,
  subPath: string,
): { readonly existing: string; readonly missing: readonly string[] } {
  const wanted = names(subPath);
  let existing = base;
  let links = 0;
  for (const [index, name] of wanted.entries()) {
    const next = join(existing, name);
    const stats = lstatSync(next, { throwIfNoEntry: false });
    if (stats === undefined) return { existing, missing: wanted.slice(index) };
    if (!stats.isSymbolicLink()) {
      existing = next;
      continue;
    }
    links += 1;
    if (links > MAX_SYMLINKS) throw new Error("too many symbolic links");
    existing = realpathSync(next);
    if (existing !== base && !existing.startsWith(base === "/" ? "/" : `${base}/`))
      throw new Error("it leads out of the volume");
  }
  return { existing, missing: [] };
}

/** Opens the next folder, and closes the handle of the one above. */
function step(fd: number, name: string): number {
  const next = openSync(childOf(fd, name), HANDLE_FLAGS);
  closeSync(fd);
  return next;
}

const childOf = (fd: number, name: string): string => `/proc/self/fd/${fd}/${name}`;
const names = (path: string): string[] => path.split("/").filter((name) => name !== "" && name !== ".");

const handleOf = (fd: number, stats: BigIntStats): SubPathHandle => ({
  fd,
  isDirectory: stats.isDirectory(),
  device: stats.dev,
  inode: stats.ino,
  [Symbol.dispose]: () => closeSync(fd),
});
