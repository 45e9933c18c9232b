/**
 * The annotation `wasm.picolet.io/devices`: the devices of the board that a pod's components may open. Entries are
 * divided by `;` or ends of lines:
 *
 * serial:/dev/ttyS0 a serial port gpio:/dev/gpiochip0:4,17 lines of a chip, by their numbers i2c:/dev/i2c-1:0x48,0x20
 * addresses on a bus; 10-bit addresses have the bit 0x8000 set
 *
 * Links below /dev that udev keeps (`/dev/serial/by-id/…`) are followed when a device is opened. Pure.
 */
import type { DeviceGrant } from "@picolet/runtime-contract/board-services.ts";

export const DEVICE_KINDS = ["serial", "gpio", "i2c"] as const;
export type DeviceKind = (typeof DEVICE_KINDS)[number];

/** A board has a few dozens of pins; 64 entries are some 2 KiB. */
export const MAX_DEVICE_ENTRIES = 64;
export const MAX_DEVICES_TEXT_LENGTH = 8192;
/** Of one entry. */
const MAX_NUMBERS = 128;
const MAX_PATH_LENGTH = 255;
/** As udev names devices, and no way out of /dev: no part is empty, `.` or `..`. */
const PATH = /^\/dev(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._:+@=,#-]+)+$/;
const DECIMAL = /^\d{1,4}$/;
const HEXADECIMAL = /^0x[\da-f]{1,4}$/i;
/** Of one chip; the kernel's own limit is 512 unless it was built with more. */
const MAX_LINE = 1023;
/** The bit that says that an address has 10 bits, as in `picolet:board/i2c`. */
export const TEN_BIT_FLAG = 0x8000;
/** The I2C specification, 3.1.12: what lies outside is reserved. */
const FIRST_ADDRESS = 0x08;
const LAST_ADDRESS = 0x77;
const MAX_TEN_BIT_ADDRESS = 0x3ff;

type Parsed<T> = { readonly value: T } | { readonly problem: string };

/** @returns all that is wrong with it; what is right beside that is of no use then. */
export function parseDevices(text: string): {
  readonly value: readonly DeviceGrant[];
  readonly problems: readonly string[];
} {
  if (text.length > MAX_DEVICES_TEXT_LENGTH) {
    return { value: [], problems: [`longer than ${MAX_DEVICES_TEXT_LENGTH} characters`] };
  }
  const entries = text
    .split(/[;\n]/)
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length > MAX_DEVICE_ENTRIES) {
    return { value: [], problems: [`more than ${MAX_DEVICE_ENTRIES} entries`] };
  }
  const value: DeviceGrant[] = [];
  const problems: string[] = [];
  for (const entry of entries) {
    const parsed = parseEntry(entry);
    if ("problem" in parsed) problems.push(`"${entry}": ${parsed.problem}`);
    else if (value.some(({ kind, path }) => kind === parsed.value.kind && path === parsed.value.path)) {
      problems.push(`"${entry}": ${parsed.value.path} is there twice`);
    } else value.push(parsed.value);
  }
  return { value, problems };
}

/** What the two annotations say against each other. */
export function deviceMismatches(interfaces: readonly string[], devices: readonly DeviceGrant[]): string[] {
  return DEVICE_KINDS.flatMap((kind) => {
    const isNamed = interfaces.includes(kind);
    const hasDevice = devices.some((each) => each.kind === kind);
    if (isNamed === hasDevice) return [];
    return isNamed
      ? [`the interface ${kind} is named without a device: add ${EXAMPLES[kind]} to wasm.picolet.io/devices`]
      : [`devices of ${kind} are named without the interface: add ${kind} to wasm.picolet.io/interfaces`];
  });
}

const EXAMPLES: Readonly<Record<DeviceKind, string>> = {
  serial: "serial:/dev/ttyS0",
  gpio: "gpio:/dev/gpiochip0:17",
  i2c: "i2c:/dev/i2c-1:0x48",
};
const FORMS = Object.values(EXAMPLES).join(", ");

function parseEntry(entry: string): Parsed<DeviceGrant> {
  const colon = entry.indexOf(":");
  const kind = DEVICE_KINDS.find((each) => each === entry.slice(0, Math.max(colon, 0)));
  if (kind === undefined) return { problem: `write one of ${FORMS}` };
  const rest = entry.slice(colon + 1);
  if (kind === "serial") {
    const path = parsePath(rest);
    return "problem" in path ? path : { value: { kind, path: path.value } };
  }
  // Paths may hold colons, numbers do not.
  const last = rest.lastIndexOf(":");
  const path = parsePath(last < 0 ? rest : rest.slice(0, last));
  if ("problem" in path) return path;
  const numbers = parseNumbers(last < 0 ? "" : rest.slice(last + 1), kind);
  if ("problem" in numbers) return numbers;
  return kind === "gpio"
    ? { value: { kind, path: path.value, lines: numbers.value } }
    : { value: { kind, path: path.value, addresses: numbers.value } };
}

function parsePath(text: string): Parsed<string> {
  if (text.length <= MAX_PATH_LENGTH && PATH.test(text)) return { value: text };
  return { problem: `"${text}" is no path of a device: write it as it is below /dev` };
}

function parseNumbers(text: string, kind: "gpio" | "i2c"): Parsed<readonly number[]> {
  const what = kind === "gpio" ? "lines" : "addresses";
  const parts = text.split(",").map((each) => each.trim());
  if (text.trim() === "") return { problem: `there are no ${what}: write ${EXAMPLES[kind]}` };
  if (parts.length > MAX_NUMBERS) return { problem: `more than ${MAX_NUMBERS} ${what}` };
  const read = kind === "gpio" ? lineOf : addressOf;
  const wrong = parts.find((each) => read(each) === undefined);
  if (wrong !== undefined) {
    const range =
      kind === "gpio" ? `a number up to ${MAX_LINE}` : "an address from 0x08 to 0x77, or 0x8000 and 10 bits";
    return { problem: `"${wrong}" is not ${range}` };
  }
  return { value: [...new Set(parts.map((each) => read(each) ?? 0))] };
}

function lineOf(text: string): number | undefined {
  const line = DECIMAL.test(text) ? Number(text) : undefined;
  return line !== undefined && line <= MAX_LINE ? line : undefined;
}

function addressOf(text: string): number | undefined {
  const address = HEXADECIMAL.test(text) || DECIMAL.test(text) ? Number(text) : undefined;
  if (address === undefined) return undefined;
  if ((address & TEN_BIT_FLAG) !== 0) return address - TEN_BIT_FLAG <= MAX_TEN_BIT_ADDRESS ? address : undefined;
  return address >= FIRST_ADDRESS && address <= LAST_ADDRESS ? address : undefined;
}
