/** Inspects a device before it is opened, because opening the wrong one may have an effect already. */

import { fstatSync, openSync, readdirSync, readlinkSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Plain } from "@picolet/runtime-contract/board-services.ts";
import { DeviceRefusal, type DeviceTarget } from "../../messages/device-request.ts";
import type { SystemCalls } from "../system-calls.ts";

const UNSUPPORTED = new Set(["EINVAL", "EOPNOTSUPP", "ENOTTY", "ENXIO", "EPERM", "errno 524"]);
const GONE = new Set(["ENODEV", "ENXIO", "ENOENT"]);

/** Opens one kind of device. */
export interface Opener {
  /** @throws DeviceRefusal */
  open(calls: SystemCalls, target: DeviceTarget, lockDirectory: string): Opened;
}

/** Descriptors to give away, or the answer to a question. */
export type Opened = { readonly descriptors: readonly number[] } | { readonly value: Plain };

/** How devices of one kind are recognized. */
export interface DeviceClass {
  readonly noun: string;
  /** The name in sysfs. */
  readonly subsystem: string;
  /** Decides by the device numbers. Undefined: the subsystem decides. */
  readonly accepts?: (major: number, minor: number) => boolean | undefined;
}

/** As the kernel packs them into 32 bits. */
const majorOf = (device: number): number => (device >>> 8) & 0xfff;
export const minorOf = (device: number): number => (device & 0xff) | ((device >>> 12) & 0xfff00);

/** UNIX98_PTY_SLAVE_MAJOR of linux/major.h, and the seven after it. */
export const isPseudoTerminal = (major: number): boolean => major >= 136 && major <= 143;

export interface NodeDevice {
  /** Without links. */
  readonly path: string;
  readonly device: number;
  /** The device number of the file system that has the node. */
  readonly fileSystem: number;
}

/** @throws DeviceRefusal `missing` when it does not exist, `failed` when it is of another class */
export function findDevice(path: string, kind: DeviceClass): NodeDevice {
  const real = existing(() => realpathSync(path), path);
  const stats = existing(() => statSync(real), path);
  if (!real.startsWith("/dev/") || !stats.isCharacterDevice() || !isOfClass(stats, kind)) {
    throw new DeviceRefusal("failed", `${path} is no ${kind.noun}`);
  }
  return { path: real, device: stats.rdev, fileSystem: stats.dev };
}

function existing<T>(call: () => T, path: string): T {
  try {
    return call();
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ENXIO" || code === "ENODEV") {
      throw new DeviceRefusal("missing");
    }
    throw new DeviceRefusal("failed", `cannot inspect ${path}: ${code}`);
  }
}

function isOfClass({ rdev }: Stats, { subsystem, accepts }: DeviceClass): boolean {
  const [major, minor] = [majorOf(rdev), minorOf(rdev)];
  const accepted = accepts?.(major, minor);
  if (accepted !== undefined) return accepted;
  try {
    return basename(readlinkSync(`/sys/dev/char/${major}:${minor}/subsystem`)) === subsystem;
  } catch {
    return false;
  }
}

/** The same device that was found: links may have been changed. */
export function openFound({ path, device }: NodeDevice, flags: number): number {
  const fd = withRefusal(() => openSync(path, flags), "missing");
  if (fstatSync(fd).rdev !== device) throw new DeviceRefusal("missing");
  return fd;
}

/** @param otherwise the refusal for an argument that the device does not accept */
export function withRefusal<T>(call: () => T, otherwise: "missing" | "unsupported"): T {
  try {
    return call();
  } catch (error) {
    const code = errnoOf(error) || "unknown";
    if (code === "EBUSY") throw new DeviceRefusal("busy");
    if (otherwise === "unsupported" && UNSUPPORTED.has(code)) throw new DeviceRefusal("unsupported");
    if (GONE.has(code)) throw new DeviceRefusal("missing");
    throw new DeviceRefusal("failed", error instanceof Error ? error.message : code);
  }
}

/** @returns whether another process has it open. Without root, processes of other users are not seen. */
export function isInUse(device: NodeDevice): boolean {
  for (const pid of readdirSync("/proc")) {
    if (/^\d+$/.test(pid) && Number(pid) !== process.pid && hasOpen(pid, device)) return true;
  }
  return false;
}

function hasOpen(pid: string, { path, device, fileSystem }: NodeDevice): boolean {
  const folder = `/proc/${pid}/fd`;
  const name = basename(path);
  for (const fd of entriesOf(folder)) {
    try {
      // Other files are skipped, because stat(2) of one on a dead network never returns. In another mount namespace the
      // path may begin elsewhere.
      const link = readlinkSync(`${folder}/${fd}`);
      if (!link.startsWith("/dev/") && basename(link) !== name) continue;
      const stats = statSync(`${folder}/${fd}`);
      // Each container has pseudo terminals of its own, with the same numbers.
      const isOfOther = isPseudoTerminal(majorOf(device)) && stats.dev !== fileSystem;
      if (stats.isCharacterDevice() && stats.rdev === device && !isOfOther) return true;
    } catch {
      ignore("closed meanwhile");
    }
  }
  return false;
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // It has ended, or is none of ours.
    return [];
  }
}
