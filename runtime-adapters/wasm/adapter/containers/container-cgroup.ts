import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
} from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { Cpuset } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerFile } from "../state/state-files.ts";
import type { ContainerSpec } from "./container-launch.ts";

/** Threads and processes of a container: Node has some ten, and the shell and what makes the jail come before it. */
const MAX_TASKS = 64;

/** The resources of a container with a process of its own. */
export interface CgroupSpec {
  readonly spec: ContainerSpec;
  readonly pod: Pod;
  readonly cpuset: Cpuset | undefined;
}

/** The cgroup of one container, below that of its pod. */
export class ContainerCgroups {
  readonly #cgroups: CgroupPort | undefined;
  readonly #settings: CgroupSettings;

  constructor(cgroups: CgroupPort | undefined, settings: CgroupSettings) {
    this.#cgroups = cgroups;
    this.#settings = settings;
  }

  /** Makes the cgroup, or makes it again with these values. @returns the files through which a process joins it */
  async make({ cgroupPath }: ContainerFile, { spec, pod, cpuset }: CgroupSpec): Promise<readonly string[]> {
    if (cgroupPath === undefined) return [];
    const values = containerCgroupValues(spec, this.#settings, pod);
    const own = { ...values, ...cpusetValues(cpuset), pidsLimit: MAX_TASKS };
    const isUnlimited = cpuset?.exclusive === true && values.cpuQuotaUs !== undefined;
    const group = await this.#cgroups?.create(cgroupPath, isUnlimited ? { ...own, cpuQuotaUs: -1 } : own);
    return group?.procsFiles ?? [];
  }

  /** Nothing but its CPUs and memory nodes. */
  async place({ cgroupPath }: ContainerFile, cpuset: Cpuset | undefined): Promise<void> {
    if (cgroupPath !== undefined) await this.#cgroups?.create(cgroupPath, cpusetValues(cpuset));
  }

  /** The values of a container that shares its process, whose cgroup gets the sum of them. */
  values({ spec, pod }: Pick<CgroupSpec, "spec" | "pod">): CgroupValues {
    return containerCgroupValues(spec, this.#settings, pod);
  }
}

/** What is not said is as it is in the cgroup above. */
const cpusetValues = (cpuset: Cpuset | undefined): CgroupValues => ({
  cpusetCpus: cpuset?.cpus || undefined,
  cpusetMems: cpuset?.mems || undefined,
});
