import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { parseCpuList } from "../plan/node/cpu-list.ts";
import type { CpuPlace } from "./cpu-groups.ts";

export interface MachineTopology {
  /** The CPUs that are online, with their places. */
  readonly cpus: ReadonlyMap<number, CpuPlace>;
  /** How fast each CPU is beside the others, 1024 the fastest; empty where the kernel has them all alike. */
  readonly capacities: ReadonlyMap<number, number>;
  /** At least one, in ascending order. */
  readonly nodes: readonly NumaNode[];
}

export interface NumaNode {
  readonly id: number;
  readonly memoryBytes: number;
  /** The number of huge pages of each size. */
  readonly hugePages: readonly { readonly sizeBytes: number; readonly count: number }[];
  /** To each node in ascending order; undefined where the kernel does not say. */
  readonly distances: readonly number[] | undefined;
}

const CPUS = "sys/devices/system/cpu";
const NODES = "sys/devices/system/node";
/** L1 and L2 belong to a core or two; what is beyond them may be shared by a part of a NUMA node. */
const UNCORE_LEVEL = 3;

/**
 * As the kernel tells it. Boards with small kernels have no NUMA nodes and no topology of some CPUs: they are one node
 * and one socket, and each such CPU is a core.
 * @param root only tests name another one
 * @param cpuCount used where the kernel tells nothing at all
 */
export async function readMachineTopology(cpuCount: number, root = "/"): Promise<MachineTopology> {
  const read = async (path: string): Promise<string> =>
    (await readFile(join(root, path), "utf8").catch(() => "")).trim();
  const list = async (path: string): Promise<readonly number[] | undefined> => {
    const text = await read(path);
    return text === "" ? undefined : parseCpuList(text);
  };
  const online = (await list(`${CPUS}/online`)) ?? Array.from({ length: cpuCount }, (_, cpu) => cpu);
  const nodes = await readNodes(root, read);
  const nodeOf = new Map<number, number>();
  for (const { id } of nodes) for (const cpu of (await list(`${NODES}/node${id}/cpulist`)) ?? []) nodeOf.set(cpu, id);
  const first = nodes[0]?.id ?? 0;
  const isOnline = new Set(online);
  const cpus = new Map<number, CpuPlace>();
  const capacities = new Map<number, number>();
  const cores = new Map<string, number>();
  for (const cpu of online) {
    const folder = `${CPUS}/cpu${cpu}/topology`;
    const number = async (file: string): Promise<number | undefined> => wholeNumber(await read(`${folder}/${file}`));
    const socket = (await number("physical_package_id")) ?? 0;
    const threads = (await list(`${folder}/core_cpus_list`)) ?? (await list(`${folder}/thread_siblings_list`));
    const named = [socket, await number("cluster_id"), (await number("core_id")) ?? `cpu${cpu}`].join("/");
    if (!cores.has(named)) cores.set(named, cpu);
    const core = threads?.includes(cpu) ? threads.find((each) => isOnline.has(each)) : cores.get(named);
    const numaNode = nodeOf.get(cpu) ?? first;
    const own = online.filter((each) => (nodeOf.get(each) ?? first) === numaNode);
    const uncoreCache = (await uncoreCacheOf(cpu, own, { root, read, list })) ?? socket;
    const capacity = wholeNumber(await read(`${CPUS}/cpu${cpu}/cpu_capacity`));
    if (capacity !== undefined) capacities.set(cpu, capacity);
    cpus.set(cpu, { numaNode, socket, core: core ?? cpu, uncoreCache });
  }
  return { cpus, capacities, nodes };
}

interface Reader {
  readonly root: string;
  readonly read: (path: string) => Promise<string>;
  readonly list: (path: string) => Promise<readonly number[] | undefined>;
}

/** One that all CPUs of the node share divides nothing. */
async function uncoreCacheOf(
  cpu: number,
  ofNode: readonly number[],
  { root, read, list }: Reader,
): Promise<number | undefined> {
  const folder = `${CPUS}/cpu${cpu}/cache`;
  const caches = await readdir(join(root, folder)).catch(() => []);
  for (const name of caches.filter((each) => /^index\d+$/.test(each)).sort()) {
    const level = wholeNumber(await read(`${folder}/${name}/level`));
    if (level === undefined || level < UNCORE_LEVEL) continue;
    const shared = (await list(`${folder}/${name}/shared_cpu_list`)) ?? [];
    if (ofNode.every((each) => shared.includes(each))) return undefined;
    return wholeNumber(await read(`${folder}/${name}/id`)) ?? shared[0];
  }
  return undefined;
}

async function readNodes(root: string, read: Reader["read"]): Promise<readonly NumaNode[]> {
  const found = (await readdir(join(root, NODES)).catch(() => [])).flatMap((name) => {
    const id = /^node(\d{1,4})$/.exec(name)?.[1];
    return id === undefined ? [] : [Number(id)];
  });
  const ids = found.sort((left, right) => left - right);
  const nodes = ids.map(async (id): Promise<NumaNode> => {
    const folder = `${NODES}/node${id}`;
    const distances = (await read(`${folder}/distance`)).split(/\s+/).map(wholeNumber);
    return {
      id,
      memoryBytes: totalMemory(await read(`${folder}/meminfo`)) ?? totalMemory(await read("proc/meminfo")) ?? 0,
      hugePages: await readHugePages(root, `${folder}/hugepages`, read),
      distances: distances.every((each) => each !== undefined) ? distances : undefined,
    };
  });
  if (nodes.length > 0) return await Promise.all(nodes);
  const memoryBytes = totalMemory(await read("proc/meminfo")) ?? 0;
  const hugePages = await readHugePages(root, "sys/kernel/mm/hugepages", read);
  return [{ id: 0, memoryBytes, hugePages, distances: undefined }];
}

async function readHugePages(root: string, folder: string, read: Reader["read"]): Promise<NumaNode["hugePages"]> {
  const sizes = (await readdir(join(root, folder)).catch(() => [])).flatMap((name) => {
    const size = /^hugepages-(\d{1,10})kB$/.exec(name)?.[1];
    return size === undefined ? [] : [Number(size)];
  });
  const pages = sizes
    .sort((left, right) => left - right)
    .map(async (size) => ({
      sizeBytes: size * KIBIBYTE,
      count: wholeNumber(await read(`${folder}/hugepages-${size}kB/nr_hugepages`)) ?? 0,
    }));
  return await Promise.all(pages);
}

function totalMemory(text: string): number | undefined {
  const kilobytes = /(?:^|\s)MemTotal:\s*(\d{1,12}) kB/.exec(text)?.[1];
  return kilobytes === undefined ? undefined : Number(kilobytes) * KIBIBYTE;
}

/** The kernel writes -1 for what it does not know. */
const wholeNumber = (text: string): number | undefined => (/^\d{1,9}$/.test(text) ? Number(text) : undefined);
