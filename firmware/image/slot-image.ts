/** The image of one slot: the system as ext4, a line with its root hash, and dm-verity's hash tree. */
import { copyFileSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Tools } from "./build-tools.ts";
import { uuidOf } from "./identifiers.ts";
import { kernelVersion, settleTree } from "./system-tree.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const BLOCK = 4096;

/** Drivers that the root may be behind, by module or by folder below the kernel's. */
const BOOT_MODULES = [
  ...[
    "drivers/md/dm-verity.ko*",
    "drivers/md/dm-mod.ko*",
    "drivers/md/dm-bufio.ko*",
    "fs/ext4/*",
    "fs/jbd2/*",
    "fs/mbcache*",
  ],
  ...[
    "drivers/block/{loop,virtio_blk}.ko*",
    "drivers/virtio/*",
    "drivers/nvme/{host,common}/*",
    "drivers/ata/{ahci*,libahci*,libata,ata_piix,ata_generic}.ko*",
  ],
  ...[
    "drivers/scsi/{sd_mod,scsi_mod,scsi_common,virtio_scsi}.ko*",
    "drivers/mmc/**/*.ko*",
    "drivers/usb/{host,storage,common,core,dwc2,dwc3}/*",
  ],
  ...[
    "drivers/{reset,clk,phy,regulator,gpio,pinctrl,soc,mailbox,firmware,pci/controller}/**/*{bcm,brcm,raspberrypi,rp1,meson,rockchip,sunxi,imx}*.ko*",
  ],
  ...[
    "drivers/{gpio/gpio-raspberrypi*,regulator/{fixed,gpio-regulator},pwm/pwm-bcm*,dma/bcm*,char/hw_random/{iproc,bcm,virtio}*}.ko*",
  ],
  // A Raspberry Pi cannot restart without its watchdog.
  ...["drivers/watchdog/bcm2835_wdt.ko*", "drivers/firmware/picolet-tryboot.ko"],
  ...[
    "lib/*crc*",
    "crypto/{crc32c*,crct10dif*,sha256*}.ko*",
    "arch/*/crypto/{crc32c*,crct10dif*,crc*,sha256*}.ko*",
    "lib/reed_solomon/*",
  ],
];

/** The command-line and network parts of `dmsetup` are all that the RAM disk needs of shared libraries. */
const BOOT_PROGRAMS = ["usr/sbin/dmsetup"];

/** Writes `boot/initrd.img` of the tree. */
export function makeInitialRamDisk(tools: Tools, root: string, epoch: number, compress: boolean): void {
  const tree = join(tools.work, root);
  const disk = join(tools.work, "ram-disk");
  for (const folder of ["bin", "dev", "proc", "sys", "run", "root"]) mkdirSync(join(disk, folder), { recursive: true });
  copyFileSync(join(tree, "usr/bin/busybox"), join(disk, "bin/busybox"));
  copyFileSync(own("initrd/init"), join(disk, "init"));
  copyFileSync(own("initrd/choose-slot"), join(disk, "bin/choose-slot"));
  copyFileSync(join(tree, "usr/lib/picolet-image/boot-slots"), join(disk, "bin/boot-slots"));
  for (const program of BOOT_PROGRAMS) copyWithLibraries(tools, tree, program, disk);
  const version = kernelVersion(tree);
  const modules = join("usr/lib/modules", version);
  for (const path of bootModules(join(tree, modules))) {
    const target = join(disk, "lib/modules", version, path);
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(join(tree, modules, path), target);
  }
  for (const name of ["modules.order", "modules.builtin", "modules.builtin.modinfo"])
    copyFileSync(join(tree, modules, name), join(disk, "lib/modules", version, name));
  // The RAM disk is compressed as a whole, and busybox loads what is not.
  tools.shell("find ram-disk/lib/modules -name '*.xz' -exec xz -d {} +");
  tools.run("depmod", ["-b", "ram-disk", version]);
  settleTree(disk, epoch);
  tools.shell(
    `cd ram-disk; find . -mindepth 1 | LC_ALL=C sort | cpio --quiet --reproducible -o -H newc | zstd -q -${compress ? 15 : 1} -T1 > ../${root}/boot/initrd.img`,
  );
  rmSync(disk, { recursive: true });
}

/** Paths below the kernel's folder of modules, with all that they need. */
function bootModules(folder: string): readonly string[] {
  const needs = new Map(
    readFileSync(join(folder, "modules.dep"), "utf8")
      .split("\n")
      .map((line) => line.split(/:? /))
      .map(([path = "", ...others]) => [path.replace(/:$/, ""), others]),
  );
  const wanted = new Set<string>();
  const add = (path: string): void => {
    if (wanted.has(path) || !needs.has(path)) return;
    wanted.add(path);
    for (const other of needs.get(path) ?? []) add(other);
  };
  for (const pattern of BOOT_MODULES) for (const path of globSync(`kernel/${pattern}`, { cwd: folder })) add(path);
  return [...wanted].sort();
}

