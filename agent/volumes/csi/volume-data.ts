/** The kubelet's `vol_data.json`: what a later agent needs to take a volume back. */
import { open, readFile, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

const FILE = "vol_data.json";
/** A handle has at most 128 KiB by the API's limits of a PersistentVolume; a larger file is not one of ours. */
const MAX_BYTES = 256 * KIBIBYTE;

/** The kubelet's keys. */
export interface VolumeData {
  readonly driverName: string;
  readonly volumeHandle: string;
  /** The persistent volume's name, or that of the pod's volume. Missing in the file of a staged volume. */
  readonly specVolID?: string;
  readonly nodeName?: string;
  readonly attachmentID?: string;
  readonly volumeLifecycleMode?: "Persistent" | "Ephemeral";
}

/** Replaces the file as a whole, on disk before it returns: a call of the driver follows. */
export async function writeVolumeData(folder: string, data: VolumeData): Promise<void> {
  const path = join(folder, FILE);
  {
    await using file = await open(`${path}.new`, "w", 0o600);
    await file.writeFile(JSON.stringify(data));
    await file.sync();
  }
  await rename(`${path}.new`, path);
  await using parent = await open(folder, "r");
  await parent.sync();
}

/** @returns undefined when there is none. @throws `corrupt` for a file that is not one of ours */
export async function readVolumeData(folder: string): Promise<VolumeData | undefined> {
  const path = join(folder, FILE);
  try {
    if ((await stat(path)).size > MAX_BYTES) throw unreadable(path, "it is too long");
    return parseVolumeData(await readFile(path, "utf8"), path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return undefined;
    throw error;
  }
}

/** @throws `corrupt`, naming `path` */
export function parseVolumeData(text: string, path: string): VolumeData {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw unreadable(path, "it is no JSON", error);
  }
  const { driverName, volumeHandle } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof driverName !== "string" || driverName === "" || typeof volumeHandle !== "string" || volumeHandle === "")
    throw unreadable(path, "it names no driver or no volume");
  return value as VolumeData;
}

const unreadable = (path: string, why: string, cause?: unknown): PicoletError =>
  new PicoletError("corrupt", `cannot read ${path}: ${why}; unmount the volume and remove the file`, { cause });
