/** One fast look at memory and processes. `agent/stats` takes it, `agent/eviction` waits by it. */
export interface MemoryReading {
  /** Undefined: the kernel does not say. A lower bound while there is plenty. */
  readonly node: MemorySpace | undefined;
  /** Of the cgroup of all pods, where it has a limit; a lower bound while it is far from it. */
  readonly pods: MemorySpace | undefined;
  /** Of processes and threads; missing: nobody asked for them, or the kernel does not say. */
  readonly pids?: MemorySpace | undefined;
  /** How long nothing could go on for want of memory, of all time; undefined: no pressure stall information. */
  readonly stalledUs: number | undefined;
}

/** Bytes, or processes. */
export interface MemorySpace {
  readonly available: number;
  readonly capacity: number;
}
