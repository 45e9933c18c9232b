/** Opens one address of an I2C bus as root. */
import { constants, mkdirSync, openSync } from "node:fs";
import {
  type DeviceClass,
  findDevice,
  minorOf,
  type Opener,
  openFound,
  withRefusal,
} from "../../devices/opening/node-devices.ts";
import { DeviceRefusal, type DeviceTarget } from "../../messages/device-request.ts";
import { TEN_BIT_FLAG } from "./grant.ts";
import { I2C_SLAVE, I2C_TENBIT, type I2cTarget } from "./uapi.ts";

const I2C: DeviceClass = { noun: "I2C bus", subsystem: "i2c-dev" };

/** The kernel refuses an address that a driver uses. A lock file for each address keeps pods apart. */
export const i2cOpener: Opener = {
  open(calls, target: DeviceTarget, lockDirectory) {
    const { path, address } = target as I2cTarget;
    const found = findDevice(path, I2C);
    const fd = openFound(found, constants.O_RDWR);
    const isTenBit = (address & TEN_BIT_FLAG) !== 0;
    if (isTenBit) withRefusal(() => calls.ioctl(fd, I2C_TENBIT, 1), "missing");
    withRefusal(() => calls.ioctl(fd, I2C_SLAVE, address & ~TEN_BIT_FLAG), "missing");
    mkdirSync(lockDirectory, { recursive: true, mode: 0o700 });
    const lock = openSync(`${lockDirectory}/i2c-${minorOf(found.device)}-${address}`, "a", 0o600);
    if (!calls.lock(lock)) throw new DeviceRefusal("busy");
    return { descriptors: [fd, lock] };
  },
};
