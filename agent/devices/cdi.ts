/**
 * CDI specifications (https://github.com/cncf-tags/container-device-interface): what a device adds to a container.
 * containerd 1.6 does not know CDI, and 1.7 has it off. So the edits are applied here as far as CRI can express them; a
 * device with hooks is left to the runtime.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DeviceLaunch } from "../core/pods/container-devices.ts";

/** NVIDIA's specification of a Jetson has some 300 mounts in 60 KB. */
const MAX_SPEC_BYTES = MEBIBYTE;
const MAX_SPECS = 64;
const MAX_EDITS = 4096;

type Fields = Readonly<Record<string, unknown>>;

export interface CdiDevice {
  /** `vendor.com/class=name` */
  readonly name: string;
  readonly edits: readonly Fields[];
}

interface ReadSpec {
  /** Changes with the file. */
  readonly version: string;
  readonly devices: readonly CdiDevice[];
}

export interface CdiSpecsInit {
  /** Devices of later ones win, as in CDI. */
  readonly folders: readonly string[];
  /** Called for each file that cannot be used, and again when it has changed. */
  readonly problem: (path: string, why: string) => void;
}

/**
 * The specifications of the machine. A file is parsed again when it has changed: NVIDIA's of a Jetson takes 25 ms of a
 * fast processor, and is read every half minute.
 */
export class CdiSpecs {
  readonly #init: CdiSpecsInit;
  /** By path. */
  #read: ReadonlyMap<string, ReadSpec> = new Map();

  constructor(init: CdiSpecsInit) {
    this.#init = init;
  }

  async devices(): Promise<ReadonlyMap<string, CdiDevice>> {
    const specs = new Map<string, ReadSpec>();
    for (const path of this.#init.folders.flatMap(specsIn).slice(0, MAX_SPECS)) {
      const [version, before] = [versionOf(path), this.#read.get(path)];
      specs.set(path, before?.version === version ? before : { version, devices: await this.#parse(path) });
    }
    this.#read = specs;
    return new Map(
      [...specs.values()].flatMap(({ devices }) => devices.map((device) => [device.name, device] as const)),
    );
  }

  async #parse(path: string): Promise<readonly CdiDevice[]> {
    try {
      if (statSync(path).size > MAX_SPEC_BYTES) throw new Error(`it has more than ${MAX_SPEC_BYTES} bytes`);
      const { parse } = await import("yaml");
      const spec: unknown = parse(readFileSync(path, "utf8"), { maxAliasCount: 0 });
      return devicesOf(spec);
    } catch (error) {
      this.#init.problem(path, error instanceof Error ? error.message : String(error));
      return [];
    }
  }
}

function versionOf(path: string): string {
  const status = statSync(path, { throwIfNoEntry: false });
  return status === undefined ? "" : [status.ino, status.size, status.mtimeMs, status.ctimeMs].join(":");
}

function specsIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /\.(yaml|json)$/.test(name))
      .sort()
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}

function devicesOf(spec: unknown): readonly CdiDevice[] {
  if (!isRecord(spec) || typeof spec.kind !== "string" || !Array.isArray(spec.devices))
    throw new Error("it has no kind, or no devices");
  const { kind } = spec;
  const common = isRecord(spec.containerEdits) ? [spec.containerEdits] : [];
  return spec.devices.map((device: unknown) => {
    if (!isRecord(device) || (typeof device.name !== "string" && typeof device.name !== "number"))
      throw new Error("a device has no name");
    const own = isRecord(device.containerEdits) ? [device.containerEdits] : [];
    return { name: `${kind}=${device.name}`, edits: [...common, ...own] };
  });
}

/** NVIDIA's generator names each GPU by its index and by its UUID, such as `GPU-0650a168-e770-…`. */
const UUID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** @returns the UUIDs of devices that have another name, too: both name one device, which one container has */
export function uuidsOfNamed(known: ReadonlyMap<string, CdiDevice>): ReadonlySet<string> {
  const [uuids, named] = [new Set<string>(), new Set<string>()];
  const keyOf = ({ name, edits }: CdiDevice): string => `${name.split("=", 1)[0]} ${JSON.stringify(edits)}`;
  for (const device of known.values()) if (!UUID.test(device.name)) named.add(keyOf(device));
  for (const device of known.values()) if (UUID.test(device.name) && named.has(keyOf(device))) uuids.add(device.name);
  return uuids;
}

/**
 * Applies the edits of the launch's CDI devices.
 * @param canRuntime whether the runtime applies CDI devices itself
 * @throws `not_found` for an unknown device, `unimplemented` for one that only a runtime can apply
 */
export function withCdiEdits(
  launch: DeviceLaunch,
  known: ReadonlyMap<string, CdiDevice>,
  canRuntime: boolean,
): DeviceLaunch {
  const left: string[] = [];
  const edits: Fields[] = [];
  for (const name of launch.cdiDevices) {
    const device = known.get(name);
    if (device === undefined) {
      const message = `there is no CDI device ${name} in /etc/cdi or /var/run/cdi`;
      throw new PicoletError("not_found", message, { reason: "CreateContainerConfigError", retryable: true });
    }
    if (device.edits.every(isExpressible)) edits.push(...device.edits.filter((each) => !edits.includes(each)));
    else if (canRuntime) left.push(name);
    else {
      const message = `cannot apply the CDI device ${name}: it has hooks, which need containerd 1.7 with enable_cdi, or 2.0`;
      throw new PicoletError("unimplemented", message, { reason: "CreateContainerConfigError" });
    }
  }
  return {
    ...launch,
    env: [...launch.env, ...edits.flatMap(({ env }) => texts(env).map(variable))],
    mounts: [...launch.mounts, ...edits.flatMap(({ mounts }) => records(mounts).map(mountOf))],
    devices: [...launch.devices, ...edits.flatMap(({ deviceNodes }) => records(deviceNodes).map(nodeOf))],
    cdiDevices: left,
  };
}

const EXPRESSIBLE: ReadonlySet<string> = new Set(["env", "mounts", "deviceNodes"]);

const isExpressible = (edits: Fields): boolean =>
  Object.entries(edits).every(([name, value]) => EXPRESSIBLE.has(name) || (Array.isArray(value) && value.length === 0));

const records = (value: unknown): readonly Fields[] =>
  (Array.isArray(value) ? value : []).slice(0, MAX_EDITS).filter(isRecord);
const texts = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value : []).slice(0, MAX_EDITS).filter((each) => typeof each === "string");

function variable(text: string): { readonly name: string; readonly value: string } {
  const [name = "", ...value] = text.split("=");
  return { name, value: value.join("=") };
}

function pathOf(value: unknown, fallback: unknown): string {
  const path = value === undefined || value === "" ? fallback : value;
  if (typeof path === "string" && isAbsolute(path)) return path;
  throw new PicoletError("invalid", `cannot use the path ${JSON.stringify(path)} of a CDI device: it must be absolute`);
}

function mountOf({ hostPath, containerPath, options }: Fields): DeviceLaunch["mounts"][number] {
  return {
    hostPath: pathOf(hostPath, undefined),
    containerPath: pathOf(containerPath, hostPath),
    readOnly: texts(options).includes("ro"),
    propagation: "private",
  };
}

function nodeOf({ path, hostPath, permissions }: Fields): DeviceLaunch["devices"][number] {
  const allowed = typeof permissions === "string" && /^[rwm]{1,3}$/.test(permissions) ? permissions : "rwm";
  const own = pathOf(path, undefined);
  return { containerPath: own, hostPath: pathOf(hostPath, own), readOnly: false, permissions: allowed };
}
