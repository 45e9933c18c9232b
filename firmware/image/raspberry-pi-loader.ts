/**
 * A Raspberry Pi's own firmware. `autoboot.txt` on the first partition names the partition of the slot that boots, and
 * the one that boots once where the tryboot flag is set. Each slot has a FAT partition with kernel, RAM disk, device
 * trees and firmware: a copy of `/boot/firmware` of its system.
 */
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Board, RaspberryPiLoader } from "./boards.ts";
import type { BootLoader } from "./boot-loader.ts";
import type { PackageLock } from "./debian-packages.ts";
import {
  BOOT_STATE,
  DATA,
  FAT,
  makeFat,
  OWNERS_FILES,
  ownersPartition,
  type Partition,
  placesOf,
  rootPartitions,
} from "./disk-image.ts";
import { diskIdOf } from "./identifiers.ts";
import { kernelVersion } from "./system-tree.ts";
import { trybootModule } from "./tryboot-module.ts";

/** Files of Debian's raspi-firmware: models with BCM2837 (3, Zero 2 W, CM3), and with BCM2711 (4, 400, CM4). */
const FIRMWARE = ["start.elf", "fixup.dat", "start4.elf", "fixup4.dat"];
/** Radios of the boards. */
const RADIOS = /^(?:brcm\/brcmfmac434|cypress\/cyfmac434)/;
/** The firmware reads so much of it, and a card writes so much at once or not at all. */
const AUTOBOOT_BYTES = 512;

export function raspberryPiLoader(board: Board, { bootMiB }: RaspberryPiLoader, lock: PackageLock): BootLoader {
  const bootPartition = (slot: "a" | "b", content?: string): Partition => ({
    ...{ name: `boot-${slot}`, mib: bootMiB, type: FAT },
    ...(content === undefined ? {} : { content }),
  });
  const bootA = bootPartition("a", "boot-a.img");
  // The firmware finds boot partitions best in the four entries of the MBR itself.
  const partitions = [
    ...[ownersPartition(board), bootA, bootPartition("b")],
    ...[BOOT_STATE, ...rootPartitions(), DATA],
  ];
  const numberOf = (name: string): number =>
    placesOf(partitions, "dos").find((place) => place.partition.name === name)?.number ?? 0;
  return {
    table: "dos",
    partitions,
    prepareTree(tools, tree) {
      const root = join(tools.work, tree);
      const kernel = kernelVersion(root);
      const drivers = join(root, "usr/lib/modules", kernel, "kernel/drivers/firmware");
      mkdirSync(drivers, { recursive: true });
      cpSync(trybootModule(board, kernel, lock).path, join(drivers, "picolet-tryboot.ko"));
      for (const path of globSync("usr/lib/firmware/{brcm,cypress}/*", { cwd: root }))
        if (!RADIOS.test(path.slice("usr/lib/firmware/".length))) rmSync(join(root, path));
      const lines = placesOf(partitions, "dos").map(({ number, partition }) => `${number} ${partition.name}\n`);
      mkdirSync(join(root, "usr/lib/picolet-image"), { recursive: true });
      writeFileSync(join(root, "usr/lib/picolet-image/partitions"), lines.join(""));
    },
    finishSlot(tools, tree) {
      const root = join(tools.work, tree);
      const firmware = join(root, "boot/firmware");
      mkdirSync(firmware, { recursive: true });
      const kernel = kernelVersion(root);
      const places = [join(root, "boot", `vmlinuz-${kernel}`), join(root, "usr/lib/modules", kernel, "vmlinuz")];
      const image = places.find((path) => existsSync(path)) ?? "";
      // The firmware unpacks it: fewer bytes are read from the card.
      writeFileSync(join(firmware, "kernel8.img"), gzipSync(readFileSync(image), { level: 9 }));
      rmSync(image);
      renameSync(join(root, "boot/initrd.img"), join(firmware, "initrd.img"));
      // Kernels after 6.12 have them beside their modules.
      const trees = ["usr/lib/linux-image-*", `usr/lib/modules/${kernel}/dtb`];
      for (const path of globSync(
        trees.map((each) => `${each}/broadcom/bcm2{711,712,837}*-rpi-*.dtb`),
        { cwd: root },
      ))
        cpSync(join(root, path), join(firmware, basename(path)), { dereference: true });
      for (const path of globSync([...trees, `usr/lib/modules/${kernel}/{config,System.map}`], { cwd: root }))
        rmSync(join(root, path), { recursive: true });
      for (const name of FIRMWARE) cpSync(join(root, "usr/lib/raspi-firmware", name), join(firmware, name));
      renameSync(join(root, "usr/lib/raspi-firmware/bootcode.bin"), join(tools.work, "bootcode.bin"));
      rmSync(join(root, "usr/lib/raspi-firmware"), { recursive: true });
      writeFileSync(join(firmware, "config.txt"), CONFIG);
      writeFileSync(join(root, "boot/cmdline.txt"), commandLine(board));
    },
    makeFats(tools, tree, seed, epoch) {
      const owners = new Map(OWNERS_FILES);
      const autoboot = join(tools.work, "autoboot.txt");
      writeFileSync(autoboot, autobootText(numberOf("boot-a"), numberOf("boot-b")));
      owners.set("autoboot.txt", autoboot);
      owners.set("bootcode.bin", join(tools.work, "bootcode.bin"));
      makeFat(tools, ownersPartition(board), owners, seed, epoch);
      const firmware = join(tools.work, tree, "boot/firmware");
      const files = new Map(
        globSync("**/*", { cwd: firmware, withFileTypes: true })
          .filter((entry) => entry.isFile())
          .map((entry) => join(entry.parentPath, entry.name))
          .map((path) => [path.slice(firmware.length + 1), path]),
      );
      const commands = join(tools.work, "cmdline.txt");
      const template = readFileSync(join(dirname(firmware), "cmdline.txt"), "utf8");
      writeFileSync(commands, slotCommandLine(template, "A", diskIdOf(seed), numberOf));
      files.set("cmdline.txt", commands);
      makeFat(tools, bootA, files, seed, epoch);
    },
  };
}

