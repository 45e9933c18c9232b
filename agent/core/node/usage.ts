/**
 * Resource usage of the node, its pods, containers and file systems. `agent/stats` samples it; eviction, statistics and
 * metrics share the samples.
 */
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../pods/agent-pod.ts";

/** Usage of one cgroup with its children, or of the whole machine. Counters start at its creation. */
export interface Usage {
  readonly cpuNanoseconds: number;
  /** Time in which the CPU quota throttled it; undefined without a quota. */
  readonly throttledNanoseconds?: number | undefined;
  readonly memoryBytes: number;
  /** Memory without inactive page cache, as in cAdvisor and the kubelet. */
  readonly workingSetBytes: number;
  readonly rssBytes: number;
  readonly swapBytes: number;
  /** Undefined: no limit of its own, or unknown. */
  readonly swapLimitBytes?: number | undefined;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
  /** Undefined: none. */
  readonly memoryLimitBytes: number | undefined;
  /** Processes and threads; undefined: not counted. */
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
  /** Total since boot, in microseconds. */
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
  /** Wall time of the sample. */
  readonly atMs: number;
  readonly node: Usage;
  /** All pods together, from their parent cgroup; undefined without one. */
  readonly allPods: Usage | undefined;
  /** Those of which there was something to read. */
  readonly pods: readonly PodUsage[];
  /** Missing: none. */
  readonly protectedCache?: ProtectedBytes | undefined;
}

/** Inactive page cache that the kernel cannot take back, of the machine and of all pods. No working set includes it. */
export interface ProtectedBytes {
  readonly node: number;
  readonly pods: number;
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
  /** Usage of writable layers, by container name. */
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
 * The only sampler of usage. A call during a sample shares that sample; nothing is read without a call. Processes and
 * cgroups that vanish while they are read are left out, and are never an error.
 */
export interface UsageSampler {
  /** CPU, memory, processes, pressure. @param maxAge of an acceptable earlier sample; 0: a new one */
  sample(maxAge: Millis, signal: AbortSignal): Promise<NodeUsage>;
  filesystems(maxAge: Millis, signal: AbortSignal): Promise<NodeFilesystems>;
  /** Disk usage of pods. Walks are paced: a pod with large folders is measured less often than requested. */
  disk(maxAge: Millis, signal: AbortSignal): Promise<ReadonlyMap<PodUid, PodDiskUsage>>;
}
