/**
 * The image of a whole card: partition table, the owner's FAT partition, what the boot loader needs, the slots, and a
 * small data partition.
 */
import { copyFileSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Board } from "./boards.ts";
import type { Tools } from "./build-tools.ts";
import { diskIdOf, uuidOf } from "./identifiers.ts";
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

export type PartitionTable = "gpt" | "dos";

/** An EFI system partition in GPT, FAT32 with LBA in an MBR. */
export const FAT = EFI_SYSTEM;
export const ownersPartition = (board: Board): Partition => ({
  ...{ name: "picolet", mib: board.fatMiB, type: FAT, content: "picolet.img" },
});
export const BOOT_STATE: Partition = { name: "boot-state", mib: BOOT_STATE_MIB, type: LINUX, content: "boot-state" };
export const rootPartitions = (): readonly Partition[] => [
  { name: "root-a", mib: SLOT_MIB, type: LINUX, content: "slot.img" },
  { name: "root-b", mib: SLOT_MIB, type: LINUX },
];
export const DATA: Partition = { name: "data", mib: DATA_MIB, type: LINUX, content: "data" };
/** Files that the owner finds on the first partition. */
export const OWNERS_FILES: readonly (readonly [string, string])[] = [
  ["picolet.yaml", own("../first-boot/picolet.yaml")],
];

export interface Place {
  readonly partition: Partition;
  readonly number: number;
  /** In mebibytes. */
  readonly start: number;
}

/** An MBR has so many primary partitions beside the extended one. */
const PRIMARIES = 3;
const EXTENDED = 4;

/** The first mebibyte has the table. Each partition in the extended one has its link in the mebibyte before it. */
export function placesOf(partitions: readonly Partition[], table: PartitionTable): readonly Place[] {
  let start = 1;
  return partitions.map((partition, index) => {
    const isLogical = table === "dos" && index >= PRIMARIES;
    if (isLogical) start += 1;
    const place = { partition, number: index + 1 + Number(isLogical), start };
    start += partition.mib;
    return place;
  });
}

/** The lines of sfdisk(8). */
function tableText(places: readonly Place[], table: PartitionTable, seed: string, end: number): string {
  const sectors = (mib: number): number => mib * SECTORS;
  if (table === "gpt") {
    const lines = places.map(({ partition: { name, mib, type }, start }) => {
      const uuid = uuidOf(seed, `partition ${name}`);
      return `start=${sectors(start)}, size=${sectors(mib)}, type=${type}, uuid=${uuid}, name="${name}"`;
    });
    const head = ["label: gpt", `label-id: ${uuidOf(seed, "disk")}`, "unit: sectors", `first-lba: ${SECTORS}`];
    return [...head, ...lines, ""].join("\n");
  }
  const logical = places.findIndex(({ number }) => number > EXTENDED);
  const lines = places.map(({ partition: { mib, type }, start }) => {
    const code = type === FAT ? "c" : "83";
    return `start=${sectors(start)}, size=${sectors(mib)}, type=${code}`;
  });
  const from = (places[logical]?.start ?? end) - 1;
  lines.splice(logical, 0, `start=${sectors(from)}, size=${sectors(end - from)}, type=f`);
  return ["label: dos", `label-id: 0x${diskIdOf(seed)}`, "unit: sectors", ...lines, ""].join("\n");
}

/** @returns its path in the tools' work folder */
export function makeDiskImage(
  tools: Tools,
  { table, partitions }: { readonly table: PartitionTable; readonly partitions: readonly Partition[] },
  seed: string,
): string {
  const path = "disk.img";
  writeFileSync(join(tools.work, "data"), "picolet-new\n");
  makeBootState(tools);
  const places = placesOf(partitions, table);
  const end = Math.max(...places.map(({ start, partition }) => start + partition.mib));
  // GPT has a backup in the last mebibyte.
  tools.run("truncate", [`--size=${end + 1}M`, path]);
  tools.run("sfdisk", ["--quiet", "--no-reread", "--no-tell-kernel", path], tableText(places, table, seed, end));
  for (const { start, partition } of places)
    if (partition.content !== undefined)
      tools.run("dd", [
        ...[`if=${partition.content}`, `of=${path}`, "bs=1M", `seek=${start}`, "conv=notrunc,sparse", "status=none"],
      ]);
  return path;
}

/**
 * The state of the slots, as `boot-slots` describes it: A is good, and B has nothing. GRUB writes only to files of a
 * file system that it knows, and only their sectors: so this is FAT, whose two files `boot-slots` writes at the same
 * places.
 */
function makeBootState(tools: Tools): void {
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

/**
 * Makes the file that a FAT partition names as its content.
 * @param files of the partition, by path
 */
export function makeFat(
  tools: Tools,
  { name, mib, content }: Partition,
  files: ReadonlyMap<string, string>,
  seed: string,
  epoch: number,
): void {
  const folder = join(tools.work, "fat");
  for (const [path, source] of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    copyFileSync(source, join(folder, path));
  }
  settleTree(folder, epoch);
  const image = content ?? "";
  const serial = uuidOf(seed, name === "picolet" ? "fat" : `fat ${name}`).slice(0, 8);
  tools.run("truncate", [`--size=${mib}M`, image]);
  const options = ["--invariant", "-F", "32", "-s", "1", "-i", serial, "-n", name.toUpperCase()];
  tools.run("mkfs.fat", [...options, image]);
  tools.shell(`mcopy -s -m -p -Q -i ${image} $(find fat -mindepth 1 -maxdepth 1 | sort) ::`);
  rmSync(folder, { recursive: true });
}
