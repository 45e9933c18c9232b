import { type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { fieldIn, readKernelFile, stallsIn } from "./kernel-text.ts";

/** The kernel delays a process beyond `memory.high` by two seconds at most, and counts an event before. */
const HELD_FOR = seconds(3);

interface PodStalls {
  readonly stalledUs: number;
  readonly hits: number;
  /** The time of the last hit that was seen. */
  readonly hitAt: number;
}

/**
 * Sums up the stalls of pods that are held at a memory limit of their own, `memory.high` or `memory.max`. The kernel
 * counts them among those of the machine, though the machine is not short of memory. v1 counts no stalls of a cgroup.
 * Reads two files of each pod, some 25 µs on a PC.
 */
export class HeldStalls {
  readonly #folder: string | undefined;
  #pods: ReadonlyMap<string, PodStalls> = new Map();
  #totalUs = 0;

  constructor(cgroups: CgroupFolders) {
    this.#folder = cgroups.kind === "v2" ? cgroups.folder("memory") : undefined;
  }

  /**
   * @param paths cgroupfs paths of all pods
   * @returns the sum since the first call, in microseconds
   */
  totalUs(paths: Iterable<string>, now: MonotonicMs): number {
    if (this.#folder === undefined) return 0;
    const pods = new Map<string, PodStalls>();
    for (const path of paths) {
      const last = this.#pods.get(path);
      const found = readStalls(`${this.#folder}${path}`, last, now);
      if (found === undefined) continue;
      pods.set(path, found);
      const isHeld = now - found.hitAt < HELD_FOR;
      if (last !== undefined && isHeld) this.#totalUs += Math.max(0, found.stalledUs - last.stalledUs);
    }
    this.#pods = pods;
    return this.#totalUs;
  }
}

/** Undefined: the cgroup has gone, or the kernel counts no stalls. */
function readStalls(folder: string, last: PodStalls | undefined, now: number): PodStalls | undefined {
  const stalledUs = stallsIn(readKernelFile(`${folder}/memory.pressure`))?.some.totalUs;
  // With those of the cgroups below it.
  const events = readKernelFile(`${folder}/memory.events`);
  if (stalledUs === undefined || events === undefined) return undefined;
  const hits = (fieldIn(events, "high ") ?? 0) + (fieldIn(events, "max ") ?? 0);
  const isHit = hits > (last?.hits ?? 0);
  return { stalledUs, hits, hitAt: isHit ? now : (last?.hitAt ?? -Infinity) };
}