/** Debian's names of device trees (`upstream_kernel`), and the kernel's own serial ports. */
const CONFIG = `# Of this system: an update replaces it.
arm_64bit=1
enable_uart=1
upstream_kernel=1
disable_splash=1
kernel=kernel8.img
initramfs initrd.img followkernel
`;

/**
 * `write-boot-files` fills in @SLOT@, @ROOT@ and @STATE@ for the slot that it writes.
 * cgroup_enable: device trees of Raspberry Pi's own kernels switch the memory cgroup off.
 */
function commandLine(board: Board): string {
  const consoles = board.consoles.map((name) => `console=${name}`).join(" ");
  const slot = "picolet.root=@ROOT@ picolet.boot-state=@STATE@ rauc.slot=@SLOT@";
  return `${slot} ro quiet panic=10 oops=panic cgroup_enable=memory ${consoles}\n`;
}

function slotCommandLine(
  template: string,
  slot: "A" | "B",
  diskId: string,
  numberOf: (name: string) => number,
): string {
  const partition = (name: string): string => `${diskId}-${numberOf(name).toString(16).padStart(2, "0")}`;
  const root = partition(`root-${slot.toLowerCase()}`);
  return template.replace("@SLOT@", slot).replace("@ROOT@", root).replace("@STATE@", partition("boot-state"));
}

/** One sector, so that `commit-slot` replaces it in one write. */
function autobootText(slot: number, other: number): string {
  const text = `[all]\ntryboot_a_b=1\nboot_partition=${slot}\n[tryboot]\nboot_partition=${other}\n`;
  return `${text}#`.padEnd(AUTOBOOT_BYTES - 1, "#").concat("\n");
}
