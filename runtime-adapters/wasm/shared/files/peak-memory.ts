/** The greatest resident size of this process so far, KiB. Source: proc_pid_status(5). */
import { readFileSync } from "node:fs";

/**
 * `ru_maxrss`, which `process.resourceUsage()` reports, outlives execve(2): it starts with the size of the process that
 * spawned this one. VmHWM belongs to the memory of the current program.
 */
export const ownPeakRssKiB = (): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);
