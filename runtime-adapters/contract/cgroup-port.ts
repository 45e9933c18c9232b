/**
 * Container cgroups for adapters that start processes themselves (the component adapter; runc makes its own).
 * `agent/resources` implements it. All paths are cgroupfs paths below the controllers' roots, such as
 * `/kubepods/burstable/pod<uid>/<container id>`, the same on every controller.
 */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";

export interface CreatedCgroup {
  /**
   * Absolute paths of the `cgroup.procs` files, one for each hierarchy (v1: one per controller, v2: one).
   * A process joins by writing its pid (or `0`, itself) to each of them, one write a file.
   */
  readonly procsFiles: readonly string[];
}

/** Every method is idempotent. A path that does not exist counts as empty. */
export interface CgroupPort {
  /**
   * Makes the cgroup and writes `values`; the parent exists already. One that exists gets the new values.
   * @returns `undefined` when this process may not make cgroups (no root, no controllers): said once by the
   * implementation, and everything else goes on without.
   * @throws PicoletError when it may, and it failed.
   */
  create(path: string, values: CgroupValues): Promise<CreatedCgroup | undefined>;
  /** SIGKILL to every process in it, those that fork meanwhile too; resolves when it is empty. */
  kill(path: string, signal: AbortSignal): Promise<void>;
  /** Removes it with everything below. @throws `conflict` while processes are left in it. */
  remove(path: string): Promise<void>;
  /**
   * The number of its processes that the kernel has killed because memory ran out (`oom_kill`); 0 when it is not known.
   */
  oomKills(path: string): Promise<number>;
}
