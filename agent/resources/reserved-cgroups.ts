import { amountValues, type CgroupSettings, type CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { CgroupTree } from "./cgroup-tree.ts";

export interface Reservation {
  /** As the kubelet names it in its events: `System Reserved`, `Kube Reserved Compressible` … */
  readonly title: string;
  /** cgroupfs path. */
  readonly path: string;
  /** As the configuration has it. */
  readonly name: string;
  readonly amounts: ReadonlyMap<string, bigint>;
  /** CPU alone. */
  readonly isCompressible: boolean;
}

export interface ReservedCgroupsComponents {
  readonly cgroups: CgroupTree;
  /** Called when the problem of a reservation changes: why its limits cannot be set; `undefined`: they are set. */
  readonly onEnforced: (reservation: Reservation, problem: string | undefined) => void;
}

/** What is reserved for the system and for the agent with its runtime is all that their cgroups get. */
export class ReservedCgroups {
  readonly #components: ReservedCgroupsComponents;
  readonly #reservations: readonly Reservation[];
  readonly #settings: CgroupSettings;
  readonly #problems = new Map<Reservation, string | undefined>();

  constructor(
    components: ReservedCgroupsComponents,
    init: { readonly reservations: readonly Reservation[]; readonly settings: CgroupSettings },
  ) {
    this.#components = components;
    this.#reservations = init.reservations;
    this.#settings = init.settings;
  }

  /** At start. @throws `invalid` where a cgroup is not there, or lacks a controller */
  async check(): Promise<void> {
    for (const { title, path, name } of this.#reservations) {
      const missing = await this.#components.cgroups.missing(path);
      if (missing.length === 0) continue;
      const what = missing.some((each) => each.startsWith("/")) ? "paths" : "controllers";
      const cause = new Error(`cgroup ${JSON.stringify(path)} has some missing ${what}: ${missing.join(", ")}`);
      throw new PicoletError("invalid", `cannot enforce ${title} Cgroup Limits on ${JSON.stringify(name)}`, { cause });
    }
  }

  /** Writes the limits that differ. A refusal of the kernel is reported, and the next call tries again. */
  async reconcile(): Promise<void> {
    for (const reservation of this.#reservations) {
      const problem = await this.#enforce(reservation);
      if (this.#problems.has(reservation) && this.#problems.get(reservation) === problem) continue;
      this.#problems.set(reservation, problem);
      this.#components.onEnforced(reservation, problem);
    }
  }

  async #enforce(reservation: Reservation): Promise<string | undefined> {
    const { cgroups } = this.#components;
    const { path } = reservation;
    const values = this.#values(reservation);
    if ((await cgroups.missing(path)).length > 0) return `cgroup ${JSON.stringify(path)} is not there any more`;
    // "gone" is one that is only in some hierarchies, which is what others than kubelets make.
    if (cgroups.deviations(path, values).length === 0) return undefined;
    const { memoryLimitBytes: limit } = values;
    const usage = limit === undefined ? undefined : await cgroups.value(path, "memoryUsageBytes");
    // The kernel would refuse it (v1), or kill for it what the node itself needs (v2).
    if (limit !== undefined && usage !== undefined && usage > limit)
      return `the memory limit ${limit} is below what is in use: ${usage}`;
    try {
      await cgroups.create(path, values);
      return undefined;
    } catch (error) {
      return describeError(error);
    }
  }

  #values({ amounts, isCompressible }: Reservation): CgroupValues {
    const values = amountValues(amounts, this.#settings);
    if (isCompressible) return { cpuShares: values.cpuShares };
    const { memoryLimitBytes: memory } = values;
    const isKept = this.#settings.memoryQos !== undefined && memory !== undefined;
    return { ...values, ...(isKept && { memoryMinBytes: memory }) };
  }
}
