/** The containers of which the kernel has killed a process because memory ran out. `agent/oom` implements it. */
export interface KilledContainers {
  /**
   * @param containerId as the runtime and its cgroup have it. Cheap, never throws; false also where that cannot be
   * known
   */
  has(containerId: string): boolean;
}
