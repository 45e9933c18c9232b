import type { Stats } from "node:fs";
import { type FileHandle, mkdir, open, stat } from "node:fs/promises";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { HostPathType } from "@picolet/protocol/pod/pod.ts";
import type { VolumeType } from "./volume-type.ts";

const CHECKS: Readonly<Record<string, { readonly what: string; readonly is: (stats: Stats) => boolean }>> = {
  Directory: { what: "a directory", is: (stats) => stats.isDirectory() },
  DirectoryOrCreate: { what: "a directory", is: (stats) => stats.isDirectory() },
  File: { what: "a file", is: (stats) => stats.isFile() },
  FileOrCreate: { what: "a file", is: (stats) => stats.isFile() },
  Socket: { what: "a socket file", is: (stats) => stats.isSocket() },
  CharDevice: { what: "a character device", is: (stats) => stats.isCharacterDevice() },
  BlockDevice: { what: "a block device", is: (stats) => stats.isBlockDevice() },
};

export const hostPath: VolumeType = {
  makeHandler: () => ({
    plan: (_, volume) => () => checkHostPath(volume.hostPath?.path ?? "", volume.hostPath?.type ?? ""),
    locate: (_, volume) => ({ path: volume.hostPath?.path ?? "", readOnly: false }),
  }),
};

/**
 * Checks a hostPath volume's `type`, and makes the path for `…OrCreate`. Links are followed: the path is the
 * administrator's.
 * @throws `unavailable` with the kubelet's words, because the path may be made later
 */
export async function checkHostPath(path: string, type: HostPathType): Promise<void> {
  const check = CHECKS[type];
  if (check === undefined) return;
  let stats = await statOf(path);
  if (stats === undefined && type.endsWith("OrCreate")) {
    await create(path, type);
    stats = await stat(path);
  }
  if (stats === undefined || !check.is(stats))
    throw new PicoletError("unavailable", `hostPath type check failed: ${path} is not ${check.what}`, {
      retryable: true,
    });
}

/** @returns undefined for a missing path */
export async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return undefined;
    throw error;
  }
}

async function create(path: string, type: HostPathType): Promise<void> {
  if (type === "DirectoryOrCreate") {
    await mkdir(path, { recursive: true, mode: 0o755 });
    return;
  }
  const handle: FileHandle = await open(path, "a", 0o644);
  await handle.close();
}
