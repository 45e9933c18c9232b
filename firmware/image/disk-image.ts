/**
 * The image of a whole card: GPT, the owner's FAT partition with the boot loader, the slots, and a small data
 * partition.
 */
import { copyFileSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Board } from "./boards.ts";
import type { BuildTools } from "./build-tools.ts";
import { uuidOf } from "./identifiers.ts";
import { settleTree } from "./system-tree.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Twice the size of today's system: an update may bring a larger one, and partitions never change. */
export const SLOT_MIB = 768;
/** It grows to the end of the card when a board starts for the first time. */
const DATA_MIB = 8;
const BOOT_STATE_MIB = 1;
const SECTOR = 512;
/** Where `boot-slots` expects the two copies: in different pages of flash. */
const BOOT_STATE_SECTORS = [8, 16];
/** Sectors of a mebibyte: partitions begin at a multiple. */
const SECTORS = 2048;

/** Types of GPT partitions (UEFI 2.10, table 5.7; uapi-group.org's discoverable partitions). */
const EFI_SYSTEM = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
const LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

export interface Partition {
  readonly name: string;
  readonly mib: number;
  readonly type: string;
  /** A file of the tools' work folder that is written to its beginning. */
  readonly content?: string;
}

/** The partitions of every board; `grub.cfg` has their numbers. */
export const grubPartitions = (board: Board): readonly Partition[] => [
  { name: "picolet", mib: board.fatMiB, type: EFI_SYSTEM, content: "fat.img" },
  { name: "boot-state", mib: BOOT_STATE_MIB, type: LINUX, content: "boot-state" },
  { name: "root-a", mib: SLOT_MIB, type: LINUX, content: "slot.img" },
  { name: "root-b", mib: SLOT_MIB, type: LINUX },
  { name: "data", mib: DATA_MIB, type: LINUX, content: "data" },
];

/** @returns its path in the tools' work folder */
export function makeDiskImage(tools: BuildTools, partitions: readonly Partition[], seed: string): string {
  const path = "disk.img";
  writeFileSync(join(tools.work, "data"), "picolet-new\n");
  makeBootState(tools);
  const sum = partitions.reduce((mib, each) => mib + each.mib, 0);
  // The table is in the first mebibyte, its backup in the last.
  tools.run("truncate", [`--size=${sum + 2}M`, path]);
  const lines = ["label: gpt", `label-id: ${uuidOf(seed, "disk")}`, "unit: sectors", `first-lba: ${SECTORS}`];
  let start = 1;
  const places: { readonly start: number; readonly content: string | undefined }[] = [];
  for (const { name, mib, type, content } of partitions) {
    const uuid = uuidOf(seed, `partition ${name}`);
    lines.push(`start=${start * SECTORS}, size=${mib * SECTORS}, type=${type}, uuid=${uuid}, name="${name}"`);
    places.push({ start, content });
    start += mib;
  }
  tools.run("sfdisk", ["--quiet", "--no-reread", "--no-tell-kernel", path], `${lines.join("\n")}\n`);
  for (const { start: place, content } of places)
    if (content !== undefined)
      tools.run("dd", [`if=${content}`, `of=${path}`, "bs=1M", `seek=${place}`, "conv=notrunc,sparse", "status=none"]);
  return path;
}

/**
 * The state of the slots, as `boot-slots` describes it: A is good, and B has nothing. GRUB writes only to files of a
 * file system that it knows, and only their sectors: so this is FAT, whose two files `boot-slots` writes at the same
 * places.
 */
function makeBootState(tools: BuildTools): void {
  const state = { ORDER: "A B", A_OK: 1, B_OK: 0, A_TRY: 0, B_TRY: 0, A_GOOD: 1, B_GOOD: 0, A_BACK: 0, B_BACK: 0 };
  const lines = Object.entries(state).map(([name, value]) => `${name}=${value}\n`);
  const copy = `# GRUB Environment Block\n${lines.join("")}`.padEnd(SECTOR, "#");
  tools.run("truncate", [`--size=${BOOT_STATE_MIB}M`, "boot-state"]);
  // Six reserved sectors, one for the table, one for the folder; clusters of eight sectors begin behind them.
  const layout = ["-F", "12", "-a", "-R", "6", "-f", "1", "-r", "16", "-s", "8"];
  tools.run("mkfs.fat", ["--invariant", ...layout, "-n", "BOOTSTATE", "boot-state"]);
  for (const name of ["first", "second"]) {
    writeFileSync(join(tools.work, name), copy);
    utimesSync(join(tools.work, name), 0, 0);
    tools.run("mcopy", ["-m", "-i", "boot-state", name, "::"]);
  }
  const made = readFileSync(join(tools.work, "boot-state"));
  for (const sector of BOOT_STATE_SECTORS)
    if (made.toString("latin1", sector * SECTOR, (sector + 1) * SECTOR) !== copy)
      throw new PicoletError("internal", `cannot make the boot state: sector ${sector} has none`);
}

/** @param files of the partition, by path */
export function makeFat(
  tools: BuildTools,
  mib: number,
  files: ReadonlyMap<string, string>,
  seed: string,
  epoch: number,
) {
  const folder = join(tools.work, "fat");
  for (const [path, source] of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    copyFileSync(source, join(folder, path));
  }
  settleTree(folder, epoch);
  const serial = uuidOf(seed, "fat").slice(0, 8);
  tools.run("truncate", [`--size=${mib}M`, "fat.img"]);
  tools.run("mkfs.fat", ["--invariant", "-F", "32", "-s", "1", "-i", serial, "-n", "PICOLET", "fat.img"]);
  tools.shell("mcopy -s -m -p -Q -i fat.img $(find fat -mindepth 1 -maxdepth 1 | sort) ::");
  rmSync(folder, { recursive: true });
}

/** Modules that are built into GRUB: it never reads one. */
const GRUB_MODULES = [
  ...["normal", "part_gpt", "fat", "ext2", "loadenv", "test", "echo", "linux", "regexp", "probe"],
  ...["reboot", "sleep", "configfile", "boot", "true", "gzio"],
];

/** @param modules folder of the work folder with Debian's modules @returns the path of GRUB as an EFI program */
export function makeGrub(tools: BuildTools, modules: string, format: string): string {
  const path = "grub.efi";
  tools.run("grub-mkimage", ["-d", modules, "-O", format, "-o", path, "-p", "/EFI/BOOT", ...GRUB_MODULES]);
  return join(tools.work, path);
}

/** The commands that choose the slot. */
export const GRUB_COMMANDS = own("grub/grub.cfg");