/** With the libraries that its ELF header names, and those of these, and the loader. */
function copyWithLibraries(tools: Tools, tree: string, path: string, disk: string): void {
  const target = join(disk, path.startsWith("usr/sbin/") ? `bin/${basename(path)}` : path);
  if (existsSync(target)) return;
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(join(tree, path), target);
  const text = readFileSync(join(tree, path)).toString("latin1");
  const loader = /\/(?:usr\/)?(lib(?:64)?\/ld-linux-[a-z0-9-]+\.so\.\d)\0/.exec(text)?.[1];
  if (loader !== undefined) {
    const [real = ""] = globSync(`usr/lib/*-linux-gnu/${basename(loader)}`, { cwd: tree });
    mkdirSync(dirname(join(disk, loader)), { recursive: true });
    copyFileSync(join(tree, real), join(disk, loader));
  }
  for (const name of new Set(text.match(/lib[a-z0-9_+-]+(?:-[0-9.]+)?\.so(?:\.[0-9.]*[0-9])?(?=\0)/gi) ?? [])) {
    const [library] = globSync(`usr/lib/*-linux-gnu/${name}`, { cwd: tree });
    if (library !== undefined) copyWithLibraries(tools, tree, library, disk);
  }
}

export interface SlotImage {
  /** In the tools' work folder. */
  readonly path: string;
  readonly bytes: number;
  readonly rootHash: string;
}

/** @param seed of all identifiers @param root the finished tree, a folder of the tools' work */
export function makeSlotImage(tools: Tools, root: string, seed: string, epoch: number): SlotImage {
  const tree = join(tools.work, root);
  settleTree(tree, epoch);
  const path = "slot.img";
  const { blocks, inodes } = sizeOf(tools, root);
  const uuid = uuidOf(seed, "slot file system");
  tools.run("mke2fs", [
    ...["-q", "-t", "ext4", "-b", String(BLOCK), "-N", String(inodes), "-m", "0", "-L", "root", "-U", uuid],
    ...[
      "-O",
      "^has_journal,^metadata_csum,^metadata_csum_seed,^64bit,^orphan_file,^resize_inode,^dir_index,^huge_file",
    ],
    ...["-E", `hash_seed=${uuid},lazy_itable_init=0,nodiscard,no_copy_xattrs,root_owner=0:0`],
    ...["-d", root, path, String(blocks)],
  ]);
  tools.run("e2fsck", ["-fn", path]);
  const salt = uuidOf(seed, "slot salt").replaceAll("-", "");
  const output = tools.run("veritysetup", [
    ...["format", "--hash=sha256", "--data-block-size=4096", "--hash-block-size=4096", `--salt=${salt}`],
    ...[`--uuid=${uuidOf(seed, "slot verity")}`, `--data-blocks=${blocks}`, `--hash-offset=${(blocks + 1) * BLOCK}`],
    ...[path, path],
  ]);
  const rootHash = /^Root hash:\s+([0-9a-f]{64})$/m.exec(output.toString("utf8"))?.[1] ?? "";
  const line = `picolet-verity 1 ${blocks} ${blocks + 2} sha256 ${rootHash} ${salt}\n`;
  tools.run("dd", [`of=${path}`, `bs=${BLOCK}`, `seek=${blocks}`, "conv=notrunc", "status=none"], line);
  const bytes = Math.ceil(statSync(join(tools.work, path)).size / MEBIBYTE) * MEBIBYTE;
  tools.run("truncate", [`--size=${bytes}`, path]);
  return { path, bytes, rootHash };
}

/** How many blocks and inodes the tree takes as ext4, with little to spare. */
function sizeOf(tools: Tools, root: string): { readonly blocks: number; readonly inodes: number } {
  const inodes = Number(tools.shell(`find ${root} | wc -l`)) + 64;
  const kib = Number(tools.shell(`du -s --apparent-size -B4096 ${root} | cut -f1`));
  const used = Number(tools.shell(`du -s -B4096 ${root} | cut -f1`));
  const data = Math.max(kib, used);
  // Inodes of 256 bytes, bitmaps and descriptors, and extent blocks of large files.
  const blocks = Math.ceil(data * 1.02 + (inodes * 256) / BLOCK + 2048);
  return { blocks: Math.ceil(blocks / 256) * 256, inodes };
}
