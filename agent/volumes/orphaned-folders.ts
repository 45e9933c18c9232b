import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { PodPaths } from "./files/pod-paths.ts";

export interface OrphanedFoldersComponents {
  readonly paths: PodPaths;
  /** Removes all that the disk has of that pod, with these folders of logs. */
  readonly remove: (uid: string, logs: readonly string[], signal: AbortSignal) => Promise<void>;
  readonly log: Log;
}

/** Bounds the pod folders and log folders that one sweep reads; a node has 110 pods. Others wait for the next start. */
const MAX_SWEPT = 10_000;

/** Removes the folders of unknown pods. @returns the uids of the pods removed. @throws `cancelled`, `failed` */
export async function sweepOrphanedFolders(
  { paths, remove, log }: OrphanedFoldersComponents,
  known: Pick<ReadonlySet<string>, "has">,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const orphans = (await foldersIn(paths.podsDir)).filter((uid) => !known.has(uid));
  if (orphans.length === 0) return [];
  const logs = await foldersIn(paths.podLogsDir);
  const removed: string[] = [];
  for (const uid of orphans) {
    const own = logs.filter((name) => name.endsWith(`_${uid}`)).map((name) => join(paths.podLogsDir, name));
    try {
      await remove(uid, own, signal);
      removed.push(uid);
    } catch (error) {
      if (isCancelled(error)) throw error;
      log.warn("cannot remove the folder of an orphaned pod", { pod: uid, error: describeError(error) });
    }
  }
  return removed;
}

/** Names of the folders in `folder`, links not among them; none when it is not there. */
async function foldersIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    if (errnoOf(error) === "ENOENT") return [];
    throw new PicoletError("failed", `cannot list ${folder}`, { cause: error, retryable: true });
  });
  return entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .slice(0, MAX_SWEPT);
}
