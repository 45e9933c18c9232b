import { execFile } from "node:child_process";
import { setPriority } from "node:os";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DiskUsage } from "../../core/node/usage.ts";

/**
 * A pod has some five, of up to 300 bytes: so many are far below the 2 MiB that a command line can have, and 50 pods
 * are one call.
 */
const MAX_PATHS = 512;
/** A folder with millions of files on a slow card; what takes longer is not measured. */
const TIMEOUT_MS = 600_000;
/** 512 lines of a path each. */
const MAX_OUTPUT_BYTES = MEBIBYTE;
/** The nice value of the lowest priority. */
const LOWEST_PRIORITY = 19;

/**
 * Measures files and folders with all that is in them, as du(1) does: in blocks, a file with several names once, mounts
 * within them not at all. A path that is missing, or is removed meanwhile, is missing in the result.
 * @throws `failed` when there is no du
 */
export async function diskUsage(
  paths: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, DiskUsage>> {
  const usage = new Map<string, DiskUsage>();
  for (let from = 0; from < paths.length; from += MAX_PATHS) {
    const some = paths.slice(from, from + MAX_PATHS);
    const blocks = counts(await du("-k", some, signal));
    // Another run over what the kernel has in memory by now. BusyBox' du cannot count them.
    const inodes = counts(await du("--inodes", some, signal).catch(withoutInodes));
    for (const [path, kibibytes] of blocks)
      usage.set(path, { bytes: kibibytes * KIBIBYTE, inodes: inodes.get(path) ?? 0 });
  }
  return usage;
}

function counts(output: string): ReadonlyMap<string, number> {
  const lines = output.split("\n").map((line) => line.split("\t"));
  return new Map(lines.flatMap(([count, path]) => (path === undefined ? [] : [[path, Number(count)] as const])));
}

function withoutInodes(error: unknown): string {
  if (isCancelled(error)) throw error;
  return "";
}

function du(what: "-k" | "--inodes", paths: readonly string[], signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { signal, timeout: TIMEOUT_MS, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT_BYTES } as const;
    const child = execFile("du", ["-sx", what, "--", ...paths], options, (error, stdout) => {
      if (signal.aborted) reject(cancelled("du"));
      // The exit code is 1 when it could not read everything; its output has what it could.
      else if (error === null || error.code === 1) resolve(stdout);
      else
        reject(new PicoletError("failed", "cannot measure what pods take on disk", { cause: error, retryable: true }));
    });
    if (child.pid !== undefined) lower(child.pid);
  });
}

function lower(pid: number): void {
  try {
    setPriority(pid, LOWEST_PRIORITY);
  } catch {
    ignore("the process has ended already");
  }
}
