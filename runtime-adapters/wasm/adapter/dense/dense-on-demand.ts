import type { CgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerRunComponents } from "../containers/container-run.ts";
import type { DenseProcessComponents } from "./dense-process.ts";
import type { DenseProcessesInit } from "./dense-processes.ts";
import type { DenseStarts } from "./dense-starts.ts";

export interface DenseOnDemandInit extends DenseProcessesInit {
  readonly cgroupSettings: CgroupSettings;
}

/** Containers that share a process, whose part of the program is loaded with the first of them. */
export class DenseOnDemand {
  readonly #components: ContainerRunComponents & Omit<DenseProcessComponents, "onChange">;
  readonly #init: DenseOnDemandInit;
  #starts: Promise<DenseStarts> | undefined;

  constructor(components: ContainerRunComponents & Omit<DenseProcessComponents, "onChange">, init: DenseOnDemandInit) {
    this.#components = components;
    this.#init = init;
  }

  starts(): Promise<DenseStarts> {
    this.#starts ??= this.#load();
    return this.#starts;
  }

  async usage(): Promise<ReadonlyMap<string, SharedUsage>> {
    return (await (await this.#starts)?.usage()) ?? new Map();
  }

  /** Their processes run on. */
  async dispose(): Promise<void> {
    (await this.#starts)?.dispose();
  }

  async #load(): Promise<DenseStarts> {
    const { makeDenseStarts } = await import("./dense-starts.ts");
    const { cgroupSettings, ...init } = this.#init;
    return makeDenseStarts(this.#components, init, cgroupSettings);
  }
}
