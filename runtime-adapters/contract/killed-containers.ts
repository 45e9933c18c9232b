/**
 * Which containers the kernel has taken processes of for want of memory, by the kernel's own word. `agent/oom`
 * implements it.
 */
export interface KilledContainers {
  /**
   * @param containerId as the runtime and its cgroup have it. Cheap, never throws; false also where that cannot be
   * known
   */
  has(containerId: string): boolean;
}
