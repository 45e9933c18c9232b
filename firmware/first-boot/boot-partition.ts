/** The FAT partition that the owner edits: found by its label, and mounted only while it is read or written. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { DurableFiles } from "./durable-files.ts";

export interface BootPartition {
  /** @throws `unavailable` when it cannot be mounted */
  use<T>(access: "read" | "write", task: (folder: string) => T | Promise<T>): Promise<T>;
}

/** The first is that of the disk that was booted, where another disk has a partition of the same name. */
const DEVICES = ["/run/picolet-disk/picolet", "/dev/disk/by-partlabel/picolet"];
const FOLDER = "/boot/picolet";
/** A card that answers more slowly than this is broken. */
const MOUNT_LIMIT = seconds(60);

export class MountedPartition implements BootPartition {
  async use<T>(access: "read" | "write", task: (folder: string) => T | Promise<T>): Promise<T> {
    const device = DEVICES.find((each) => existsSync(each));
    if (device === undefined) throw new PicoletError("unavailable", "there is no partition with the label picolet");
    mkdirSync(FOLDER, { recursive: true });
    const options = `${access === "read" ? "ro" : "rw"},nodev,nosuid,noexec,umask=0077,utf8=1`;
    run("mount", ["-t", "vfat", "-o", options, device, FOLDER]);
    try {
      return await task(FOLDER);
    } finally {
      run("umount", [FOLDER]);
    }
  }
}

/** A folder that is there all the time, such as a partition that was mounted before. */
export class FolderPartition implements BootPartition {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async use<T>(_: "read" | "write", task: (folder: string) => T | Promise<T>): Promise<T> {
    return await task(this.#folder);
  }
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8", timeout: MOUNT_LIMIT });
  if (status !== 0)
    throw new PicoletError("unavailable", `${command} ${args.join(" ")} failed: ${stderr?.trim() ?? ""}`, {
      cause: error,
    });
}

const BOARD_FILE = "picolet.yaml";
/** Whole when `picolet.yaml` is not there: the power was cut while one replaced the other. */
const NEXT_BOARD_FILE = "picolet.yaml.new";
/** Windows hides the last ending, so that its editors make these. */
const MISNAMED = ["picolet.yaml.txt", "picolet.yml", "picolet.yml.txt", "picolet.txt"];

export interface FoundBoardFile {
  /** Undefined: there is none. */
  readonly bytes: Buffer | undefined;
  readonly notes: readonly string[];
}

/** @param limit bytes that are read at most */
export function findBoardFile(files: DurableFiles, folder: string, limit: number): FoundBoardFile {
  const names = files.list(folder);
  // FAT keeps upper and lower case, and does not tell them apart.
  const named = (wanted: string): string | undefined => names.find((each) => each.toLowerCase() === wanted);
  const read = (name: string): Buffer | undefined => files.read(`${folder}/${name}`, limit);
  const right = named(BOARD_FILE) ?? named(NEXT_BOARD_FILE);
  const wrong = MISNAMED.map(named).filter((each) => each !== undefined);
  if (right !== undefined)
    return {
      bytes: read(right),
      notes: wrong.map((name) => `${name} is not read: there is a ${BOARD_FILE} beside it`),
    };
  const [first] = wrong;
  if (first === undefined) return { bytes: undefined, notes: [`there is no ${BOARD_FILE}`] };
  return {
    bytes: read(first),
    notes: [`${first} is read: its right name is ${BOARD_FILE} (Windows hides the ending .txt)`],
  };
}

/**
 * FAT has no journal: the new file is on disk before its name takes the place of the old one. A file of a wrong name
 * that was read instead goes, so that the token is nowhere any more.
 */
export function rewriteBoardFile(files: DurableFiles, folder: string, content: Uint8Array): void {
  const names = files.list(folder);
  const isMisnamed = !names.some((each) => [BOARD_FILE, NEXT_BOARD_FILE].includes(each.toLowerCase()));
  const read = isMisnamed ? names.find((each) => MISNAMED.includes(each.toLowerCase())) : undefined;
  files.write(`${folder}/${NEXT_BOARD_FILE}`, content, 0o644);
  files.syncFolder(folder);
  files.rename(`${folder}/${NEXT_BOARD_FILE}`, `${folder}/${BOARD_FILE}`);
  files.syncFolder(folder);
  if (read !== undefined) files.remove(`${folder}/${read}`);
}
