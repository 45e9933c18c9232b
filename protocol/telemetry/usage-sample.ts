/**
 * A sample of a board's usage, which it pushes once in an interval: counters and gauges of the node, its file systems,
 * its agent, its pods and containers. `sample-codec.ts` gives it its compact form. Pure.
 *
 * Counters are cumulative, and count from a beginning that is reported with them. A beginning that differs from the one
 * before marks a reset, and nothing else does: a restart of the agent resets only the agent's own counters.
 */

/** Bytes travel in KiB, rounded down. */
export type Figures<Name extends string> = Readonly<Partial<Record<Name, number>>>;

/** A new name is added at the end: an older hub passes it over, and an older board does not send it. */
export const NODE_FIGURES = ["cpuMs", "workingSetBytes", "memoryCapacityBytes", "swapBytes", "processes"] as const;
export type NodeFigures = Figures<(typeof NODE_FIGURES)[number]>;

export const FILESYSTEM_FIGURES = ["capacityBytes", "availableBytes", "usedBytes", "inodes", "inodesFree"] as const;
export type FilesystemFigures = Figures<(typeof FILESYSTEM_FIGURES)[number]>;

/** The kubelet's file systems. One that is the same as an earlier one is left out. */
export const FILESYSTEMS = ["nodefs", "imagefs", "containerfs"] as const;
export type FilesystemName = (typeof FILESYSTEMS)[number];

/**
 * Figures of the board itself. The counters (`agentCpuMs`, `tunnel…`) begin with the agent. `flash…` is what was written
 * today (UTC) by all programs. A distance is what is left until the hard eviction threshold of its signal; 0: reached.
 */
export const BOARD_FIGURES = [
  "agentCpuMs",
  "agentAnonymousBytes",
  "tunnelReceivedBytes",
  "tunnelSentBytes",
  "tunnelSessions",
  "flashTodayBytes",
  "memoryDistanceBytes",
  "nodefsDistanceBytes",
  "imagefsDistanceBytes",
  "processesDistance",
] as const;
export type BoardFigures = Figures<(typeof BOARD_FIGURES)[number]>;

export interface CpuAndMemory {
  readonly cpuMs: number;
  readonly workingSetBytes: number;
}

export interface SampledContainer {
  readonly name: string;
  /** Seconds since 1970: when it was started, or later if its counter was reset since. */
  readonly sinceSeconds: number;
}

export interface SampledPod {
  readonly namespace: string;
  readonly name: string;
  /** The API server's UID. */
  readonly uid: string;
  /** Seconds since 1970; 0: unknown. */
  readonly sinceSeconds: number;
  readonly containers: readonly SampledContainer[];
}

export interface PodSample {
  readonly pod: SampledPod;
  /** Undefined: it has no cgroup of its own. */
  readonly usage: CpuAndMemory | undefined;
  /** In the order of `pod.containers`; undefined: it does not run now. */
  readonly containers: readonly (CpuAndMemory | undefined)[];
}

export interface UsageSample {
  /** Wall time of the figures. */
  readonly atMs: number;
  /** The board did not know what time it was: `atMs` is its guess. */
  readonly isEstimated: boolean;
  /** The machine's boot id (a UUID): the beginning of the node's counters. */
  readonly bootId: string;
  /** Seconds since 1970: the beginning of the agent's counters. */
  readonly agentSinceSeconds: number;
  readonly node: NodeFigures;
  readonly filesystems: Readonly<Partial<Record<FilesystemName, FilesystemFigures>>>;
  readonly board: BoardFigures;
  readonly pods: readonly PodSample[];
}

/** Bounds a hub's memory for one board; five times what a kubelet runs. The pods after these are left out. */
export const MAX_SAMPLED_PODS = 512;
/** Bounds the containers of all pods of a board together. Pods with more than fit are left out. */
export const MAX_SAMPLED_CONTAINERS = 1024;
export const MAX_POD_CONTAINERS = 64;
/** The least that a hub may ask for: a sample reads two files for each cgroup. */
export const MIN_SAMPLE_INTERVAL_SECONDS = 10;
/** A board of which nothing is heard for longer counts as away: its figures would be of no use to a scaler. */
export const MAX_SAMPLE_INTERVAL_SECONDS = 3600;
