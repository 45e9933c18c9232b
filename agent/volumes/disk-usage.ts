import { execFile } from "node:child_process";
import { setPriority } from "node:os";
import { cancelled } from "../../protocol/async/abort.ts";
import { PicoletError } from "../../protocol/errors.ts";

/** So that the command line stays far below the kernel's 128 KiB for one argument list's string. */
const MAX_PATHS = 64;
/** A folder with millions of files on a slow card; what takes longer is not measured. */
const TIMEOUT_MS = 600_000;
/** 64 lines of a path each. */
const MAX_OUTPUT_BYTES = 1024 * 1024;
/** Everything else comes first. */
const LOWEST_PRIORITY = 19;

/**
 * Bytes that files and folders with all that is in them take on their own file system, as du(1) counts them: in blocks, a file
 * with several names once. What is not there, or goes meanwhile, is missing.
 * @throws `failed` when there is no du
 */
export async function diskUsage(paths: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
  const usage = new Map<string, number>();
  for (let from = 0; from < paths.length; from += MAX_PATHS) {
    const output = await du(paths.slice(from, from + MAX_PATHS), signal);
    for (const line of output.split("\n")) {
      const [, kibibytes, path] = /^(\d+)\t(.+)$/.exec(line) ?? [];
      if (path !== undefined) usage.set(path, Number(kibibytes) * 1024);
    }
  }
  return usage;
}

function du(paths: readonly string[], signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { signal, timeout: TIMEOUT_MS, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT_BYTES } as const;
    const child = execFile("du", ["-skx", "--", ...paths], options, (error, stdout) => {
      if (signal.aborted) reject(cancelled("du"));
      // It ends with 1 when it could not look at everything, and has told what it saw.
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
    // It has ended already.
  }
}
