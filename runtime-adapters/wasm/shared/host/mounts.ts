/**
 * The directories that a component starts with: one for each mounted directory, and for mounted single files
 * (`/dev/termination-log`, a subPath) their directory. The source of a mount is fixed when the runner starts.
 */

import { constants, openSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type MountLaunch, mountStamp } from "../messages/launch.ts";
import { OpenedFile } from "./opened-file.ts";
import { O_PATH } from "./paths.ts";

/** One file mounted into a directory. It hides the directory's own file of that name. */
export interface MountedFile {
  readonly file: OpenedFile;
  readonly readOnly: boolean;
}

/** Descriptors of one mount share it. Links and renames between two trees are refused, as between file systems. */
export interface Tree {
  readonly readOnly: boolean;
}

export interface Preopen {
  readonly guestPath: string;
  readonly directory: OpenedFile;
  readonly tree: Tree;
  readonly files: ReadonlyMap<string, MountedFile>;
}

/** The process sees something else at a mount's place than the node has there. */
export class StaleMount extends Error {}

/** @param emptyDirectory stays empty, and replaces directories that only mounted files make */
export function openMounts(mounts: readonly MountLaunch[], emptyDirectory: string): Preopen[] {
  const directories = new Map<string, { directory: OpenedFile; readOnly: boolean }>();
  const files = new Map<string, Map<string, MountedFile>>();
  for (const { guestPath, hostPath, readOnly, stamp } of mounts) {
    const opened = openMount(hostPath);
    if (stamp !== undefined && mountStamp(opened.stat()) !== stamp) throw new StaleMount(guestPath);
    const path = normalized(guestPath);
    if (opened.type === "directory") directories.set(path, { directory: opened, readOnly });
    else {
      const slash = path.lastIndexOf("/");
      const parent = path.slice(0, slash) || "/";
      const siblings = files.get(parent) ?? new Map<string, MountedFile>();
      files.set(parent, siblings.set(path.slice(slash + 1), { file: opened, readOnly }));
    }
  }
  for (const parent of files.keys()) {
    if (!directories.has(parent)) directories.set(parent, { directory: openMount(emptyDirectory), readOnly: true });
  }
  return [...directories].map(([guestPath, { directory, readOnly }]) => ({
    guestPath,
    directory,
    tree: { readOnly },
    files: files.get(guestPath) ?? new Map(),
  }));
}

function openMount(hostPath: string): OpenedFile {
  try {
    return new OpenedFile(openSync(hostPath, O_PATH | constants.O_RDONLY));
  } catch (error) {
    const code = errnoOf(error) === "ENOENT" ? "not_found" : "failed";
    throw new PicoletError(code, `cannot mount ${hostPath}`, { cause: error });
  }
}

/** `/a//b/` → `/a/b` */
function normalized(path: string): string {
  const parts = path.split("/").filter((each) => each !== "" && each !== ".");
  return `/${parts.join("/")}`;
}
