import { chmodSync, mkdtempSync, rmSync, statfsSync } from "node:fs";

const MEMORY = "/dev/shm";
/** Unit tests keep less than 100 MB of temporary files at once. Below this the disk serves. */
const MIN_FREE_BYTES = 2 ** 30;

/**
 * Makes a folder in memory for the temporary files of unit tests, and removes it when this process ends. On a disk half
 * of a unit test's time is waiting for the disk, and no unit test is about the disk.
 *
 * @returns undefined where the machine has no such memory
 */
export function createMemoryFolder(): string | undefined {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    if (bavail * bsize < MIN_FREE_BYTES) return undefined;
    const folder = mkdtempSync(`${MEMORY}/picolet-unit-`);
    // Some tests check that other users cannot read a file inside it.
    chmodSync(folder, 0o755);
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
    return folder;
  } catch {
    return undefined;
  }
}
