/**
 * The annotation `wasm.picolet.io/devices`: the devices of the board that a pod's components may open. Entries are
 * separated by `;` or line breaks. Each begins with its kind, whose syntax is in `grant.ts` of its folder:
 *
 *   serial:/dev/ttyS0              a serial port
 *   gpio:/dev/gpiochip0:4,17       lines of a chip, by their numbers
 *   i2c:/dev/i2c-1:0x48,0x20       addresses on a bus; 10-bit addresses have the bit 0x8000 set
 *
 * Links that udev keeps below /dev (`/dev/serial/by-id/…`) are followed when a device is opened. Pure.
 */
import type { DeviceGrant } from "@picolet/runtime-contract/board-services.ts";
import { INTERFACE_GRANTS, type InterfaceGrants } from "./board-grants.ts";
import type { DeviceSyntax, ParsedEntry } from "./syntax/device-syntax.ts";
import type { Parsed } from "./syntax/interface-grant.ts";

/** Bounds the devices of one pod. A board has some dozens of pins; 64 entries are about 2 KiB. */
export const MAX_DEVICE_ENTRIES = 64;
export const MAX_DEVICES_TEXT_LENGTH = 8192;

const syntaxes = (grants: InterfaceGrants): (readonly [kind: string, syntax: DeviceSyntax])[] =>
  Object.entries(grants).flatMap(([kind, { device }]) => (device === undefined ? [] : [[kind, device] as const]));

/** @returns all problems; the value is of use only without any */
export function parseDevices(text: string, grants: InterfaceGrants = INTERFACE_GRANTS): Parsed<readonly DeviceGrant[]> {
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
    const parsed = parseEntry(entry, grants);
    if ("problem" in parsed) problems.push(`"${entry}": ${parsed.problem}`);
    else if (value.some(({ kind, path }) => kind === parsed.value.kind && path === parsed.value.path)) {
      problems.push(`"${entry}": ${parsed.value.path} is named twice`);
    } else value.push(parsed.value);
  }
  return { value, problems };
}

/** @returns one problem for each kind that only one of the annotations `interfaces` and `devices` names */
export function deviceMismatches(
  interfaces: readonly string[],
  devices: readonly DeviceGrant[],
  grants: InterfaceGrants = INTERFACE_GRANTS,
): string[] {
  return syntaxes(grants).flatMap(([kind, { example }]) => {
    const isNamed = interfaces.includes(kind);
    const hasDevice = devices.some((each) => each.kind === kind);
    if (isNamed === hasDevice) return [];
    return isNamed
      ? [`the interface ${kind} is named without a device: add ${example} to wasm.picolet.io/devices`]
      : [`devices of ${kind} are named without the interface: add ${kind} to wasm.picolet.io/interfaces`];
  });
}

function parseEntry(entry: string, grants: InterfaceGrants): ParsedEntry<DeviceGrant> {
  const known = syntaxes(grants);
  const found = known.find(([kind]) => entry.startsWith(`${kind}:`));
  if (found === undefined) return { problem: `write one of ${known.map(([, { example }]) => example).join(", ")}` };
  const [kind, { parse }] = found;
  return parse(entry.slice(kind.length + 1));
}
