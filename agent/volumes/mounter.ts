import { readFileSync } from "node:fs";
import { cancelled } from "../../protocol/async/abort.ts";
import { PicoletError } from "../../protocol/errors.ts";
import { mountPointsWithin, parseMountInfo } from "../core/mount-info.ts";

/** A local mount takes milliseconds; this is for a board that is swapping, and for a file system that hangs. */
const MOUNT_TIMEOUT_MS = 30_000;
/** The longest a bind mount, which no disk is asked for, may hold up the agent. */
const BIND_TIMEOUT_MS = 5_000;
/** So that the command line stays far below the kernel's 128 KiB for one argument list's string. */
const UNMOUNT_BATCH = 16;

/** Mounting is left to mount(8) and umount(8) of util-linux: Node has no such system call. */
export interface Mounter {
  /** Whether this process may mount at all. */
  readonly allowed: boolean;
  /** @param sizeBytes `undefined`: the kernel's half of all memory */
  mountTmpfs(target: string, sizeBytes: number | undefined, signal: AbortSignal): Promise<void>;
  /** Shows what `source` is at `target`, which exists. `source` is not made canonical: a path through /proc/<pid>/fd stays one. */
  bind(source: string, target: string): void;
  unmountNow(target: string): void;
  /** What is mounted on `folder` (a canonical path) and below, what lies on top first. */
  mountPointsWithin(folder: string): readonly string[];
  /** In this order. @throws `unavailable`, to be tried again, when one is busy */
  unmount(targets: readonly string[], signal: AbortSignal): Promise<void>;
}

export class SystemMounter implements Mounter {
  readonly allowed: boolean = mayMount(readFileSync("/proc/self/status", "utf8"));

  async mountTmpfs(target: string, sizeBytes: number | undefined, signal: AbortSignal): Promise<void> {
    const options = ["mode=0777", ...(sizeBytes === undefined ? [] : [`size=${sizeBytes}`])].join(",");
    await run("mount", ["-c", "-t", "tmpfs", "-o", options, "tmpfs", target], signal);
  }

  bind(source: string, target: string): void {
    runNow("mount", ["-c", "--bind", source, target]);
  }

  unmountNow(target: string): void {
    runNow("umount", ["-c", target]);
  }

  mountPointsWithin(folder: string): readonly string[] {
    return mountPointsWithin(parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")), folder);
  }

  async unmount(targets: readonly string[], signal: AbortSignal): Promise<void> {
    for (let from = 0; from < targets.length; from += UNMOUNT_BATCH)
      await run("umount", ["-c", ...targets.slice(from, from + UNMOUNT_BATCH)], signal);
  }
}

/** Root in a container often lacks it: CAP_SYS_ADMIN, bit 21 of the effective capabilities (capabilities(7)). */
function mayMount(status: string): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0";
  return (BigInt(`0x${effective}`) & (1n << 21n)) !== 0n;
}

/** Loaded when it is needed, 0.5 MiB: most pods mount nothing. */
const childProcess = (): typeof import("node:child_process") => process.getBuiltinModule("node:child_process");

function run(command: string, args: readonly string[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    childProcess().execFile(
      command,
      args,
      { signal, timeout: MOUNT_TIMEOUT_MS, killSignal: "SIGKILL" },
      (error, _, stderr) => {
        if (error === null) resolve();
        else if (signal.aborted) reject(cancelled(command));
        else reject(failure(command, args, stderr.trim() === "" ? error : new Error(stderr.trim())));
      },
    );
  });
}

function runNow(command: string, args: readonly string[]): void {
  const result = childProcess().spawnSync(command, args, {
    timeout: BIND_TIMEOUT_MS,
    killSignal: "SIGKILL",
    encoding: "utf8",
  });
  if (result.error !== undefined) throw failure(command, args, result.error);
  if (result.status !== 0)
    throw failure(command, args, new Error(result.stderr.trim() || `exit code ${result.status}`));
}

function failure(command: string, args: readonly string[], cause: Error): PicoletError {
  return new PicoletError("unavailable", `cannot ${command} ${args.at(-1) ?? ""}`, { cause, retryable: true });
}
