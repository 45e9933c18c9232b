import { closeSync, fchownSync, openSync } from "node:fs";
import type { ContainerFile } from "./state-files.ts";

const LOG_MODE = 0o640;

/**
 * There before anything is written, so that who follows it finds it; the runner's own, who may not be root any more.
 */
export function createLog({ logPath, identity }: ContainerFile): void {
  const fd = openSync(logPath, "a", LOG_MODE);
  try {
    if (identity !== undefined) fchownSync(fd, identity.uid, identity.gid);
  } finally {
    closeSync(fd);
  }
}
