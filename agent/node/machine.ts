import { readdir, readFile, statfs } from "node:fs/promises";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Facts of this machine that do not change while the agent runs. */
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
  /** Missing without any. */
  readonly swapBytes?: number;
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
  /** Always "": deprecated; the kubelet clears it since Kubernetes 1.33 (KEP-4004). */
  readonly kubeProxyVersion: "";
  readonly operatingSystem: "linux";
  readonly architecture: string;
  /** Bytes; missing without swap. */
  readonly swap?: { readonly capacity: number };
}

const GO_ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ["x64", "amd64"],
  ["ia32", "386"],
  ["ppc64", "ppc64le"],
]);

/** The files in which firmware identifies the machine, best first: DMI, then device trees, in cAdvisor's order. */
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
  const swap = await swapBytes(root);
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
    ...(swap > 0 ? { swapBytes: swap } : {}),
  };
}

export function nodeInfo(machine: Machine, kubeletVersion: string, runtimes: readonly RuntimeStatus[]): NodeInfo {
  const [first] = runtimes;
  const { machineID, systemUUID, bootID, kernelVersion, osImage, architecture, swapBytes: swap } = machine;
  return {
    machineID,
    systemUUID,
    bootID,
    kernelVersion,
    osImage,
    containerRuntimeVersion: first === undefined ? "" : `${first.runtime}://${first.version}`,
    kubeletVersion,
    kubeProxyVersion: "",
    operatingSystem: "linux",
    architecture,
    ...(swap === undefined ? {} : { swap: { capacity: swap } }),
  };
}

/** `status.capacity` of a node: quantities by resource name, in the kubelet's units. */
export type NodeCapacity = Readonly<
  Record<"cpu" | "memory" | "pods" | "ephemeral-storage", string> & Record<`hugepages-${string}`, string>
>;

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
    ...(await hugePages("/")),
  };
}

const HUGE_PAGES_FOLDER = "sys/kernel/mm/hugepages";

/**
 * Reads the huge pages of each size that the kernel has, also where there are none: `hugepages-2Mi`, from the kernel's
 * names in KiB.
 */
export async function hugePages(root: string): Promise<Readonly<Record<`hugepages-${string}`, string>>> {
  const folder = join(root, HUGE_PAGES_FOLDER);
  const sizes = (await readdir(folder).catch(() => [])).flatMap((name) => {
    const size = /^hugepages-(\d+)kB$/.exec(name)?.[1];
    return size === undefined ? [] : [Number(size)];
  });
  const found = sizes.map(async (size): Promise<[`hugepages-${string}`, string]> => {
    const pages = Number(await readLine(join(folder, `hugepages-${size}kB`, "nr_hugepages"))) || 0;
    return [`hugepages-${bytesText(size * KIBIBYTE)}`, bytesText(pages * size * KIBIBYTE)];
  });
  return Object.fromEntries(await Promise.all(found));
}

const bytesText = (bytes: number): string =>
  formatQuantity({ nano: BigInt(bytes) * 1_000_000_000n, format: "BinarySI" });

/** Process ids below it are given once after boot, and never again (RESERVED_PIDS of the kernel's kernel/pid.c). */
const RESERVED_PIDS = 300;

/** The limit of processes and threads on this machine; undefined where the kernel has none. */
export async function maxPids(root = "/"): Promise<number | undefined> {
  const read = async (name: string): Promise<number> => Number(await readLine(join(root, "proc/sys/kernel", name)));
  const [numbers, threads] = await Promise.all([read("pid_max"), read("threads-max")]);
  const limits = [numbers - RESERVED_PIDS, threads].filter((limit) => limit > 0);
  return limits.length === 0 ? undefined : Math.min(...limits);
}

/** Bytes, zram among them; 0 without swap. */
export async function swapBytes(root = "/"): Promise<number> {
  const meminfo = await readFile(join(root, "proc/meminfo"), "utf8").catch(() => "");
  return Number(/^SwapTotal:\s+(\d+) kB/m.exec(meminfo)?.[1] ?? 0) * KIBIBYTE;
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
