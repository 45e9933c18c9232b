/** Opens a serial port as root. */
import { constants } from "node:fs";
import {
  type DeviceClass,
  findDevice,
  isInUse,
  isPseudoTerminal,
  type Opener,
  openFound,
  withRefusal,
} from "../../devices/opening/node-devices.ts";
import { DeviceRefusal } from "../../messages/device-request.ts";
import { TIOCEXCL } from "./uapi.ts";

/** linux/major.h */
const VIRTUAL_CONSOLES = 4;
const FIRST_SERIAL_MINOR = 64;
/** The major number of /dev/tty, /dev/console and /dev/ptmx. */
const TTY_ALIASES = 5;

const SERIAL: DeviceClass = {
  noun: "serial port",
  subsystem: "tty",
  accepts: (major, minor) => {
    if (major === TTY_ALIASES || (major === VIRTUAL_CONSOLES && minor < FIRST_SERIAL_MINOR)) return false;
    // Programs emulate ports with pseudo terminals, which sysfs does not list.
    return isPseudoTerminal(major) ? true : undefined;
  },
};

/**
 * A port that another process has open is not opened, locked or not, because opening it moves DTR. Serial programs keep
 * each other away with `flock`; TIOCEXCL keeps away all processes that are not root's.
 */
export const serialOpener: Opener = {
  open(calls, { path }) {
    const found = findDevice(path, SERIAL);
    if (isInUse(found)) throw new DeviceRefusal("busy");
    const fd = openFound(found, constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK);
    if (!calls.lock(fd)) throw new DeviceRefusal("busy");
    withRefusal(() => calls.ioctl(fd, TIOCEXCL, 0), "missing");
    return { descriptors: [fd] };
  },
};
