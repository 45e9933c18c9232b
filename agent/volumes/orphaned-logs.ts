import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Mounter } from "./files/mounter.ts";
import { removeTree } from "./files/remove-tree.ts";

/** Logs that were written to since are kept: a pod of another agent may be known to none of our runtimes. */
const QUIET = seconds(24 * 3600);
/** Bounds the pods and files that one sweep reads; a node has 110 pods. Others wait for the next one. */
const MAX_ENTRIES = 10_000;
const POD_FOLDER = /^[a-z0-9.-]+_[a-z0-9.-]+_([A-Za-z0-9.-]+)$/;

export interface OrphanedLogsComponents {
  readonly adapters: readonly RuntimeAdapter[];
  readonly mounter: Pick<Mounter, "mountPointsWithin">;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Removes logs whose pod has no folder any more: those of a lost root directory, or of a removed agent. Logs of pods
 * that a runtime has for another program stay; without a runtime that lists such pods all logs stay.
 * @param known every uid that this node knows
 * @returns the uids of the pods whose logs were removed
 */
export async function sweepOrphanedLogs(
  { adapters, mounter, clock, log }: OrphanedLogsComponents,
  podLogsDir: string,
  known: Pick<ReadonlySet<string>, "has">,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const entries = (await readdir(podLogsDir, { withFileTypes: true })).slice(0, MAX_ENTRIES);
  const unknown = entries.flatMap((entry) => {
    const { name } = entry;
    const uid = entry.isDirectory() ? POD_FOLDER.exec(name)?.[1] : undefined;
    return uid === undefined || known.has(uid) ? [] : [{ uid, folder: join(podLogsDir, name) }];
  });
  if (unknown.length === 0) return [];
  const told = await Promise.all(adapters.map(async (adapter) => (await adapter.everyPod?.(signal)) ?? new Set()));
  if (!adapters.some(({ everyPod }) => everyPod !== undefined)) return [];
  const removed: string[] = [];
  for (const { uid, folder } of unknown) {
    if (known.has(uid) || told.some((uids) => uids.has(uid))) continue;
    if (clock.wall().getTime() - (await lastWriteIn(folder)) < QUIET) continue;
    try {
      await removeTree(folder, (path) => mounter.mountPointsWithin(path), signal);
      removed.push(uid);
    } catch (error) {
      if (isCancelled(error)) throw error;
      log.warn("cannot remove the logs of an unknown pod", { pod: uid, error: describeError(error) });
    }
  }
  return removed;
}

/** @returns milliseconds since the epoch; a file that cannot be read counts as written to just now */
async function lastWriteIn(folder: string): Promise<number> {
  try {
    const entries = await readdir(folder, { recursive: true });
    const paths = [folder, ...entries.slice(0, MAX_ENTRIES).map((entry) => join(folder, entry))];
    const times = await Promise.all(paths.map(async (path) => (await lstat(path)).mtimeMs));
    return Math.max(...times);
  } catch (error) {
    return errnoOf(error) === "ENOENT" ? 0 : Number.POSITIVE_INFINITY;
  }
}
