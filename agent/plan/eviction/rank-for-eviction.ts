/** Ranks pods for eviction as the kubelet does, documented under "Node-pressure Eviction". Pure. */
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DiskUsage, PodDiskUsage, PodUsage, Usage } from "../../core/node/usage.ts";
import { requestOf } from "../admission/admission-resources.ts";
import { countedParts, type DiskLayout, resourceOf } from "./eviction-signals.ts";
import type { EvictionSignal } from "./eviction-thresholds.ts";

/** A pod of which something runs. Missing figures could not be read. */
export interface EvictionCandidate {
  readonly pod: DesiredPod;
  readonly usage: PodUsage | undefined;
  readonly disk: PodDiskUsage | undefined;
}

type Order = (left: Ranked, right: Ranked) => number;

interface Ranked {
  readonly candidate: EvictionCandidate;
  readonly priority: number;
  /** Usage of the resource that is short; undefined: unknown. */
  readonly used: number | undefined;
  readonly requested: number;
}

/**
 * First to go first. A pod of which nothing is known goes last: it has just begun, or just ended. (The kubelet takes it
 * first.)
 */
export function rankForEviction(
  candidates: readonly EvictionCandidate[],
  signal: EvictionSignal,
  layout: DiskLayout,
): readonly EvictionCandidate[] {
  const ranked = candidates.map((candidate) => rankedBy(candidate, signal, layout));
  const known = (each: Ranked): number => Number(each.used === undefined);
  const orders: readonly Order[] =
    resourceOf(signal) === "pids"
      ? [(left, right) => known(left) - known(right), byPriority, byUsed]
      : [(left, right) => known(left) - known(right), byExcess, byPriority, byUsedAboveRequest];
  return ranked
    .sort((left, right) => {
      for (const order of orders) {
        const result = order(left, right);
        if (result !== 0) return result;
      }
      return 0;
    })
    .map(({ candidate }) => candidate);
}

/** What a candidate uses and requests of the resource that is short, as it is ranked. */
export const rankedFigures = (
  candidate: EvictionCandidate,
  signal: EvictionSignal,
  layout: DiskLayout,
): Pick<Ranked, "used" | "requested"> => rankedBy(candidate, signal, layout);

const excess = ({ used = 0, requested }: Ranked): number => used - requested;
const byExcess: Order = (left, right) => Number(excess(right) > 0) - Number(excess(left) > 0);
const byPriority: Order = (left, right) => left.priority - right.priority;
const byUsedAboveRequest: Order = (left, right) => excess(right) - excess(left);
const byUsed: Order = (left, right) => (right.used ?? 0) - (left.used ?? 0);

function rankedBy(candidate: EvictionCandidate, signal: EvictionSignal, layout: DiskLayout): Ranked {
  const { pod, usage, disk } = candidate;
  const priority = pod.pod.spec.priority ?? 0;
  const resource = resourceOf(signal);
  const request = (name: string): number => Number(requestOf(pod.pod, name));
  switch (resource) {
    case "memory":
      return { candidate, priority, used: podMemoryUsage(usage), requested: request("memory") };
    case "pids":
      return { candidate, priority, used: usage?.usage?.pids, requested: 0 };
    case "ephemeral-storage": {
      const used = disk === undefined ? undefined : diskOf(disk, signal, layout).bytes;
      return { candidate, priority, used, requested: request("ephemeral-storage") };
    }
    case "inodes": {
      const used = disk === undefined ? undefined : diskOf(disk, signal, layout).inodes;
      return { candidate, priority, used, requested: 0 };
    }
  }
}

/**
 * A pod without a cgroup of its own is what its containers are. What is swapped out counts: on a small board swap is
 * memory that has been compressed (zram), and a leak must not hide there. (The kubelet counts the working set alone.)
 */
export function podMemoryUsage(usage: PodUsage | undefined): number | undefined {
  if (usage?.usage !== undefined) return heldMemoryBytes(usage.usage);
  if (usage === undefined || usage.containers.length === 0) return undefined;
  return usage.containers.reduce((sum, each) => sum + heldMemoryBytes(each.usage), 0);
}

/** Memory that goes with it, in RAM or swapped out. */
export const heldMemoryBytes = ({ workingSetBytes, swapBytes }: Usage): number => workingSetBytes + swapBytes;

function diskOf(disk: PodDiskUsage, signal: EvictionSignal, layout: DiskLayout): DiskUsage {
  let bytes = 0;
  let inodes = 0;
  for (const part of countedParts(signal, layout)) {
    for (const each of disk[part].values()) {
      bytes += each.bytes;
      inodes += each.inodes;
    }
  }
  return { bytes, inodes };
}
