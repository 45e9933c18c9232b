/** Stamps of mounts: a process sees what was meant to be mounted, or reports that it sees something else. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { type MountLaunch, mountStamp } from "../messages/launch.ts";
import { openMounts, StaleMount } from "./mounts.ts";

const stampOf = (path: string): string => mountStamp(statSync(path, { bigint: true }));

/**
 * Opens the mount as a process with this stamp in its launch does.
 * @returns whether the stamp matched
 */
function fits(folder: TempFolder, hostPath: string, stamp: string): boolean {
  const mount: MountLaunch = { guestPath: "/data", hostPath, readOnly: true, stamp };
  try {
    const opened = openMounts([mount], folder.path);
    for (const { directory, files } of opened)
      for (const each of [directory, ...[...files.values()].map((one) => one.file)]) each.release();
    return true;
  } catch (error) {
    assert.ok(error instanceof StaleMount, String(error));
    return false;
  }
}

test("a write to a folder or file keeps its stamp, and a replacement has another one", () => {
  using folder = new TempFolder();
  const [volume, file] = [folder.at("volume"), folder.at("file")];
  mkdirSync(volume);
  writeFileSync(file, "one");
  const [volumeStamp, fileStamp] = [stampOf(volume), stampOf(file)];
  mkdirSync(`${volume}/new`);
  rmSync(`${volume}/new`, { recursive: true });
  writeFileSync(file, "two");
  assert.deepEqual([fits(folder, volume, volumeStamp), fits(folder, file, fileStamp)], [true, true]);
  // The old ones are kept, as a process that still has them mounted keeps them, so that their numbers are not reused.
  for (const path of [volume, file]) renameSync(path, `${path}-old`);
  mkdirSync(volume);
  writeFileSync(file, "two");
  assert.deepEqual([fits(folder, volume, volumeStamp), fits(folder, file, fileStamp)], [false, false]);
});

test("a mount has another stamp than the folder that it hides, and than an earlier mount", (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root may mount");
  using folder = new TempFolder();
  const volume = folder.at("volume");
  mkdirSync(volume);
  const mounted = (): void => void execFileSync("mount", ["-t", "tmpfs", "tmpfs", volume]);
  const hidden = stampOf(volume);
  mounted();
  using _ = { [Symbol.dispose]: () => execFileSync("umount", ["-l", volume]) };
  const first = stampOf(volume);
  assert.deepEqual([fits(folder, volume, hidden), fits(folder, volume, first)], [false, true]);
  mounted();
  using __ = { [Symbol.dispose]: () => execFileSync("umount", ["-l", volume]) };
  assert.equal(fits(folder, volume, first), false);
});
