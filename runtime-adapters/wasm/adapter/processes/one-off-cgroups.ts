/** Where one-off children are while they run, and what is left of them when their agent was killed meanwhile. */
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";

/** Pulls at one time: for pods, for prefetching, and by hand. Others wait. */
export const MAX_PULLS = 3;

export const pullCgroup = (path: string, slot: number): string => `${path}-${slot}`;

export interface OneOffCgroupsComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
}

/** cgroupfs paths; undefined: they have none. */
export interface OneOffCgroupsInit {
  readonly transpileCgroup?: string | undefined;
  /** To which a number is added. */
  readonly pullCgroup?: string | undefined;
}

/** One in disk sleep goes when it wakes up; the next agent looks again. */
const END_DEADLINE = seconds(5);

/** Ends the children of an agent that was killed, because no one reads their answers, and removes their cgroups. */
export class OneOffCgroups {
  readonly #components: OneOffCgroupsComponents;
  readonly #init: OneOffCgroupsInit;
  #cleared: Promise<void> | undefined;

  constructor(components: OneOffCgroupsComponents, init: OneOffCgroupsInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * Once, before the first child is started: what is left would stay for good, and what the kernel counted there would
   * be held against the next child.
   */
  clear(signal: AbortSignal): Promise<void> {
    this.#cleared ??= this.#clearAll(signal);
    return this.#cleared;
  }

  async #clearAll(signal: AbortSignal): Promise<void> {
    const { clock, log, cgroups } = this.#components;
    const { transpileCgroup, pullCgroup: pulls } = this.#init;
    const slots = pulls === undefined ? [] : Array.from({ length: MAX_PULLS }, (_, slot) => pullCgroup(pulls, slot));
    for (const path of [transpileCgroup, ...slots]) {
      if (path === undefined || cgroups === undefined) continue;
      const end = async (within: AbortSignal): Promise<void> => {
        await cgroups.kill(path, within);
        await cgroups.remove(path);
      };
      await withDeadline(clock, END_DEADLINE, `clear the cgroup ${path}`, end, signal).catch((error: unknown) => {
        log.warn("what an earlier agent's transpilation or pull left is still there", { cgroup: path, error });
      });
    }
  }
}
