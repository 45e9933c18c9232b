/**
 * What a node, its pods, its containers and its file systems use. `agent/stats` looks; eviction, statistics and metrics
 * share its looks.
 */
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../pods/agent-pod.ts";

/** Of one cgroup with all below it, or of the whole machine. Counters are of all time. */
export interface Usage {
  readonly cpuNanoseconds: number;
  /** What its CPU quota kept from it; undefined where it has no quota. */
  readonly throttledNanoseconds?: number | undefined;
  readonly memoryBytes: number;
  /** What cannot be given back at once: memory without inactive page cache, as cAdvisor and the kubelet have it. */
  readonly workingSetBytes: number;
  readonly rssBytes: number;
  readonly swapBytes: number;
  /** Undefined: no limit of its own, or nobody says. */
  readonly swapLimitBytes?: number | undefined;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
  /** Undefined: none. */
  readonly memoryLimitBytes: number | undefined;
  /** Processes and threads; undefined where nobody counts them. */
  readonly pids?: number | undefined;
  /** Undefined: the kernel has no pressure stall information, or none for this cgroup. */
  readonly pressure?: PressureStalls | undefined;
}

/** Pressure stall information (the kernel's Documentation/accounting/psi.rst). */
export type PressureStalls = Readonly<Partial<Record<"cpu" | "memory" | "io", StallRecord>>>;

export interface StallRecord {
  readonly some: Stall;
  /** Missing for the CPU of the whole machine on old kernels. */
  readonly full?: Stall | undefined;
}

export interface Stall {
  /** Percent of the time, over 10, 60 and 300 seconds. */
  readonly avg10: number;
  readonly avg60: number;
  readonly avg300: number;
  /** Of all time, microseconds. */
  readonly totalUs: number;
}

export interface ContainerUsage {
  readonly container: ObservedContainer;
  readonly startedAtMs: number;
  /** Its cgroup, below every hierarchy's mount point; "": it shares its process with others. */
  readonly path: string;
  readonly usage: Usage;
}

export interface PodUsage {
  readonly pod: AgentPod;
  /** "" without a cgroup of its own. */
  readonly path: string;
  /** Undefined: it has no cgroup of its own. */
  readonly usage: Usage | undefined;
  readonly containers: readonly ContainerUsage[];
}

export interface NodeUsage {
  /** Wall time of the look. */
  readonly atMs: number;
  readonly node: Usage;
  /** Of all pods together, from the cgroup above theirs; undefined where there is none. */
  readonly allPods: Usage | undefined;
  /** Those of which there was something to read. */
  readonly pods: readonly PodUsage[];
}

export interface FilesystemUsage {
  readonly capacityBytes: number;
  /** For users that are not root, as statfs has it. */
  readonly availableBytes: number;
  readonly usedBytes: number;
  /** 0: this file system does not count them (btrfs, FAT). */
  readonly inodes: number;
  readonly inodesFree: number;
  readonly inodesUsed: number;
}

/**
 * The kubelet's: `nodefs` holds volumes and logs, `imagefs` images, `containerfs` what containers write. Those that are
 * the same file system are the same object. A node that runs only components has its images in its root directory.
 */
export interface NodeFilesystems {
  readonly nodefs: FilesystemUsage;
  readonly imagefs: FilesystemUsage;
  readonly containerfs: FilesystemUsage;
}

export interface DiskUsage {
  readonly bytes: number;
  readonly inodes: number;
}

/** Everything of one pod on the node's disks. */
export interface PodDiskUsage {
  /** What containers have written to their own file systems, by container name. */
  readonly rootfs: ReadonlyMap<string, DiskUsage>;
  /** By container name. */
  readonly logs: ReadonlyMap<string, DiskUsage>;
  /**
   * Volumes that live on the node and go with the pod (emptyDir, configMap …), by name; those in memory are not among
   * them.
   */
  readonly volumes: ReadonlyMap<string, DiskUsage>;
  /** /etc/hosts and the like. */
  readonly otherBytes: number;
  /** Wall time of the measurement. */
  readonly atMs: number;
}

/**
 * The one collection. Who asks while a look is under way gets that look; nothing is read while nobody asks.
 * Processes and cgroups that vanish while they are read are left out, never an error.
 */
export interface UsageSampler {
  /** CPU, memory, processes, pressure. @param maxAge a look that is no older will do; 0: a new one */
  sample(maxAge: Millis, signal: AbortSignal): Promise<NodeUsage>;
  filesystems(maxAge: Millis, signal: AbortSignal): Promise<NodeFilesystems>;
  /**
   * What pods have on disk: walks are paced, and a pod whose folders are large is measured less often than asked for.
   */
  disk(maxAge: Millis, signal: AbortSignal): Promise<ReadonlyMap<PodUid, PodDiskUsage>>;
}
