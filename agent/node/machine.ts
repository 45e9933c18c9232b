import { readFile, statfs } from "node:fs/promises";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import type { RuntimeStatus } from "../../runtime-adapters/contract/runtime-adapter.ts";

/** What of this machine does not change while the agent runs. */
export interface Machine {
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly kernelVersion: string;
  readonly osImage: string;
  /** Go's names, as Kubernetes uses them: `amd64`, `arm64`, `arm`. */
  readonly architecture: string;
  readonly cpus: number;
  readonly memoryBytes: number;
}

/** `status.nodeInfo` of a node. */
export interface NodeInfo {
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly kernelVersion: string;
  readonly osImage: string;
  /** `containerd://1.7.2`; of several runtimes the first. */
  readonly containerRuntimeVersion: string;
  readonly kubeletVersion: string;
  readonly operatingSystem: "linux";
  readonly architecture: string;
}

const GO_ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ["x64", "amd64"],
  ["ia32", "386"],
  ["ppc64", "ppc64le"],
]);

/** Where firmware says which machine this is, best first: DMI, then device trees, as cAdvisor looks for it. */
const SYSTEM_UUID_FILES = [
  "sys/class/dmi/id/product_uuid",
  "proc/device-tree/system-id",
  "proc/device-tree/vm,uuid",
  "proc/device-tree/serial-number",
];

/** @param root only tests name another one */
export async function readMachine(root = "/"): Promise<Machine> {
  const read = (path: string): Promise<string> => readLine(join(root, path));
  const machineID = (await read("etc/machine-id")) || (await read("var/lib/dbus/machine-id"));
  let systemUUID = "";
  for (const file of SYSTEM_UUID_FILES) systemUUID ||= await read(file);
  return {
    machineID,
    systemUUID: systemUUID || machineID,
    bootID: await read("proc/sys/kernel/random/boot_id"),
    kernelVersion: release(),
    osImage: prettyName(await readFile(join(root, "etc/os-release"), "utf8").catch(() => "")),
    architecture: GO_ARCHITECTURES.get(process.arch) ?? process.arch,
    cpus: cpus().length,
    memoryBytes: totalmem(),
  };
}

export function nodeInfo(machine: Machine, kubeletVersion: string, runtimes: readonly RuntimeStatus[]): NodeInfo {
  const [first] = runtimes;
  const { machineID, systemUUID, bootID, kernelVersion, osImage, architecture } = machine;
  return {
    machineID,
    systemUUID,
    bootID,
    kernelVersion,
    osImage,
    containerRuntimeVersion: first === undefined ? "" : `${first.runtime}://${first.version}`,
    kubeletVersion,
    operatingSystem: "linux",
    architecture,
  };
}

/** `status.capacity` of a node: quantities by resource name, in the kubelet's units. */
export type NodeCapacity = Readonly<Record<"cpu" | "memory" | "pods" | "ephemeral-storage", string>>;

/** As many pods as the node may have: `podsPerCore` for each of its cores when that is set, `maxPods` at most. */
export function podCapacity(
  { maxPods, podsPerCore }: { readonly maxPods: number; readonly podsPerCore: number },
  { cpus: cores }: Pick<Machine, "cpus">,
): number {
  return podsPerCore > 0 ? Math.min(podsPerCore * cores, maxPods) : maxPods;
}

/** @param rootDir `ephemeral-storage` is the size of the file system that holds it. */
export async function nodeCapacity(machine: Machine, rootDir: string, maxPods: number): Promise<NodeCapacity> {
  const { blocks, bsize } = await statfs(rootDir);
  return {
    cpu: String(machine.cpus),
    memory: `${Math.floor(machine.memoryBytes / 1024)}Ki`,
    pods: String(maxPods),
    "ephemeral-storage": `${Math.floor((blocks * bsize) / 1024)}Ki`,
  };
}

/** "" when it cannot be read. Device trees end their strings with a NUL. */
async function readLine(path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch(() => "");
  return text.replaceAll("\0", "").trim();
}

/** os-release(5): a shell assignment, quoted or not. */
function prettyName(osRelease: string): string {
  const value = /^PRETTY_NAME=(.*)$/m.exec(osRelease)?.[1]?.trim() ?? "Linux";
  return value.replace(/^(["'])(.*)\1$/, "$2").replace(/\\(["'$`\\])/g, "$1");
}
