/** Reads the available memory, so often that it must cost next to nothing. */
import { existsSync } from "node:fs";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { MemoryReading } from "../core/node/memory-reading.ts";
import type { ProtectedBytes } from "../core/node/usage.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { fieldIn, lineOf, numberIn, readKernelFile } from "./kernel-text.ts";
import { threadsOf } from "./machine-usage.ts";
import { perCpuFreeBytes } from "./per-cpu-pages.ts";
import type { ProtectedCache } from "./protected-cache.ts";

const NO_LIMIT_BYTES = 2 ** 60;
/** Protected page cache changes as processes read files. A change matters near a threshold, and hardly far from it. */
const PROTECTED_AGE = { near: seconds(1), far: seconds(10) };
/** In multiples of `short`. */
const FAR = 4;

export interface MemoryGaugeInit {
  /** cgroupfs path of the cgroup of all pods; "": there is none, or it has no limit that counts. */
  readonly allPodsCgroup: string;
  /** The limit of processes and threads; missing: they are not counted. */
  readonly maxPids?: number | undefined;
  /** Missing: no page cache is protected. */
  readonly protectedCache?: Pick<ProtectedCache, "read">;
  /** Only tests name another one. */
  readonly proc?: string;
}

/** Amounts of memory, in bytes. */
export interface MemoryGaugeRange {
  /** For the pods' limit: with more available than this, only a lower bound is read. */
  readonly near: number;
  /** For the node: with more available than this, only a lower bound is read. */
  readonly short: number;
}

/**
 * Reads two to six small files, and at times those of protected cgroups; some 60 µs on a PC. The figures are those of
 * `UsageSampler`.
 */
export class MemoryGauge {
  readonly #kind: CgroupFolders["kind"];
  readonly #pods: string | undefined;
  readonly #maxPids: number | undefined;
  readonly #protectedCache: MemoryGaugeInit["protectedCache"];
  readonly #proc: string;
  /** True when the pods' cgroup existed at the last read. */
  #hasPods = false;

  constructor(cgroups: CgroupFolders, { allPodsCgroup, maxPids, protectedCache, proc = "/proc" }: MemoryGaugeInit) {
    const folder = allPodsCgroup === "" ? undefined : cgroups.folder("memory");
    this.#kind = cgroups.kind;
    this.#pods = folder === undefined ? undefined : `${folder}${allPodsCgroup}`;
    this.#maxPids = maxPids;
    this.#protectedCache = protectedCache;
    this.#proc = proc;
  }

  read({ near, short }: MemoryGaugeRange): MemoryReading {
    const pressure = readKernelFile(`${this.#proc}/pressure/memory`);
    return {
      node: this.#node(short),
      pods: this.#pods === undefined ? undefined : this.#ofPods(this.#pods, near),
      pids: this.#maxPids === undefined ? undefined : this.#pids(this.#maxPids),
      stalledUs: pressure === undefined ? undefined : stalledUs(pressure),
    };
  }

  #node(shortBytes: number): MemoryReading["node"] {
    const text = readKernelFile(`${this.#proc}/meminfo`) ?? "";
    const [total, free] = [fieldIn(text, "MemTotal:"), fieldIn(text, "MemFree:")];
    if (total === undefined || free === undefined || total === 0) return undefined;
    const cache = (fieldIn(text, "Inactive(file):") ?? 0) * KIBIBYTE;
    const others = (free + (fieldIn(text, "SReclaimable:") ?? 0)) * KIBIBYTE;
    const capacity = total * KIBIBYTE;
    const age = others + cache > shortBytes * FAR ? PROTECTED_AGE.far : PROTECTED_AGE.near;
    const least = Math.min(capacity, others + Math.max(0, cache - this.#protected(age).node));
    if (least > shortBytes) return { capacity, available: least };
    return { capacity, available: Math.min(capacity, least + perCpuFreeBytes(this.#proc, capacity)) };
  }

  #pids(capacity: number): MemoryReading["pids"] {
    const threads = threadsOf(readKernelFile(`${this.#proc}/loadavg`) ?? "");
    return threads === undefined ? undefined : { capacity, available: Math.max(0, capacity - threads) };
  }

  #ofPods(folder: string, nearBytes: number): MemoryReading["pods"] {
    // The error of a missing file takes a KiB, and on a node without pods there would be two with each read.
    this.#hasPods ||= existsSync(folder);
    if (!this.#hasPods) return undefined;
    const isV2 = this.#kind === "v2";
    const used = numberIn(readKernelFile(`${folder}/${isV2 ? "memory.current" : "memory.usage_in_bytes"}`));
    this.#hasPods = used !== undefined;
    const limit = numberIn(readKernelFile(`${folder}/${isV2 ? "memory.max" : "memory.limit_in_bytes"}`));
    if (used === undefined || limit === undefined || limit >= NO_LIMIT_BYTES) return undefined;
    const least = Math.max(0, limit - used);
    if (least > nearBytes) return { capacity: limit, available: least };
    const stat = readKernelFile(`${folder}/memory.stat`) ?? "";
    const cache = fieldIn(stat, isV2 ? "inactive_file " : "total_inactive_file ") ?? 0;
    const inactive = Math.max(0, cache - this.#protected(PROTECTED_AGE.near).pods);
    return { capacity: limit, available: Math.max(0, limit - Math.max(0, used - inactive)) };
  }

  #protected(maxAge: Millis): ProtectedBytes {
    return this.#protectedCache?.read(maxAge) ?? { node: 0, pods: 0 };
  }
}

function stalledUs(text: string): number | undefined {
  const from = lineOf(text, "full ");
  const at = from < 0 ? -1 : text.indexOf(" total=", from);
  return at < 0 ? undefined : numberIn(text.slice(at + " total=".length));
}
