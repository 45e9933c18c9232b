import { closeSync, fchownSync, openSync } from "node:fs";
import type { ContainerFile } from "./state-files.ts";

const LOG_MODE = 0o640;

/**
 * Created before anything is written, so that a reader that follows it finds it. The runner owns it, and may not be
 * root.
 */
export function createLog({ logPath, identity }: ContainerFile): void {
  const fd = openSync(logPath, "a", LOG_MODE);
  try {
    if (identity !== undefined) fchownSync(fd, identity.uid, identity.gid);
  } finally {
    closeSync(fd);
  }
}
