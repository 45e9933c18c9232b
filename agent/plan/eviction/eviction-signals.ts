/** The kubelet's eviction signals: their values, their resources and conditions, and how each is relieved. Pure. */
import type { MemoryReading } from "../../core/node/memory-reading.ts";
import type { NodePressure } from "../../core/node/node-pressure.ts";
import type { FilesystemUsage, NodeFilesystems, NodeUsage } from "../../core/node/usage.ts";
import { amountOf, type EvictionSignal, type EvictionThreshold } from "./eviction-thresholds.ts";

/** Bytes, inodes, or processes. */
export interface Observation {
  readonly available: number;
  readonly capacity: number;
}

/** A signal that is missing could not be observed: nothing is judged by it, as if it had not changed. */
export type Observations = ReadonlyMap<EvictionSignal, Observation>;

export type StarvedResource = "memory" | "ephemeral-storage" | "inodes" | "pids";
export type PressureType = Exclude<NodePressure, "FlashWearPressure" | "SecretsUnreadable">;

interface SignalMeaning {
  readonly resource: StarvedResource;
  readonly condition: PressureType;
}

const MEMORY: SignalMeaning = { resource: "memory", condition: "MemoryPressure" };
const DISK: SignalMeaning = { resource: "ephemeral-storage", condition: "DiskPressure" };
const INODES: SignalMeaning = { resource: "inodes", condition: "DiskPressure" };

const MEANINGS: Readonly<Record<EvictionSignal, SignalMeaning>> = {
  "memory.available": MEMORY,
  "allocatableMemory.available": MEMORY,
  "nodefs.available": DISK,
  "imagefs.available": DISK,
  "containerfs.available": DISK,
  "nodefs.inodesFree": INODES,
  "imagefs.inodesFree": INODES,
  "containerfs.inodesFree": INODES,
  "pid.available": { resource: "pids", condition: "PIDPressure" },
};

export const resourceOf = (signal: EvictionSignal): StarvedResource => MEANINGS[signal].resource;
export const conditionOf = (signal: EvictionSignal): PressureType => MEANINGS[signal].condition;
export const isMemorySignal = (signal: EvictionSignal): boolean => resourceOf(signal) === "memory";

/** Below it the threshold is met. */
export const quantityOfThreshold = ({ value }: EvictionThreshold, { capacity }: Observation): number =>
  amountOf(value, capacity);

export function readingObservations({ node, pods, pids }: MemoryReading): Observations {
  const observations = new Map<EvictionSignal, Observation>();
  const observe = (signal: EvictionSignal, space: Observation | undefined): void => {
    if (space !== undefined && isSound(space.available, space.capacity)) observations.set(signal, space);
  };
  observe("memory.available", node);
  observe("allocatableMemory.available", pods);
  observe("pid.available", pids);
  return observations;
}

/** @param maxPids undefined: unknown */
export function usageObservations(
  { node, allPods, protectedCache = { node: 0, pods: 0 } }: NodeUsage,
  maxPids: number | undefined,
): Observations {
  const observations = new Map<EvictionSignal, Observation>();
  const memory = spaceOf(node.memoryLimitBytes, node.workingSetBytes + protectedCache.node);
  if (memory !== undefined) observations.set("memory.available", memory);
  const pods =
    allPods === undefined
      ? undefined
      : spaceOf(allPods.memoryLimitBytes, allPods.workingSetBytes + protectedCache.pods);
  if (pods !== undefined) observations.set("allocatableMemory.available", pods);
  const pids = node.pids === undefined ? undefined : spaceOf(maxPids, node.pids);
  if (pids !== undefined) observations.set("pid.available", pids);
  return observations;
}

/** A limit that is lowered may be below what is used, but not so far: that is a counter gone wrong. */
const MOST_USED_SHARE = 2;

/** A capacity of 0 is none: a machine that says so says nothing. */
function spaceOf(capacity: number | undefined, used: number): Observation | undefined {
  if (capacity === undefined || !(used >= 0 && used <= capacity * MOST_USED_SHARE)) return undefined;
  const available = Math.max(0, capacity - used);
  return isSound(available, capacity) ? { available, capacity } : undefined;
}

export function filesystemObservations({ nodefs, imagefs, containerfs }: NodeFilesystems): Observations {
  const observations = new Map<EvictionSignal, Observation>();
  const observe = (name: "nodefs" | "imagefs" | "containerfs", usage: FilesystemUsage): void => {
    const { availableBytes: available, capacityBytes: capacity } = usage;
    if (isSound(available, capacity)) observations.set(`${name}.available`, { available, capacity });
    // Some file systems do not count inodes.
    if (isSound(usage.inodesFree, usage.inodes))
      observations.set(`${name}.inodesFree`, { available: usage.inodesFree, capacity: usage.inodes });
  };
  observe("nodefs", nodefs);
  observe("imagefs", imagefs);
  observe("containerfs", containerfs);
  return observations;
}

/** False for an impossible sample, such as more free than the capacity: it evicts no pod. */
const isSound = (available: number, capacity: number): boolean =>
  Number.isFinite(available) && Number.isFinite(capacity) && available >= 0 && capacity > 0 && available <= capacity;

/** Describes which file systems are the same. */
export interface DiskLayout {
  /** Images are on a file system of their own. */
  readonly dedicatedImagefs: boolean;
  /** And what containers write is not on that one, but on the node's. */
  readonly splitContainerfs: boolean;
}

export const layoutOf = ({ nodefs, imagefs, containerfs }: NodeFilesystems): DiskLayout => ({
  dedicatedImagefs: imagefs !== nodefs,
  splitContainerfs: imagefs !== nodefs && containerfs !== imagefs,
});

/** Parts of a pod's files that count for a signal. */
export type DiskPart = "rootfs" | "logs" | "volumes";

const ALL: readonly DiskPart[] = ["rootfs", "logs", "volumes"];

export function countedParts(
  signal: EvictionSignal,
  { dedicatedImagefs, splitContainerfs }: DiskLayout,
): readonly DiskPart[] {
  if (!dedicatedImagefs) return ALL;
  const isOfImages = signal.startsWith("imagefs.");
  if (splitContainerfs) return isOfImages ? [] : ALL;
  return isOfImages || signal.startsWith("containerfs.") ? ["rootfs"] : ["logs", "volumes"];
}

/** Steps with which the node reclaims a resource before pods are evicted, in order. */
export type ReclaimStep = "deadContainers" | "unusedImages";

export function reclaimSteps(signal: EvictionSignal, layout: DiskLayout): readonly ReclaimStep[] {
  if (conditionOf(signal) !== "DiskPressure") return [];
  if (!layout.dedicatedImagefs) return ["deadContainers", "unusedImages"];
  const isOfImages = signal.startsWith("imagefs.");
  if (layout.splitContainerfs) return isOfImages ? ["unusedImages"] : ["deadContainers"];
  return isOfImages || signal.startsWith("containerfs.") ? ["deadContainers", "unusedImages"] : [];
}
