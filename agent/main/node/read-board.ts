import { existsSync, statfsSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { dirname } from "node:path";
import type { Board } from "../../config/board-defaults.ts";
import { maxPids, swapBytes } from "../../node/machine.ts";

/** Reads the facts against which the configuration is validated. @param rootDir need not exist */
export async function readBoard(rootDir: string): Promise<Board> {
  let folder = rootDir;
  while (!existsSync(folder) && dirname(folder) !== folder) folder = dirname(folder);
  const { blocks, bsize } = statfsSync(folder);
  return {
    memoryBytes: totalmem(),
    cpus: cpus().length,
    maxPids: await maxPids(),
    ephemeralStorageBytes: blocks * bsize,
    swapBytes: await swapBytes(),
    unifiedCgroups: existsSync("/sys/fs/cgroup/cgroup.controllers"),
  };
}
