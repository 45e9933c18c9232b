import type { CgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import {
  type CgroupSettings,
  type CgroupValues,
  type NodeCgroupSettings,
  tierCgroupValues,
} from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Pod, QosClass } from "@picolet/protocol/pod/pod.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { CgroupTree } from "./cgroup-tree.ts";

export const TIERS: readonly QosClass[] = ["Guaranteed", "Burstable", "BestEffort"];

export interface TierCgroupsComponents {
  readonly cgroups: CgroupTree;
  /** Every pod this node is to run: what they ask for together is what their tier gets. */
  readonly pods: () => Iterable<Pod>;
  /** Called with the reason why the limits of all pods together are not set; `undefined`: they are set. */
  readonly onEnforced?: (path: string, problem: string | undefined) => void;
  readonly log: Log;
}

export interface TierCgroupsInit {
  readonly names: CgroupNames;
  readonly settings: CgroupSettings;
  readonly node: NodeCgroupSettings;
}

/** The cgroup above all pods, which is that of the guaranteed ones, and those of the other classes in it. */
export class TierCgroups {
  readonly #components: TierCgroupsComponents;
  readonly #init: TierCgroupsInit;
  /** The values last written, as text; missing for a tier that is not made yet, or whose values were refused. */
  readonly #written = new Map<QosClass, string>();
  readonly #reported = new Set<string>();
  /** The last reported problem of each tier. */
  readonly #problems = new Map<QosClass, string | undefined>();

  constructor(components: TierCgroupsComponents, init: TierCgroupsInit) {
    this.#components = components;
    this.#init = init;
  }

  get isMade(): boolean {
    return this.#written.size > 0;
  }

  /**
   * Makes them, and changes what has to be other than it was; next to nothing when nothing has. @throws what keeps one
   * from being made
   */
  async ensure(): Promise<void> {
    const { settings, node } = this.#init;
    const wanted = tierCgroupValues([...this.#components.pods()], settings, node);
    for (const tier of TIERS) {
      const text = JSON.stringify(wanted[tier]);
      if (this.#written.get(tier) === text) continue;
      const done = await this.#write(tier, wanted[tier]);
      if (done === "no cgroups") return;
      if (done === "all") this.#written.set(tier, text);
    }
  }

  /** Also restores what other processes have changed. */
  async reconcile(): Promise<void> {
    for (const [tier, text] of [...this.#written]) {
      const path = this.#init.names.tier(tier);
      const found = this.#components.cgroups.deviations(path, JSON.parse(text) as CgroupValues);
      if (found !== "gone" && found.length === 0) continue;
      this.#written.delete(tier);
      if (this.#reported.has(tier)) continue;
      this.#reported.add(tier);
      const fields = { cgroup: path, found: found === "gone" ? "it was removed" : found.join(", ") };
      this.#components.log.warn("another process changed a cgroup of pods: it is restored", fields);
    }
    await this.ensure();
  }

  /**
   * A limit below what is in use is not tried: the kernel either refuses it or kills for it. The pods' evictions make
   * room, and until then there is none, or for a tier below the top, what is in use.
   */
  async #write(tier: QosClass, values: CgroupValues): Promise<"all" | "in part" | "no cgroups"> {
    const { cgroups } = this.#components;
    const path = this.#init.names.tier(tier);
    const { memoryLimitBytes: limit, ...others } = values;
    const usage = limit === undefined ? undefined : await cgroups.value(path, "memoryUsageBytes");
    const isTooLow = limit !== undefined && usage !== undefined && usage > limit;
    const possible = isTooLow ? { ...others, ...(tier !== "Guaranteed" && { memoryLimitBytes: usage }) } : values;
    try {
      if ((await cgroups.create(path, possible)) === undefined) return "no cgroups";
      this.#report(tier, isTooLow ? `the memory limit ${limit} is below what is in use: ${usage}` : undefined);
      return isTooLow ? "in part" : "all";
    } catch (error) {
      // Pods do not wait for a limit that is refused, only for a cgroup that cannot be made.
      if (cgroups.deviations(path, {}) === "gone") throw error;
      this.#report(tier, describeError(error));
      return "in part";
    }
  }

  #report(tier: QosClass, problem: string | undefined): void {
    const { onEnforced, log } = this.#components;
    const path = this.#init.names.tier(tier);
    if (this.#problems.get(tier) === problem && this.#problems.has(tier)) return;
    this.#problems.set(tier, problem);
    if (tier === "Guaranteed") onEnforced?.(path, problem);
    else if (problem !== undefined)
      log.warn("cannot limit pods of a class as they should be", { path, error: problem });
  }
}
