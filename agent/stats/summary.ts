/** Makes the kubelet's Summary API (k8s.io/kubelet, stats/v1alpha1, of Kubernetes 1.34) from samples. Pure. */

import type {
  ContainerUsage,
  DiskUsage,
  FilesystemUsage,
  PodDiskUsage,
  PodUsage,
  PressureStalls,
  Stall,
  StallRecord,
  Usage,
} from "../core/node/usage.ts";
import { rfc3339 } from "../core/pods/pod-object.ts";
import type { TimedUsage } from "./cgroup-sampler.ts";
import type { FilesystemSample } from "./filesystem-sampler.ts";
import type { NetworkInterface } from "./machine-usage.ts";

/** The usage of a cgroup or of the machine, with its rate. */
export interface Rated {
  readonly usage: Usage;
  /** Undefined: not known yet. */
  readonly nanoCores: number | undefined;
  readonly atMs: number;
}

/** A volume that is a file system of its own: in memory, or of a driver. */
export interface MountedVolume {
  readonly name: string;
  /** The claim that the volume comes from. */
  readonly pvcRef?: { readonly name: string; readonly namespace: string };
  readonly usage: FilesystemUsage;
  /** As the volume's driver reports it; missing: it reports none. */
  readonly isAbnormal?: boolean;
}

/** What is known of one pod besides its cgroups. */
export interface PodDetails {
  readonly interfaces: readonly NetworkInterface[];
  /** Undefined: they are not counted. */
  readonly processes: number | undefined;
  /** Undefined: not measured. */
  readonly disk: PodDiskUsage | undefined;
  /** False: volumes are not measured here. */
  readonly showVolumes: boolean;
  readonly mounted: readonly MountedVolume[];
  readonly filesystems: FilesystemSample;
}

/** The interface that stands for the whole pod. */
const DEFAULT_INTERFACE = "eth0";

export function cpuAndMemory({ usage, nanoCores, atMs }: Rated): object {
  const time = rfc3339(atMs);
  const { memoryLimitBytes, workingSetBytes, memoryBytes, rssBytes, pageFaults, majorPageFaults, pressure } = usage;
  return {
    cpu: {
      time,
      ...(nanoCores === undefined ? {} : { usageNanoCores: nanoCores }),
      usageCoreNanoSeconds: usage.cpuNanoseconds,
      ...stalls(pressure, "cpu"),
    },
    memory: {
      time,
      ...(memoryLimitBytes === undefined ? {} : { availableBytes: Math.max(0, memoryLimitBytes - workingSetBytes) }),
      ...{ usageBytes: memoryBytes, workingSetBytes, rssBytes, pageFaults, majorPageFaults },
      ...stalls(pressure, "memory"),
    },
    swap: swapOf(usage, time),
  };
}

function swapOf({ swapBytes, swapLimitBytes }: Usage, time: string): object {
  const available = swapLimitBytes === undefined ? {} : { swapAvailableBytes: Math.max(0, swapLimitBytes - swapBytes) };
  return { time, ...available, swapUsageBytes: swapBytes };
}

/** Left out where the kernel has no such information. */
export function inputOutput({ pressure }: Usage, atMs: number): object {
  return pressure?.io === undefined ? {} : { io: { time: rfc3339(atMs), ...stalls(pressure, "io") } };
}

function stalls(pressure: PressureStalls | undefined, of: keyof PressureStalls): object {
  const record = pressure?.[of];
  return record === undefined ? {} : { psi: psiOf(record) };
}

const psiOf = ({ some, full = NO_STALL }: StallRecord): object => ({ full: stallOf(full), some: stallOf(some) });

/** The API speaks of nanoseconds; what kubelets show are the kernel's microseconds. */
const stallOf = ({ avg10, avg60, avg300, totalUs }: Stall): object => ({ total: totalUs, avg10, avg60, avg300 });

const NO_STALL: Stall = { avg10: 0, avg60: 0, avg300: 0, totalUs: 0 };

