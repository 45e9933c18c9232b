/** Devices that the configuration offers without a plugin: device nodes by path or USB identity, and CDI devices. */
import { globSync, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { type DeviceAnswer, NO_ANSWER } from "./device-plugin-messages.ts";
import type { DeviceProvider, OfferedDevice } from "./device-provider.ts";

export interface DeviceRule {
  /** The resource, such as `example.com/camera`. */
  readonly name: string;
  /** `/dev/video*`, `usb:0403:6001`, `libusb:1a6e:089a`, `cdi:nvidia.com/gpu`. */
  readonly match: readonly string[];
}

/** A board has tens of nodes of one kind. More of one rule are left out. */
const MAX_DEVICES = 256;
/** Classes of /sys that have nodes of USB devices. */
const USB_CLASSES = ["tty", "video4linux", "hidraw", "sound", "usbmisc"];
/** Folders between a node of a USB device and the device: interface, port, hub. */
const MAX_PARENTS = 8;

export interface RuleMachine {
  /** "" on a real machine; tests have a folder. */
  readonly root: string;
  readonly cdiNames: () => Iterable<string>;
  /** True for a further name of a device. Missing: there are none. */
  readonly isAlias?: (cdiName: string) => boolean;
}

/** @returns IDs: paths of nodes, or names of CDI devices */
export function matchingDevices({ match }: DeviceRule, machine: RuleMachine): readonly OfferedDevice[] {
  const ids = new Set(match.flatMap((pattern) => matching(pattern, machine)));
  return [...ids].slice(0, MAX_DEVICES).map((id) => ({ id, isHealthy: true, nodes: [] }));
}

function matching(pattern: string, { root, cdiNames, isAlias }: RuleMachine): readonly string[] {
  if (pattern.startsWith("cdi:")) {
    const kind = pattern.slice("cdi:".length);
    const isOfClass = (name: string): boolean => name.startsWith(`${kind}=`) && isAlias?.(name) !== true;
    return [...cdiNames()].filter((name) => name === kind || isOfClass(name)).filter(isOneDevice);
  }
  if (pattern.startsWith("usb:")) return usbNodes(pattern.slice("usb:".length), root);
  if (pattern.startsWith("libusb:")) return busNodes(pattern.slice("libusb:".length), root);
  return globSync(join(root, pattern))
    .map((path) => path.slice(root.length))
    .filter((path) => isDeviceNode(join(root, path)))
    .sort();
}

/** `all` stands for several devices, which would be given twice. */
const isOneDevice = (name: string, _index: number, all: readonly string[]): boolean =>
  !name.endsWith("=all") || all.length === 1;

function isDeviceNode(path: string): boolean {
  try {
    const status = statSync(path);
    return status.isCharacterDevice() || status.isBlockDevice();
  } catch {
    return false;
  }
}

function usbNodes(identity: string, root: string): readonly string[] {
  const found: string[] = [];
  for (const kind of USB_CLASSES) {
    const folder = join(root, "/sys/class", kind);
    for (const name of namesIn(folder)) {
      const device = join(folder, name);
      if (usbIdentity(device) !== identity.toLowerCase()) continue;
      found.push(...nodesOf(device, root));
    }
  }
  return found.sort();
}

/** The nodes of the devices themselves, below /dev/bus/usb, which programs with libusb open. */
function busNodes(identity: string, root: string): readonly string[] {
  const folder = join(root, "/sys/bus/usb/devices");
  // The names of interfaces have a colon.
  const devices = namesIn(folder).filter((name) => !name.includes(":"));
  const own = devices.filter((name) => usbIdentity(join(folder, name)) === identity.toLowerCase());
  return own.flatMap((name) => nodesOf(join(folder, name), root)).sort();
}

/** @returns the node of a device of /sys, or none */
function nodesOf(device: string, root: string): readonly string[] {
  const node = /^DEVNAME=(.+)$/m.exec(textOf(join(device, "uevent")))?.[1];
  return node !== undefined && isDeviceNode(join(root, "/dev", node)) ? [join("/dev", node)] : [];
}

function usbIdentity(device: string): string | undefined {
  let folder = device;
  try {
    folder = realpathSync(device);
  } catch {
    ignore("it was unplugged in between");
  }
  for (let depth = 0; depth < MAX_PARENTS; depth += 1) {
    const vendor = textOf(join(folder, "idVendor")).trim();
    if (vendor !== "") return `${vendor}:${textOf(join(folder, "idProduct")).trim()}`;
    folder = dirname(folder);
  }
  return undefined;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Gives a container the nodes themselves. A symbolic link, such as /dev/serial/by-id/X, is there under its own name. */
export class RuleProvider implements DeviceProvider {
  readonly needsPreStart = false;
  readonly hasPreference = false;

  async preferred(available: readonly string[], _mustInclude: readonly string[], size: number) {
    return available.slice(0, size);
  }

  async allocate(ids: readonly string[]): Promise<DeviceAnswer> {
    const nodes = ids.filter((id) => id.startsWith("/"));
    return {
      ...NO_ANSWER,
      devices: nodes.map((path) => ({ containerPath: path, hostPath: path, permissions: "rw" })),
      cdiDevices: ids.filter((id) => !id.startsWith("/")).map((name) => ({ name })),
    };
  }

  async preStart(): Promise<void> {
    // Nodes need no preparation.
  }
}
