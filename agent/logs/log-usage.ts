import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type LogName, parseLogName } from "./log-names.ts";

/** One log file below `podLogsDir`. */
export interface LogFileUsage {
  readonly path: string;
  readonly name: LogName;
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
}

/** The logs of one container: every attempt, every rotation. */
export interface ContainerLogUsage {
  readonly folder: string;
  readonly files: readonly LogFileUsage[];
}

/** Bounds one scan: a node has 110 pods of a few containers with five files each. Entries beyond it are not counted. */
const MAX_ENTRIES = 10_000;

/** `<podLogsDir>/<namespace>_<name>_<uid>/<container>/<attempt>.log…`, of the pods that `owns` says are this node's. */
export async function* containerLogs(
  podLogsDir: string,
  owns: (uid: string) => boolean,
): AsyncGenerator<ContainerLogUsage> {
  for (const pod of await foldersIn(podLogsDir)) {
    if (!owns(pod.slice(pod.lastIndexOf("_") + 1))) continue;
    for (const container of await foldersIn(join(podLogsDir, pod))) {
      const folder = join(podLogsDir, pod, container);
      yield { folder, files: await logFilesIn(folder) };
    }
  }
}

export async function logFilesIn(folder: string): Promise<LogFileUsage[]> {
  const files: LogFileUsage[] = [];
  for (const entry of await entriesOf(folder)) {
    const name = entry.isFile() ? parseLogName(entry.name) : undefined;
    if (name === undefined) continue;
    const path = join(folder, entry.name);
    const stats = await lstat(path).catch(ignoreMissing);
    if (stats !== undefined) files.push({ path, name, sizeBytes: stats.size, modifiedAtMs: stats.mtimeMs });
  }
  return files;
}

async function foldersIn(folder: string): Promise<string[]> {
  return (await entriesOf(folder)).filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

async function entriesOf(folder: string): ReturnType<typeof listed> {
  return (await listed(folder)).slice(0, MAX_ENTRIES);
}

const listed = (folder: string) =>
  readdir(folder, { withFileTypes: true }).catch((error: unknown) => ignoreMissing(error) ?? []);

export function ignoreMissing(error: unknown): undefined {
  const code = errnoOf(error);
  if (code === "ENOENT" || code === "ENOTDIR") return undefined;
  throw error;
}
