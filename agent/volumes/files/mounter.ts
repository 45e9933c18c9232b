import { execFile, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type MountEntry, mountPointsWithin, parseMountInfo } from "../../core/node/mount-info.ts";

/** A local mount takes milliseconds; this is for a board that is swapping, and for a file system that hangs. */
const MOUNT_TIMEOUT_MS = 30_000;
/** A server that is away: mount.nfs tries for two minutes by itself; the pod's worker tries again. */
const NETWORK_MOUNT_TIMEOUT_MS = 130_000;
/** Where mount(8) looks for its helpers. */
const HELPER_FOLDERS = ["/sbin", "/usr/sbin", "/usr/bin"];
/** The longest a bind mount, which no disk is asked for, may hold up the agent. */
const BIND_TIMEOUT_MS = 5_000;
/** Making a file system on a slow card. */
const FORMAT_TIMEOUT_MS = 600_000;
/** The exit code of blkid(8) for a device without content that it knows. */
const BLKID_NOTHING = 2;
/** The first kernel whose tmpfs knows `noswap`. */
const NOSWAP_SINCE = [6, 4] as const;
/** Keeps a command line far below the kernel's limit of 128 KiB for a string of the arguments. */
const UNMOUNT_BATCH = 16;

/** Mounting is left to mount(8) and umount(8) of util-linux: Node has no such system call. */
export interface Mounter {
  /** True when this process may mount. */
  readonly allowed: boolean;
  /**
   * Never swapped out where the kernel can promise that. @param sizeBytes `undefined`: the kernel's half of all memory
   */
  mountTmpfs(target: string, sizeBytes: number | undefined, signal: AbortSignal): Promise<void>;
  /** @param pageSize as the kernel writes it: `2M` */
  mountHugePages(target: string, pageSize: string, signal: AbortSignal): Promise<void>;
  /** A file system on a block device, which gets one of `type` (mkfs) when it has none at all. */
  mountDevice(
    device: string,
    target: string,
    type: string,
    options: readonly string[],
    signal: AbortSignal,
  ): Promise<void>;
  /**
   * A file system of another machine, by the host's helper program `mount.<type>`.
   * @throws `unavailable`, naming the helper where this node has none
   */
  mountNetwork(
    source: string,
    target: string,
    type: string,
    options: readonly string[],
    signal: AbortSignal,
  ): Promise<void>;
  /** As `bind`, for what may take longer. @param options `ro` and what else mount(8) takes for a bind mount */
  bindVolume(source: string, target: string, options: readonly string[], signal: AbortSignal): Promise<void>;
  /**
   * What is mounted below `folder` from now on is seen wherever it is mounted. It becomes a mount point unless it is
   * one.
   */
  share(folder: string, signal: AbortSignal): Promise<void>;
  /** All mounts of this process's mount namespace, in the kernel's order. */
  mounts(): readonly MountEntry[];
  /**
   * Shows what `source` is at `target`, which exists. `source` is not made canonical: a path through /proc/<pid>/fd
   * stays one.
   */
  bind(source: string, target: string): void;
  unmountNow(target: string): void;
  /** @param folder a canonical path @returns mount points on it and below it, the topmost first */
  mountPointsWithin(folder: string): readonly string[];
  /** In this order. @throws `unavailable`, to be tried again, when one is busy */
  unmount(targets: readonly string[], signal: AbortSignal): Promise<void>;
}

export class SystemMounter implements Mounter {
  readonly allowed: boolean = mayMount(readFileSync("/proc/self/status", "utf8"));

  async mountTmpfs(target: string, sizeBytes: number | undefined, signal: AbortSignal): Promise<void> {
    const size = sizeBytes === undefined ? [] : [`size=${sizeBytes}`];
    const options = ["mode=1777", ...size, ...(supportsNoswap(release()) ? ["noswap"] : [])].join(",");
    await run("mount", ["-c", "-t", "tmpfs", "-o", options, "tmpfs", target], signal);
  }

