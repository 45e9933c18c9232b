/**
 * The annotation `picolet.io/devices` of a pod, whose entries are separated by `;` or line breaks. Each may end with
 * `:` and letters of `rwm`; without them a container may read and write the device.
 *
 *   /dev/ttyUSB0                   a device node, or a link of udev to one
 *   usb:0403:6001                  the nodes of each USB device with this identity
 *   libusb:1a6e:089a               its own node, below /dev/bus/usb
 *   serial:/dev/ttyS0              a serial port, as its path alone
 *   gpio:/dev/gpiochip0            a chip with all its lines
 *   i2c:/dev/i2c-1                 a bus with all its addresses
 *
 * Pure.
 */

import { DEVICES_ANNOTATION } from "./devices-annotation.ts";

/** Bounds the devices of one pod; a board has some dozens of nodes. 64 entries are about 2 KiB. */
const MAX_ENTRIES = 64;
const MAX_LENGTH = 8192;
const MAX_SHOWN = 128;

/** The memory and ports of the whole machine: any of them is a way out of the container. */
const NEVER = /^\/dev\/(mem|kmem|port)$/;
const KINDS: Readonly<Record<string, RegExp>> = {
  serial: /^\/dev\/(tty|serial\/|rfcomm)/,
  gpio: /^\/dev\/gpiochip\d+$/,
  i2c: /^\/dev\/i2c-\d+$/,
};
const EXAMPLES = "/dev/ttyUSB0, usb:0403:6001, gpio:/dev/gpiochip0 or i2c:/dev/i2c-1";

export interface RequestedDevice {
  /** The entry without permissions, such as `usb:0403:6001`. */
  readonly name: string;
  /** As in `DeviceRule.match`: a path without wildcards, `usb:VENDOR:PRODUCT` or `libusb:VENDOR:PRODUCT`. */
  readonly match: string;
  readonly permissions: string;
}

/** An entry of `allowedDevices`. */
export interface AllowedDevices {
  readonly match: readonly string[];
  /** `*` is every namespace. */
  readonly namespaces: readonly string[];
}

/** @returns all problems; the devices are of use only without any */
export function parseRequestedDevices(text: string): {
  readonly devices: readonly RequestedDevice[];
  readonly problems: readonly string[];
} {
  if (text.length > MAX_LENGTH) return { devices: [], problems: [`it is longer than ${MAX_LENGTH} characters`] };
  const entries = text
    .split(/[;\n]/)
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length > MAX_ENTRIES) return { devices: [], problems: [`it has more than ${MAX_ENTRIES} entries`] };
  const devices: RequestedDevice[] = [];
  const problems: string[] = [];
  for (const entry of entries) {
    const device = deviceOf(entry);
    const shown = JSON.stringify(entry.slice(0, MAX_SHOWN));
    if (/^(gpio|i2c):.*:[\dxa-f,]+$/i.test(entry))
      problems.push(`${shown}: a container gets the whole node; only components get lines and addresses`);
    else if (device === undefined) problems.push(`${shown} is no device: write ${EXAMPLES}`);
    else if (devices.some(({ match }) => match === device.match)) problems.push(`${shown} is named twice`);
    else devices.push(device);
  }
  return { devices, problems };
}

function deviceOf(entry: string): RequestedDevice | undefined {
  const [, name = "", permissions = "rw"] = /^(.*?)(?::(r?w?m?))?$/.exec(entry) ?? [];
  if (permissions === "") return undefined;
  if (/^(lib)?usb:[0-9a-f]{4}:[0-9a-f]{4}$/i.test(name)) return { name, match: name.toLowerCase(), permissions };
  const [, kind, path = ""] = /^(?:([a-z0-9]+):)?(\/dev\/.+)$/.exec(name) ?? [];
  if (!isDevicePath(path) || /[*?]/.test(path)) return undefined;
  if (kind !== undefined && KINDS[kind]?.test(path) !== true) return undefined;
  return { name, match: path, permissions };
}

/** A path below /dev in its shortest form; may have `*` and `?`. */
const isDevicePath = (path: string): boolean =>
  /^(\/[-\w.:+@*?]+)+$/.test(path) && path.startsWith("/dev/") && !/\/\.{0,2}(\/|$)|\*\*/.test(path);

/**
 * Judges an entry of `allowedDevices[].match`.
 * @returns undefined: it is one
 */
export function problemOfAllowed(pattern: string): string | undefined {
  if (/^(lib)?usb:[0-9a-fA-F*]{1,4}:[0-9a-fA-F*]{1,4}$/.test(pattern)) return undefined;
  const path = pathOf(pattern);
  if (!isDevicePath(path)) return `must be a path below /dev, which may have * and ?, such as ${EXAMPLES}`;
  if (NEVER.test(path)) return "gives the memory of the whole board, and is never allowed";
  if (/^\/dev\/[*?]/.test(path)) return "must begin with a name, such as /dev/ttyUSB*: it would allow every device";
  return undefined;
}

const pathOf = (pattern: string): string => pattern.replace(/^(serial|gpio|i2c):/, "");
/** Wildcards do not match `/`. */
const globOf = (pattern: string): RegExp => {
  const escaped = pattern.replace(/[.+]/g, "\\$&").replaceAll("*", "[^/]*").replaceAll("?", "[^/]");
  return new RegExp(`^${escaped}$`);
};
const normalized = (pattern: string): string => (/^(lib)?usb:/.test(pattern) ? pattern.toLowerCase() : pathOf(pattern));

function isAllowed(match: string, namespace: string, allowed: readonly AllowedDevices[]): boolean {
  if (NEVER.test(match)) return false;
  const own = allowed.filter(({ namespaces }) => namespaces.includes("*") || namespaces.includes(namespace));
  return own.some(({ match: patterns }) => patterns.some((pattern) => globOf(normalized(pattern)).test(match)));
}

/** The memory of the machine, also by the name of a link. */
export const isNeverAllowed = (path: string): boolean => NEVER.test(path);

/**
 * Judges what a pod asks for: by its name, or by the nodes that it is now.
 *
 * @param nodesOf paths of the device's nodes without links; empty while it is not plugged in
 * @returns undefined: all of it is allowed; else a sentence with the way to allow it
 */
export function refusalOf(
  {
    annotations = {},
    namespace,
  }: { readonly annotations?: Readonly<Record<string, string>> | undefined; readonly namespace: string },
  allowed: readonly AllowedDevices[],
  nodesOf: (device: RequestedDevice) => readonly string[] = () => [],
): string | undefined {
  const { devices, problems } = parseRequestedDevices(annotations[DEVICES_ANNOTATION] ?? "");
  if (problems.length > 0) return `the annotation ${DEVICES_ANNOTATION} is wrong: ${problems.join("; ")}`;
  const isGiven = (path: string): boolean => isAllowed(path, namespace, allowed);
  const areGiven = (paths: readonly string[]): boolean => paths.length > 0 && paths.every(isGiven);
  const refused = devices.filter((each) => !isGiven(each.match) && !areGiven(nodesOf(each))).map(({ name }) => name);
  if (refused.length === 0) return undefined;
  const never = refused.find((name) => NEVER.test(name));
  if (never !== undefined)
    return `${never} gives the memory of the whole board, and no pod gets it by ${DEVICES_ANNOTATION}`;
  return (
    `the annotation ${DEVICES_ANNOTATION} asks for ${refused.join(", ")}, which this node does not allow in namespace ` +
    `${namespace}: add {match: [${refused.join(", ")}], namespaces: [${namespace}]} to allowedDevices of its configuration`
  );
}
