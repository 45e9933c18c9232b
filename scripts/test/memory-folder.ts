import { chmodSync, mkdtempSync, readdirSync, statfsSync } from "node:fs";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import { removeWithMounts } from "@picolet/test/support/unit/machine/mount-folder.ts";
import { isAbandoned, writeOwner } from "@picolet/test/support/unit/machine/owner-file.ts";

const MEMORY = "/dev/shm";
const PREFIX = `${MEMORY}/picolet-unit-`;
/** Unit tests keep less than 100 MB of temporary files at once. Below this the disk serves. */
const MIN_FREE_BYTES = GIBIBYTE;

/**
 * Makes a folder in memory for the temporary files of unit tests, and removes it when this process ends; the next one
 * removes that of a process that was killed. On a disk half of a unit test's time is waiting for the disk, and no unit
 * test is about the disk.
 *
 * @returns undefined where the machine has no such memory
 */
export function createMemoryFolder(): string | undefined {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    if (bavail * bsize < MIN_FREE_BYTES) return undefined;
    const others = readdirSync(MEMORY).map((name) => `${MEMORY}/${name}`);
    for (const other of others) if (other.startsWith(PREFIX) && isAbandoned(other)) removeWithMounts(other);
    const folder = mkdtempSync(PREFIX);
    writeOwner(folder);
    // Some tests check that other users cannot read a file inside it.
    chmodSync(folder, 0o755);
    process.on("exit", () => removeWithMounts(folder));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
    return folder;
  } catch {
    return undefined;
  }
}
