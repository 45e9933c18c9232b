/** GRUB as an EFI program: it chooses the slot by the state in `boot-state`, and reads kernel and commands from it. */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Board, GrubLoader } from "./boards.ts";
import type { BootLoader } from "./boot-loader.ts";
import type { Tools } from "./build-tools.ts";
import { BOOT_STATE, DATA, makeFat, OWNERS_FILES, ownersPartition, rootPartitions } from "./disk-image.ts";
import { kernelVersion } from "./system-tree.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** The commands that GRUB runs first: they choose the slot. */
export const GRUB_COMMANDS: string = own("grub/grub.cfg");

/** Modules that are built into GRUB: it never reads one. */
const MODULES = [
  ...["normal", "part_gpt", "fat", "ext2", "loadenv", "test", "echo", "linux", "regexp", "probe"],
  ...["reboot", "sleep", "configfile", "boot", "true", "gzio"],
];

export function grubLoader(board: Board, { format, file }: GrubLoader): BootLoader {
  const modules = "grub-modules";
  return {
    table: "gpt",
    // `grub.cfg` has their numbers.
    partitions: [ownersPartition(board), BOOT_STATE, ...rootPartitions(), DATA],
    prepareTree(tools, tree) {
      const from = join(tools.work, tree, "usr/lib/grub");
      if (existsSync(from)) renameSync(from, join(tools.work, modules));
    },
    finishSlot(tools, tree) {
      const boot = join(tools.work, tree, "boot");
      renameSync(join(boot, `vmlinuz-${kernelVersion(join(tools.work, tree))}`), join(boot, "vmlinuz"));
      const words = [...(board.commandLine ?? []), ...board.consoles.map((name) => `console=${name}`)].join(" ");
      const commands = readFileSync(own("grub/slot.cfg"), "utf8").replace("BOARD_WORDS", words);
      writeFileSync(join(boot, "slot.cfg"), commands);
    },
    makeFats(tools, _tree, seed, epoch) {
      const files = new Map(OWNERS_FILES);
      files.set(`EFI/BOOT/${file}`, makeGrub(tools, `${modules}/${format}`, format));
      files.set("EFI/BOOT/grub.cfg", GRUB_COMMANDS);
      makeFat(tools, ownersPartition(board), files, seed, epoch);
    },
  };
}

/** @param modules folder of the work folder with Debian's modules @returns the path of GRUB as an EFI program */
function makeGrub(tools: Tools, modules: string, format: string): string {
  const path = "grub.efi";
  tools.run("grub-mkimage", ["-d", modules, "-O", format, "-o", path, "-p", "/EFI/BOOT", ...MODULES]);
  return join(tools.work, path);
}
