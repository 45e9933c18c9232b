/** What the node says of a device before it is opened: opening the wrong one may have an effect already. */
import { readdirSync, readlinkSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { DeviceRefusal } from "../shared/messages/device-request.ts";

/** linux/major.h */
const VIRTUAL_CONSOLES = 4;
const FIRST_SERIAL_MINOR = 64;
/** /dev/tty, /dev/console, /dev/ptmx */
const TTY_OF_OTHERS = 5;
const FIRST_PSEUDO_TERMINAL = 136;
const LAST_PSEUDO_TERMINAL = 143;
const NAMES = { serial: "serial port", gpio: "GPIO chip", i2c: "I2C bus" } as const;
/** Of sysfs. */
const SUBSYSTEMS = { serial: "tty", gpio: "gpio", i2c: "i2c-dev" } as const;

/** As the kernel packs them into 32 bits. */
export const majorOf = (device: number): number => (device >>> 8) & 0xfff;
export const minorOf = (device: number): number => (device & 0xff) | ((device >>> 12) & 0xfff00);

export interface NodeDevice {
  /** Without links. */
  readonly path: string;
  readonly device: number;
}

/** @throws DeviceRefusal `missing` when it is not there, `failed` when it is something else than it should be */
export function findDevice(path: string, kind: keyof typeof NAMES): NodeDevice {
  const real = existing(() => realpathSync(path), path);
  const stats = existing(() => statSync(real), path);
  if (!real.startsWith("/dev/") || !stats.isCharacterDevice() || !isKind(stats, kind)) {
    throw new DeviceRefusal("failed", `${path} is no ${NAMES[kind]}`);
  }
  return { path: real, device: stats.rdev };
}

function existing<T>(look: () => T, path: string): T {
  try {
    return look();
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ENXIO" || code === "ENODEV") {
      throw new DeviceRefusal("missing");
    }
    throw new DeviceRefusal("failed", `cannot look at ${path}: ${code}`);
  }
}

function isKind({ rdev }: Stats, kind: keyof typeof NAMES): boolean {
  const [major, minor] = [majorOf(rdev), minorOf(rdev)];
  if (kind === "serial") {
    if (major === TTY_OF_OTHERS || (major === VIRTUAL_CONSOLES && minor < FIRST_SERIAL_MINOR)) return false;
    // What programs make that stand in for a port; sysfs knows nothing of them.
    if (major >= FIRST_PSEUDO_TERMINAL && major <= LAST_PSEUDO_TERMINAL) return true;
  }
  try {
    return basename(readlinkSync(`/sys/dev/char/${major}:${minor}/subsystem`)) === SUBSYSTEMS[kind];
  } catch {
    return false;
  }
}

/** Whether any process has it open that this one may look at: as root, all of them. */
export function isInUse(device: NodeDevice): boolean {
  for (const pid of readdirSync("/proc")) {
    if (/^\d+$/.test(pid) && Number(pid) !== process.pid && hasOpen(pid, device)) return true;
  }
  return false;
}

function hasOpen(pid: string, { path, device }: NodeDevice): boolean {
  const folder = `/proc/${pid}/fd`;
  const name = basename(path);
  for (const fd of entriesOf(folder)) {
    try {
      // Other files are not looked at: one on a network that is away would never answer. In another mount namespace the
      // path may begin elsewhere.
      const link = readlinkSync(`${folder}/${fd}`);
      if (!link.startsWith("/dev/") && basename(link) !== name) continue;
      const stats = statSync(`${folder}/${fd}`);
      if (stats.isCharacterDevice() && stats.rdev === device) return true;
    } catch {
      // Closed meanwhile.
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
