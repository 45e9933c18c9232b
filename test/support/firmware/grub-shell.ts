import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { GRUB_COMMANDS } from "@picolet/firmware/image/grub-loader.ts";

/** Sectors of the two copies in the partition `boot-state`, by the names of their files. */
export const STATE_SECTORS = { first: 8, second: 16 } as const;

/**
 * GRUB's commands in grub.cfg as those of sh, with its environment blocks read and written by grub-editenv. Prints the
 * slot that is started.
 */
export function grubAsShell(): string {
  const lines = readFileSync(GRUB_COMMANDS, "utf8")
    .split("\n")
    .map((line) =>
      line
        .replace(/^regexp .*/, "disk=disk")
        .replace(/\bset (?=[A-Za-z_]+=)/g, "")
        .replace(/^probe .*/, "")
        .replace(/^source .*/, "echo $slot; exit")
        .replace(/^echo "picolet: slot.*try.*/, ""),
    );
  return [readFileSync(fileURLToPath(new URL("grub-commands.sh", import.meta.url)), "utf8"), ...lines].join("\n");
}
