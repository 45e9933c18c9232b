/**
 * Defaults that follow from the machine. The kubelet's are for servers: of a board with 512 MB its 100Mi of
 * memory.available are a fifth, and without a reservation pods are promised memory that the system has in use.
 */
import { GIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";

/** The machine that a configuration is for. What is missing is not known, and the configuration is not judged by it. */
export interface Board {
  readonly memoryBytes: number;
  readonly cpus?: number;
  readonly maxPids?: number | undefined;
  /** The size of the file system of ephemeral storage. */
  readonly ephemeralStorageBytes?: number;
  /** zram is swap too. */
  readonly swapBytes?: number;
  /** True when the machine has cgroup v2 only. */
  readonly unifiedCgroups?: boolean;
}

/** A value that no file gave, and how it came about; the path is that of a problem with it. */
export interface DerivedValue {
  readonly path: string;
  readonly how: string;
}

/**
 * The available memory below which eviction begins. A container that fills memory at 100 MB/s has taken 50 MB when it
 * is killed half a second later (the goal, `npm run bench`: eviction.crossingToKillMs), which is a tenth of a 512 MB
 * board. Smaller boards keep a tenth too, but at least 24 MiB: below the kernel's watermarks at about 4 MiB every
 * allocation waits, and agent and runtime must read another 20 MiB from flash in order to kill. From 1 GiB on it is the
 * kubelet's 100Mi.
 */
const MEMORY_AVAILABLE = { share: 0.1, least: 24 * MEBIBYTE, most: 100 * MEBIBYTE };

/**
 * What is not for pods: measured, in anonymous memory, 40 MiB for a Debian without desktop, 30 for containerd, 22 for
 * the agent with pods, and 3 for the shim of each pod, of which boards have the more the larger they are (ten with 512
 * MB: a sixteenth). Without containers there are neither containerd nor shims. Never more than a quarter, or a small
 * board would have nothing left; from 2.5 GiB on it does not grow. So a node whose pods take no more than they request
 * is not under pressure.
 */
const SYSTEM_MEMORY = {
  withContainers: 96 * MEBIBYTE,
  without: 64 * MEBIBYTE,
  forShims: 1 / 16,
  most: 256 * MEBIBYTE,
  share: 0.25,
};

/**
 * So many of the processes there can be are no pod's, and eviction begins when so many are left: a fork bomb ends with
 * its eviction, and until then the agent and the runtime can start what they need. The kubelet has no default for
 * either.
 */
const PIDS_SHARE = 0.1;

/**
 * The kubelet's: they scale with the disk by themselves. Of an SD card with 8 GB, of which 5 are for data, they keep
 * 0.5 GB; the agent's database and the logs that it rotates take some MB of that, the next image that is unpacked the
 * rest.
 */
const FILESYSTEMS = {
  "nodefs.available": "10%",
  "nodefs.inodesFree": "5%",
  "imagefs.available": "15%",
  "imagefs.inodesFree": "5%",
};

/** A reader of the page takes some 4 MiB, for as long as it is open. */
const PAGE_MEMORY = GIBIBYTE;
/** A machine of 1 GiB shows less: the kernel keeps some of it. */
const PAGE_MEMORY_SHARE = 0.85;
/**
 * From here on a board has the kubelet's own port, whose TLS and HTTP take some 1.5 MiB of anonymous memory once
 * a client has come: boards with 1 GiB, of which firmware and kernel keep an eighth. On smaller ones the hub, which
 * answers the same, is enough.
 */
const SERVER_MEMORY = 896 * MEBIBYTE;

export interface BoardDefaults {
  readonly evictionHard: Readonly<Record<string, string>>;
  /** Where the file reserves nothing, neither here nor under systemReserved. */
  readonly kubeReserved: Readonly<Record<string, string>>;
  /** True when the board's page is served where the file does not say. */
  readonly hasPage: boolean;
  /** True when the node has the kubelet's port. */
  readonly enableServer: boolean;
  readonly derived: readonly DerivedValue[];
}

/** @param runsContainers whether there is a container runtime beside the components' one */
export function boardDefaults(board: Board, runsContainers: boolean): BoardDefaults {
  const memory = memoryText(board.memoryBytes);
  const { share, least, most } = MEMORY_AVAILABLE;
  const available = mebibytes(Math.min(most, Math.max(least, board.memoryBytes * share)));
  const system = SYSTEM_MEMORY;
  const needed = runsContainers ? system.withContainers + board.memoryBytes * system.forShims : system.without;
  const reserved = mebibytes(Math.min(needed, system.most, board.memoryBytes * system.share));
  const hasPage = board.memoryBytes >= PAGE_MEMORY * PAGE_MEMORY_SHARE;
  const pids = board.maxPids === undefined ? {} : { pid: String(Math.floor(board.maxPids * PIDS_SHARE)) };
  return {
    evictionHard: { "memory.available": available, ...FILESYSTEMS, "pid.available": `${PIDS_SHARE * 100}%` },
    kubeReserved: { memory: reserved, ...pids },
    hasPage,
    enableServer: board.memoryBytes >= SERVER_MEMORY,
    derived: [
      {
        path: "page.enabled",
        how: `${hasPage ? "on from" : "off below"} ${memoryText(PAGE_MEMORY)}; this board has ${memory}`,
      },
      {
        path: "evictionHard[memory.available]",
        how: `a tenth of ${memory}, at least ${memoryText(least)} and at most ${memoryText(most)}`,
      },
      {
        path: "kubeReserved.memory",
        how: runsContainers
          ? `${memoryText(system.withContainers)} and a sixteenth of ${memory}, at most a quarter of it and ${memoryText(system.most)}`
          : `${memoryText(system.without)}, at most a quarter of ${memory}: no containers run here`,
      },
      ...(board.maxPids === undefined
        ? []
        : [{ path: "kubeReserved.pid", how: `a tenth of the ${board.maxPids} processes that this kernel allows` }]),
    ],
  };
}

const mebibytes = (bytes: number): string => `${Math.floor(bytes / MEBIBYTE)}Mi`;

/** Rounded, for people. */
const memoryText = (bytes: number): string =>
  bytes >= 4 * GIBIBYTE ? `${(bytes / GIBIBYTE).toFixed(1)} GiB` : `${Math.round(bytes / MEBIBYTE)} MiB`;
