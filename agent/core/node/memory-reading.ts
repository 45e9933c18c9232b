/** One fast sample of memory and processes. `agent/stats` reads it, `agent/eviction` acts on it. */
export interface MemoryReading {
  /** Undefined: the kernel does not say. A lower bound while there is plenty. */
  readonly node: MemorySpace | undefined;
  /** The cgroup of all pods, if it has a limit; a lower bound of usage while it is far from the limit. */
  readonly pods: MemorySpace | undefined;
  /** Processes and threads; missing: not requested, or unknown to the kernel. */
  readonly pids?: MemorySpace | undefined;
  /** Total time in which all tasks waited for memory (PSI full); undefined: no pressure stall information. */
  readonly stalledUs: number | undefined;
}

/** Bytes, or processes. */
export interface MemorySpace {
  readonly available: number;
  readonly capacity: number;
}
