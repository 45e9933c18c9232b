/** The files below staticPodPath: which there are, and what is in one. Nothing here ever waits for a file. */

import { isUtf8 } from "node:buffer";
import {
  type BigIntStats,
  closeSync,
  constants,
  type Dir,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  readSync,
  statSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

/**
 * The kubelet takes 10 MB; a Pod of more than 1 MiB could be stored by no API server, and many small files do as well.
 */
export const MAX_FILE_BYTES = MEBIBYTE;
/**
 * Ten times what a node runs. Those that pods run of come first, then the first by name; the rest is named as left out.
 */
export const MAX_FILES = 1000;

/** The attributes of a file that change with it. */
export interface FileStamp {
  /** Differs for any two states of a path. */
  readonly key: string;
  /** The same while a file is written to in place; another after a rename over it. */
  readonly inode: string;
  readonly sizeBytes: number;
  /** Milliseconds since the epoch. */
  readonly modifiedAtMs: number;
}

export type ManifestEntry =
  | { readonly kind: "file"; readonly path: string; readonly stamp: FileStamp }
  /** What is there cannot be a manifest. */
  | { readonly kind: "unusable"; readonly path: string; readonly message: string };

export type ManifestListing =
  | {
      readonly kind: "file" | "folder";
      /** By path. */
      readonly entries: readonly ManifestEntry[];
      /** The number of names that were left out because of MAX_FILES. */
      readonly omitted: number;
    }
  | { readonly kind: "missing" }
  | { readonly kind: "unavailable"; readonly message: string };

export type FileContent =
  | { readonly kind: "text"; readonly text: string }
  /** The file is missing, or differs from `stamp`. */
  | { readonly kind: "changed" }
  | { readonly kind: "unusable"; readonly message: string };

/** @param isKnown whether pods run of this file; such files are never left out. */
export function listManifests(path: string, isKnown: (path: string) => boolean): ManifestListing {
  try {
    const stats = statSync(path, { bigint: true });
    if (stats.isDirectory()) return listFolder(path, isKnown);
    if (!stats.isFile()) return { kind: "unavailable", message: `must be a folder or a file, is ${kindOf(stats)}` };
    return { kind: "file", entries: [{ kind: "file", path, stamp: stampOf(stats) }], omitted: 0 };
  } catch (error) {
    const code = codeOf(error);
    return code === "ENOENT" || code === "ENOTDIR" ? { kind: "missing" } : { kind: "unavailable", message: said(code) };
  }
}

/** Reads a file, which may have changed or gone since its stamp was read. */
export function readManifestFile(path: string, stamp: FileStamp): FileContent {
  let file: number | undefined;
  try {
    // Should it be a pipe by now, it is opened without waiting for its other end.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    if (stampOf(fstatSync(file, { bigint: true })).key !== stamp.key) return { kind: "changed" };
    const bytes = Buffer.alloc(stamp.sizeBytes);
    let length = 0;
    for (let read = -1; read !== 0 && length < bytes.length; length += read)
      read = readSync(file, bytes, length, bytes.length - length, null);
    if (stampOf(fstatSync(file, { bigint: true })).key !== stamp.key) return { kind: "changed" };
    if (!isUtf8(bytes)) return { kind: "unusable", message: "is no text: a manifest is YAML or JSON in UTF-8" };
    return { kind: "text", text: bytes.toString("utf8", 0, length) };
  } catch (error) {
    const code = codeOf(error);
    return code === "ENOENT" ? { kind: "changed" } : { kind: "unusable", message: said(code) };
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/** @returns another text after the folder was removed and made again; `undefined` for a path that is no folder */
export function folderIdentity(path: string): string | undefined {
  try {
    const stats = statSync(path, { bigint: true });
    return stats.isDirectory() ? inodeOf(stats) : undefined;
  } catch {
    return undefined;
  }
}

/** The innermost folder above `path` that is there. */
export function nearestFolder(path: string): string {
  const parent = dirname(path);
  return parent === path || folderIdentity(parent) !== undefined ? parent : nearestFolder(parent);
}

function listFolder(folder: string, isKnown: (path: string) => boolean): ManifestListing {
  const known: string[] = [];
  let others: string[] = [];
  let omitted = 0;
  const cut = (): void => {
    others = others.toSorted();
    omitted += Math.max(0, others.length - MAX_FILES);
    others.length = Math.min(others.length, MAX_FILES);
  };
  for (const name of namesIn(folder)) {
    if (name.startsWith(".")) continue;
    const path = join(folder, name);
    if (isKnown(path)) known.push(path);
    else others.push(path);
    if (others.length >= 4 * MAX_FILES) cut();
  }
  cut();
  const room = Math.max(0, MAX_FILES - known.length);
  omitted += Math.max(0, others.length - room);
  const entries = [...known, ...others.slice(0, room)].toSorted().map(entryAt);
  return { kind: "folder", entries: entries.filter((entry) => entry !== undefined), omitted };
}

function* namesIn(folder: string): Generator<string> {
  const opened: Dir = opendirSync(folder);
  try {
    for (let entry = opened.readSync(); entry !== null; entry = opened.readSync()) yield entry.name;
  } finally {
    opened.closeSync();
  }
}

/** @returns `undefined` when the file was removed meanwhile */
function entryAt(path: string): ManifestEntry | undefined {
  const unusable = (message: string): ManifestEntry => ({ kind: "unusable", path, message });
  try {
    const stats = statSync(path, { bigint: true });
    if (!stats.isFile()) return unusable(`must be a file, is ${kindOf(stats)}; manifests in it are not read`);
    if (stats.size > MAX_FILE_BYTES) {
      return unusable(
        `Too long: ${stats.size} bytes, may not be more than ${MAX_FILE_BYTES}; give its pods files of their own`,
      );
    }
    return { kind: "file", path, stamp: stampOf(stats) };
  } catch (error) {
    const code = codeOf(error);
    if (code === "ENOENT") return isLink(path) ? unusable("is a symbolic link to nothing") : undefined;
    return unusable(said(code));
  }
}

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true;
}

const inodeOf = (stats: BigIntStats): string => `${stats.dev}:${stats.ino}`;

function stampOf(stats: BigIntStats): FileStamp {
  const inode = inodeOf(stats);
  return {
    key: `${inode}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`,
    inode,
    sizeBytes: Number(stats.size),
    modifiedAtMs: Number(stats.mtimeMs),
  };
}

function kindOf(stats: BigIntStats): string {
  if (stats.isDirectory()) return "a folder";
  if (stats.isFIFO()) return "a pipe (FIFO)";
  if (stats.isSocket()) return "a socket";
  return stats.isCharacterDevice() || stats.isBlockDevice() ? "a device" : "something else";
}

const SAID: Readonly<Record<string, string>> = {
  ELOOP: "is a symbolic link that leads back to itself",
  EACCES: "cannot be read: permission denied",
  EPERM: "cannot be read: permission denied",
  ENAMETOOLONG: "has a name that is too long",
};

const said = (code: string): string => SAID[code] ?? `cannot be read: ${code}`;

const codeOf = (error: unknown): string => errnoOf(error) || String(error);