/** The first is shown for all where none has the default's name. */
export function network(interfaces: readonly NetworkInterface[], atMs: number): object {
  const shown = interfaces.map(({ name, rxBytes, rxErrors, txBytes, txErrors }) => {
    return { name, rxBytes, rxErrors, txBytes, txErrors };
  });
  const [first] = shown;
  if (first === undefined) return {};
  const main = shown.find(({ name }) => name === DEFAULT_INTERFACE) ?? first;
  return { network: { time: rfc3339(atMs), ...main, interfaces: shown } };
}

/** The file systems of the node; what the runtime itself says that it uses counts for its own. */
export function nodeFilesystems({ nodefs, imagefs, containerfs, runtime, atMs }: FilesystemSample): object {
  const own = (usage: FilesystemUsage, used: FilesystemSample["runtime"], of: "images" | "containers"): object =>
    used === undefined
      ? filesystem(usage, usage, atMs)
      : filesystem(usage, { usedBytes: used[of].usedBytes, inodesUsed: used[of].inodesUsed }, atMs);
  return {
    fs: filesystem(nodefs, nodefs, atMs),
    runtime: { imageFs: own(imagefs, runtime, "images"), containerFs: own(containerfs, runtime, "containers") },
  };
}

function filesystem(
  { availableBytes, capacityBytes, inodesFree, inodes }: FilesystemUsage,
  { usedBytes, inodesUsed }: Pick<FilesystemUsage, "usedBytes" | "inodesUsed">,
  atMs: number,
): object {
  return { time: rfc3339(atMs), availableBytes, capacityBytes, usedBytes, inodesFree, inodes, inodesUsed };
}

const taken = ({ bytes, inodes }: DiskUsage) => ({ usedBytes: bytes, inodesUsed: inodes });

/** A container's part, without CPU and memory. */
export function containerDetails(
  { container, usage }: ContainerUsage,
  { disk, filesystems }: PodDetails,
  sample: Pick<TimedUsage, "atMs">,
): object {
  const rootfs = disk?.rootfs.get(container.name);
  const logs = disk?.logs.get(container.name);
  const measuredAtMs = disk?.atMs ?? 0;
  return {
    ...inputOutput(usage, sample.atMs),
    ...(rootfs === undefined ? {} : { rootfs: filesystem(filesystems.containerfs, taken(rootfs), measuredAtMs) }),
    ...(logs === undefined ? {} : { logs: filesystem(filesystems.nodefs, taken(logs), measuredAtMs) }),
  };
}

/** A pod's part, without CPU and memory. */
export function podDetails({ usage }: PodUsage, details: PodDetails, { atMs }: Pick<TimedUsage, "atMs">): object {
  const { interfaces, processes, disk, filesystems } = details;
  return {
    ...(usage === undefined ? {} : inputOutput(usage, atMs)),
    ...network(interfaces, atMs),
    ...volumes(details, atMs),
    ...(disk === undefined
      ? {}
      : { "ephemeral-storage": filesystem(filesystems.nodefs, taken(ephemeral(disk)), disk.atMs) }),
    ...(processes === undefined ? {} : { process_stats: { process_count: processes } }),
  };
}

function volumes({ disk, showVolumes, mounted, filesystems }: PodDetails, atMs: number): object {
  if (!showVolumes) return {};
  const onNode = [...(disk?.volumes ?? [])].map(([name, usage]) => ({
    ...filesystem(filesystems.nodefs, taken(usage), disk?.atMs ?? atMs),
    name,
  }));
  const all = [
    ...onNode,
    ...mounted.map(({ name, pvcRef, usage, isAbnormal }) => ({
      ...filesystem(usage, usage, atMs),
      name,
      ...(pvcRef === undefined ? {} : { pvcRef }),
      ...(isAbnormal === undefined ? {} : { volumeHealthStats: { abnormal: isAbnormal } }),
    })),
  ];
  return all.length === 0 ? {} : { volume: all };
}

/** All that a pod has on the node's disks. */
function ephemeral({ rootfs, logs, volumes: onNode, otherBytes }: PodDiskUsage): DiskUsage {
  const parts = [...rootfs.values(), ...logs.values(), ...onNode.values()];
  return {
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, otherBytes),
    inodes: parts.reduce((sum, { inodes }) => sum + inodes, 0),
  };
}
