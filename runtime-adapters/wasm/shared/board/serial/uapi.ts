/**
 * Serial ports as the kernel has them: asm-generic/termbits.h, asm-generic/ioctls.h, linux/serial.h. The numbers are
 * those of x64 and arm64. Pure.
 */
import type { ModemLines, Options } from "@picolet/wit/generated/picolet-board-serial.js";

/** _IOR('T', 0x2a, struct termios2), _IOW('T', 0x2b, struct termios2) */
export const TCGETS2 = 0x802c542a;
export const TCSETS2 = 0x402c542b;
export const TCFLSH = 0x540b;
export const TIOCEXCL = 0x540c;
export const TIOCOUTQ = 0x5411;
export const TIOCMGET = 0x5415;
export const TIOCMSET = 0x5418;
export const TIOCSBRK = 0x5427;
export const TIOCCBRK = 0x5428;
export const TIOCSERGETLSR = 0x5459;
/** The answer of `TIOCSERGETLSR` when the port's own buffer is empty too. */
export const TIOCSER_TEMT = 1;
export const TCIFLUSH = 0;

/** struct termios2: four words of flags, c_line, c_cc[19], two speeds. */
export const TERMIOS_BYTES = 44;
const CFLAG_AT = 8;
const CC_AT = 17;
const ISPEED_AT = 36;
const OSPEED_AT = 40;
const VMIN = 6;
const VSTART = 8;
const VSTOP = 9;
const XON = 0x11;
const XOFF = 0x13;

const IXON = 0x400;
const IXOFF = 0x1000;
const CSIZE_SHIFT = 4;
const CSIZE = 0x30;
const CSTOPB = 0x40;
const CREAD = 0x80;
const PARENB = 0x100;
const PARODD = 0x200;
const HUPCL = 0x400;
const CLOCAL = 0x800;
const BOTHER = 0x1000;
const IBSHIFT = 16;
const CRTSCTS = 0x80000000;
/** The bits that have to be as requested. */
const FRAME = CSIZE | CSTOPB | PARENB | PARODD | CRTSCTS;

const MIN_DATA_BITS = 5;
const MAX_DATA_BITS = 8;
/** A port divides its clock; beyond this the other end would misread bytes of ten bits. */
const SPEED_TOLERANCE = 0.03;

/** @returns whether ports can have such a frame at all */
export const isFrame = ({ baudRate, dataBits, stopBits }: Options): boolean =>
  baudRate > 0 && dataBits >= MIN_DATA_BITS && dataBits <= MAX_DATA_BITS && (stopBits === 1 || stopBits === 2);

/**
 * Options of a raw port.
 * @param options pass `isFrame`
 */
export function encodeTermios({ baudRate, dataBits, parity, stopBits, flowControl }: Options): Buffer {
  const memory = Buffer.alloc(TERMIOS_BYTES);
  const frame =
    ((dataBits - MIN_DATA_BITS) << CSIZE_SHIFT) |
    (stopBits === 2 ? CSTOPB : 0) |
    (parity === "none" ? 0 : PARENB) |
    (parity === "odd" ? PARODD : 0) |
    (flowControl === "hardware" ? CRTSCTS : 0);
  const flags = frame | CREAD | HUPCL | CLOCAL | BOTHER | (BOTHER << IBSHIFT);
  memory.writeUInt32LE(flowControl === "software" ? IXON | IXOFF : 0, 0);
  memory.writeUInt32LE(flags >>> 0, CFLAG_AT);
  memory[CC_AT + VMIN] = 1;
  memory[CC_AT + VSTART] = XON;
  memory[CC_AT + VSTOP] = XOFF;
  memory.writeUInt32LE(baudRate, ISPEED_AT);
  memory.writeUInt32LE(baudRate, OSPEED_AT);
  return memory;
}

/** @returns whether the port has the requested options. Drivers drop what they cannot do without an error. */
export function hasAppliedOptions(actual: Buffer, wanted: Options): boolean {
  const asked = encodeTermios(wanted);
  const frames = [actual, asked].map((each) => (each.readUInt32LE(CFLAG_AT) & FRAME) >>> 0);
  const speed = actual.readUInt32LE(OSPEED_AT);
  return frames[0] === frames[1] && Math.abs(speed - wanted.baudRate) <= wanted.baudRate * SPEED_TOLERANCE;
}

/** Milliseconds that the bytes take on the line, with a start bit and parity each. At least one. */
export function lineTimeMs({ baudRate, dataBits, stopBits }: Options, bytes: number): number {
  return Math.max(1, Math.ceil((bytes * (dataBits + stopBits + 2) * 1000) / baudRate));
}

/** TIOCM_… */
const LINES = { dtr: 0x002, rts: 0x004, cts: 0x020, dsr: 0x100, dcd: 0x040, ri: 0x080 } as const;

export function decodeLines(bits: number): ModemLines {
  const is = (line: keyof typeof LINES): boolean => (bits & LINES[line]) !== 0;
  return { dtr: is("dtr"), rts: is("rts"), cts: is("cts"), dsr: is("dsr"), dcd: is("dcd"), ri: is("ri") };
}

/** The argument of `TIOCMSET`. It changes dtr and rts alone. */
export function encodeLines({ dtr, rts }: ModemLines, before: number): number {
  return (before & ~(LINES.dtr | LINES.rts)) | (dtr === true ? LINES.dtr : 0) | (rts === true ? LINES.rts : 0);
}