  async mountHugePages(target: string, pageSize: string, signal: AbortSignal): Promise<void> {
    await run("mount", ["-c", "-t", "hugetlbfs", "-o", `pagesize=${pageSize}`, "nodev", target], signal);
  }

  async mountDevice(
    device: string,
    target: string,
    type: string,
    options: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    if (!options.includes("ro") && (await isBlank(device, signal))) await format(device, type, signal);
    const all = options.length === 0 ? ["defaults"] : options;
    await run("mount", ["-c", "-t", type, "-o", all.join(","), device, target], signal);
  }

  async mountNetwork(
    source: string,
    target: string,
    type: string,
    options: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    const helper = `mount.${type}`;
    if (!HELPER_FOLDERS.some((folder) => existsSync(join(folder, helper))))
      throw new PicoletError(
        "unavailable",
        `cannot mount ${source}: this node has no ${helper}; install it (nfs-common)`,
        {
          retryable: true,
        },
      );
    const given = options.length === 0 ? [] : ["-o", options.join(",")];
    await run("mount", ["-c", "-t", type, ...given, source, target], signal, NETWORK_MOUNT_TIMEOUT_MS);
  }

  async bindVolume(source: string, target: string, options: readonly string[], signal: AbortSignal): Promise<void> {
    await run("mount", ["-c", "-o", ["bind", ...options].join(","), source, target], signal);
  }

  async share(folder: string, signal: AbortSignal): Promise<void> {
    const own = this.mounts().filter(({ mountPoint }) => mountPoint === folder);
    if (own.at(-1)?.isShared === true) return;
    if (own.length === 0) await this.bindVolume(folder, folder, [], signal);
    await run("mount", ["-c", "--make-shared", folder], signal);
  }

  mounts(): readonly MountEntry[] {
    return parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
  }

  bind(source: string, target: string): void {
    runNow("mount", ["-c", "--bind", source, target]);
  }

  unmountNow(target: string): void {
    runNow("umount", ["-c", target]);
  }

  mountPointsWithin(folder: string): readonly string[] {
    return mountPointsWithin(this.mounts(), folder);
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

const release = (): string => readFileSync("/proc/sys/kernel/osrelease", "utf8");

/** @param release such as `6.12.25+rpt-rpi-v8` */
export function supportsNoswap(release: string): boolean {
  const [major = 0, minor = 0] = release.split(/\D/, 2).map(Number);
  return major > NOSWAP_SINCE[0] || (major === NOSWAP_SINCE[0] && minor >= NOSWAP_SINCE[1]);
}

/** Only a device on which nothing at all is known to be may be formatted. */
async function isBlank(device: string, signal: AbortSignal): Promise<boolean> {
  try {
    await run("blkid", ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device], signal);
    return false;
  } catch (error) {
    if (error instanceof PicoletError && error.cause instanceof ExitError && error.cause.code === BLKID_NOTHING)
      return true;
    throw error;
  }
}

/** As the kubelet does: ext file systems without blocks kept for root. */
async function format(device: string, type: string, signal: AbortSignal): Promise<void> {
  const options = type === "ext3" || type === "ext4" ? ["-F", "-m0"] : type === "xfs" ? ["-f"] : [];
  await run(`mkfs.${type}`, [...options, device], signal, FORMAT_TIMEOUT_MS);
}

class ExitError extends Error {
  readonly code: unknown;

  constructor(message: string, code: unknown) {
    super(message);
    this.code = code;
  }
}

function run(
  command: string,
  args: readonly string[],
  signal: AbortSignal,
  timeout: number = MOUNT_TIMEOUT_MS,
): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(command, args, { signal, timeout, killSignal: "SIGKILL" }, (error, _, stderr) => {
      if (error === null) resolve();
      else if (signal.aborted) reject(cancelled(command));
      else
        reject(failure(command, args, new ExitError(stderr.trim() === "" ? error.message : stderr.trim(), error.code)));
    });
  });
}

function runNow(command: string, args: readonly string[]): void {
  const result = spawnSync(command, args, {
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
