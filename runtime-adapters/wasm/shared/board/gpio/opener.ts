/** Opens one line of a GPIO chip as root, or lists the granted lines. */
import { closeSync, constants } from "node:fs";
import {
  type DeviceClass,
  findDevice,
  type Opener,
  openFound,
  withRefusal,
} from "../../devices/opening/node-devices.ts";
import type { SystemCalls } from "../../devices/system-calls.ts";
import { DeviceRefusal, type DeviceTarget } from "../../messages/device-request.ts";
import {
  decodeChipLines,
  decodeLineInfo,
  encodeLineInfo,
  encodeLineRequest,
  GPIO,
  type GpioTarget,
  requestedFd,
} from "./uapi.ts";

const CHIP: DeviceClass = { noun: "GPIO chip", subsystem: "gpio" };
/** fcntl.h */
const F_SETFL = 4;

/** The runner receives the one line, never the chip. */
export const gpioOpener: Opener = {
  open(calls, target: DeviceTarget) {
    const { path, lines, wanted } = target as GpioTarget;
    const chip = openFound(findDevice(path, CHIP), constants.O_RDWR);
    const infos = lineInfos(calls, chip, lines);
    if (wanted === undefined) return { value: infos };
    const found = infos.find(({ line, name }) => line === wanted.line || name === wanted.line);
    if (found === undefined) throw new DeviceRefusal("missing");
    const memory = encodeLineRequest(found.line, wanted.config);
    withRefusal(() => calls.ioctl(chip, GPIO.getLine, memory), "unsupported");
    const fd = requestedFd(memory);
    calls.call("int fcntl(int fd, int command, long argument)", fd, F_SETFL, constants.O_NONBLOCK);
    closeSync(chip);
    return { descriptors: [fd] };
  },
};

function lineInfos(calls: SystemCalls, chip: number, lines: readonly number[]) {
  const memory = Buffer.alloc(GPIO.chipInfoBytes);
  withRefusal(() => calls.ioctl(chip, GPIO.getChipInfo, memory), "missing");
  const count = decodeChipLines(memory);
  return lines
    .filter((line) => line < count)
    .map((line) => {
      const info = encodeLineInfo(line);
      withRefusal(() => calls.ioctl(chip, GPIO.getLineInfo, info), "missing");
      return { line, ...decodeLineInfo(info) };
    });
}
