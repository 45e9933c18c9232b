/** Opens a device as root, for a runner that could not, and nobody else's: `devices-main.ts`. */
import { closeSync, constants, fstatSync, mkdirSync, openSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Plain } from "@picolet/runtime-contract/board-services.ts";
import {
  decodeChipLines,
  decodeLineInfo,
  encodeLineInfo,
  encodeLineRequest,
  GPIO,
  requestedFd,
} from "../shared/devices/gpio-uapi.ts";
import { I2C_SLAVE, I2C_TENBIT } from "../shared/devices/i2c-uapi.ts";
import { TIOCEXCL } from "../shared/devices/serial-uapi.ts";
import type { SystemCalls } from "../shared/devices/system-calls.ts";
import { TEN_BIT_FLAG } from "../shared/grants/device-grants.ts";
import { DeviceRefusal, type DeviceTarget } from "../shared/messages/device-request.ts";
import { findDevice, isInUse, minorOf } from "./node-devices.ts";

/** Descriptors to give away, or what was asked for. */
export type Opened = { readonly descriptors: readonly number[] } | { readonly value: Plain };

type Wish<K extends DeviceTarget["kind"]> = Extract<DeviceTarget, { kind: K }>;

/** fcntl.h */
const F_SETFL = 4;
const UNSUPPORTED = new Set(["EINVAL", "EOPNOTSUPP", "ENOTTY", "ENXIO", "EPERM", "errno 524"]);
const GONE = new Set(["ENODEV", "ENXIO", "ENOENT"]);

/** @throws DeviceRefusal */
export function openDevice(calls: SystemCalls, wish: DeviceTarget): Opened {
  switch (wish.kind) {
    case "serial":
      return openSerial(calls, wish);
    case "i2c":
      return openI2c(calls, wish);
    case "gpio-lines":
      return { value: linesOf(calls, wish) };
    case "gpio":
      return openLine(calls, wish);
  }
}

/**
 * Whoever has it open is not disturbed, whether he locks it or not: opening it already moves DTR. `flock` is what
 * serial programs of today keep each other away by, TIOCEXCL keeps away all that are not root's.
 */
function openSerial(calls: SystemCalls, { path }: Wish<"serial">): Opened {
  const found = findDevice(path, "serial");
  if (isInUse(found)) throw new DeviceRefusal("busy");
  const fd = opened(found, constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK);
  if (!calls.lock(fd)) throw new DeviceRefusal("busy");
  refusing(() => calls.ioctl(fd, TIOCEXCL, 0), "missing");
  return { descriptors: [fd] };
}

/** The kernel refuses an address that a driver has; what other pods have is locked by files of ours. */
function openI2c(calls: SystemCalls, { path, address, lockDirectory }: Wish<"i2c">): Opened {
  const found = findDevice(path, "i2c");
  const fd = opened(found, constants.O_RDWR);
  const isTenBit = (address & TEN_BIT_FLAG) !== 0;
  if (isTenBit) refusing(() => calls.ioctl(fd, I2C_TENBIT, 1), "missing");
  refusing(() => calls.ioctl(fd, I2C_SLAVE, address & ~TEN_BIT_FLAG), "missing");
  mkdirSync(lockDirectory, { recursive: true, mode: 0o700 });
  const lock = openSync(`${lockDirectory}/i2c-${minorOf(found.device)}-${address}`, "a", 0o600);
  if (!calls.lock(lock)) throw new DeviceRefusal("busy");
  return { descriptors: [fd, lock] };
}

function linesOf(calls: SystemCalls, { path, lines }: Wish<"gpio-lines">): Plain {
  const chip = opened(findDevice(path, "gpio"), constants.O_RDWR);
  return lineInfos(calls, chip, lines);
}

function lineInfos(calls: SystemCalls, chip: number, lines: readonly number[]) {
  const memory = Buffer.alloc(GPIO.chipInfoBytes);
  refusing(() => calls.ioctl(chip, GPIO.getChipInfo, memory), "missing");
  const count = decodeChipLines(memory);
  return lines
    .filter((line) => line < count)
    .map((line) => {
      const info = encodeLineInfo(line);
      refusing(() => calls.ioctl(chip, GPIO.getLineInfo, info), "missing");
      return { line, ...decodeLineInfo(info) };
    });
}

/** Only the one line is given away, not the chip. */
function openLine(calls: SystemCalls, { path, lines, wanted, line: config }: Wish<"gpio">): Opened {
  const chip = opened(findDevice(path, "gpio"), constants.O_RDWR);
  const found = lineInfos(calls, chip, lines).find(({ line, name }) => line === wanted || name === wanted);
  if (found === undefined) throw new DeviceRefusal("missing");
  const memory = encodeLineRequest(found.line, config);
  refusing(() => calls.ioctl(chip, GPIO.getLine, memory), "unsupported");
  const fd = requestedFd(memory);
  calls.call("int fcntl(int fd, int command, long argument)", fd, F_SETFL, constants.O_NONBLOCK);
  closeSync(chip);
  return { descriptors: [fd] };
}

/** The same device that was found: links may have been changed. */
function opened({ path, device }: { readonly path: string; readonly device: number }, flags: number): number {
  const fd = refusing(() => openSync(path, flags), "missing");
  if (fstatSync(fd).rdev !== device) throw new DeviceRefusal("missing");
  return fd;
}

/** @param otherwise what an argument that the device does not take means here */
function refusing<T>(call: () => T, otherwise: "missing" | "unsupported"): T {
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
