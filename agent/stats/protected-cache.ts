import { readdirSync } from "node:fs";
import { type Clock, type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ProtectedBytes } from "../core/node/usage.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { fieldIn, numberIn, readKernelFile } from "./kernel-text.ts";

export interface ProtectedCacheInit {
  /** cgroupfs path of the cgroup of all pods; "": there is none. */
  readonly allPodsCgroup: string;
}

/** A slice and its units. What a unit, such as a privileged pod, makes below itself has a share of the unit's. */
const MAX_DEPTH = 2;
const NONE: ProtectedBytes = { node: 0, pods: 0 };

/**
 * Reads how much inactive page cache the kernel cannot take back, because it is within the `memory.min` of its cgroup
 * (Documentation/admin-guide/cgroup-v2.rst). The kernel kills processes while this much still looks available. v1 has
 * no such protection. Takes some 25 µs for each protected cgroup, on a PC.
 */
export class ProtectedCache {
  readonly #root: string | undefined;
  readonly #pods: string;
  readonly #clock: Clock;
  #last: (ProtectedBytes & { readonly at: MonotonicMs }) | undefined;

  constructor(
    { cgroups, clock }: { readonly cgroups: CgroupFolders; readonly clock: Clock },
    { allPodsCgroup }: ProtectedCacheInit,
  ) {
    this.#root = cgroups.kind === "v2" ? cgroups.folder("memory") : undefined;
    this.#pods = allPodsCgroup === "" ? "" : `${this.#root}${allPodsCgroup}`;
    this.#clock = clock;
  }

  /** @param maxAge of an acceptable earlier result */
  read(maxAge: Millis = millis(0)): ProtectedBytes {
    if (this.#root === undefined) return NONE;
    const at = this.#clock.monotonic();
    if (this.#last !== undefined && at - this.#last.at < maxAge) return this.#last;
    this.#last = {
      at,
      node: within(this.#root, Infinity, MAX_DEPTH) ?? 0,
      // At the limit of all pods the kernel ignores the `memory.min` of their common cgroup.
      pods: (this.#pods === "" ? undefined : within(this.#pods, Infinity, 1)) ?? 0,
    };
    return this.#last;
  }
}

/** @returns what is protected of the cgroups below, `most` bytes at most; undefined: none of them is protected */
function within(folder: string, most: number, depth: number): number | undefined {
  let [sum, isAny] = [0, false];
  for (const name of cgroupsIn(folder)) {
    const child = `${folder}/${name}`;
    const min = Math.min(most, minimumOf(child));
    if (min === 0) continue;
    isAny = true;
    sum += (depth > 1 ? within(child, min, depth - 1) : undefined) ?? ofCgroup(child, min);
  }
  return isAny ? Math.min(sum, most) : undefined;
}

/** The kernel takes page cache until the cgroup has no more than it may keep. */
function ofCgroup(folder: string, min: number): number {
  const used = numberIn(readKernelFile(`${folder}/memory.current`)) ?? 0;
  const cache = fieldIn(readKernelFile(`${folder}/memory.stat`) ?? "", "inactive_file ") ?? 0;
  return Math.min(cache, Math.max(0, min - (used - cache)));
}

function minimumOf(folder: string): number {
  const text = readKernelFile(`${folder}/memory.min`);
  return text?.startsWith("max") === true ? Infinity : (numberIn(text) ?? 0);
}

function cgroupsIn(folder: string): readonly string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    // It has just been removed.
    return [];
  }
}
