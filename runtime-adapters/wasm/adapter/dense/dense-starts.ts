/**
 * Containers that share their process: how they start, and how those are taken up that an agent before this one
 * started.
 */
import { closeSync, fchownSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { type CgroupSettings, containerCgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Prepared } from "../containers/container-preparation.ts";
import type { ContainerRun, ContainerRunComponents } from "../containers/container-run.ts";
import { cannotStart } from "../containers/start-errors.ts";
import { createLog } from "../state/container-log.ts";
import type { ContainerFile } from "../state/state-files.ts";
import type { DenseProcess, DenseProcessComponents } from "./dense-process.ts";
import { DenseProcesses, type DenseProcessesInit } from "./dense-processes.ts";
import { DenseRun } from "./dense-run.ts";

/** With what an agent before this one has left. */
export function makeDenseStarts(
  components: ContainerRunComponents & Omit<DenseProcessComponents, "onChange">,
  init: DenseProcessesInit,
  settings: CgroupSettings,
): DenseStarts {
  const { clock, log, cgroups, isolation, disposed } = components;
  const hosts = new DenseProcesses({ clock, log, cgroups, isolation, disposed }, init);
  hosts.adopt();
  return new DenseStarts(components, hosts, settings);
}

/** Bounds the processes that one start tries, each of which is full or misses a mount. A board has one or two. */
const MAX_PROCESSES_TRIED = 8;

export class DenseStarts {
  readonly #components: ContainerRunComponents;
  readonly #hosts: DenseProcesses;
  readonly #settings: CgroupSettings;

  constructor(components: ContainerRunComponents, hosts: DenseProcesses, settings: CgroupSettings) {
    this.#components = components;
    this.#hosts = hosts;
    this.#settings = settings;
  }

  /** As `ContainerStarter.start`. @param newFile gives it another id each time */
  async start(
    newFile: () => ContainerFile,
    prepared: Prepared,
    onMade: (run: ContainerRun) => void,
    signal: AbortSignal,
  ): Promise<ContainerRun> {
    // A process that was made before the node mounted something may not see it, and one may have no addresses left; one
    // that is made now does, and has.
    const tried = new Set<DenseProcess>();
    while (tried.size < MAX_PROCESSES_TRIED) {
      const { run, host } = await this.#attempt(newFile, prepared, onMade, tried, signal);
      if (run !== undefined) return run;
      tried.add(host);
    }
    throw new PicoletError("internal", "a new process does not see what the node mounts", { retryable: true });
  }

  adopted(file: ContainerFile, hostName: string): DenseRun {
    const run = new DenseRun(this.#components, file, this.#hosts.process(hostName));
    this.#hosts.host(hostName)?.runs.set(file.id, run);
    void run.ended.then(() => this.#hosts.host(hostName)?.runs.delete(file.id));
    return run;
  }

  /** Called when all containers of an earlier agent have been passed to `adopted`. */
  async settle(): Promise<void> {
    await this.#hosts.adopted();
  }

  /** Applies a change of a container's resources. */
  async update(hostName: string): Promise<void> {
    const host = this.#hosts.host(hostName);
    if (host !== undefined) await this.#hosts.limit(host);
  }

  usage(): Promise<ReadonlyMap<string, SharedUsage>> {
    return this.#hosts.usage();
  }

  dispose(): void {
    this.#hosts.dispose();
  }

  /** @returns no `run` when the process does not see what is mounted for it, or is full */
  async #attempt(
    newFile: () => ContainerFile,
    prepared: Prepared,
    onMade: (run: ContainerRun) => void,
    but: ReadonlySet<DenseProcess>,
    signal: AbortSignal,
  ): Promise<{ readonly run: DenseRun | undefined; readonly host: DenseProcess }> {
    const { pod, spec, runner, network, oomScoreAdj } = prepared;
    const { namespace } = pod.metadata;
    const values = containerCgroupValues(spec, this.#settings, pod);
    const wanted = { namespace, network, identity: runner.identity, values, oomScore: oomScoreAdj };
    const host = await this.#hosts.take(wanted, but, signal);
    try {
      const run = this.#make({ ...newFile(), cgroupPath: undefined, dense: { host: host.name, values } }, host);
      onMade(run);
      const { state } = this.#components;
      const { uid, id, logPath, name } = run.file;
      const launch = { ...runner, logPath, endPath: state.endPath(uid, id) };
      try {
        if (await host.start(run, launch, oomScoreAdj, signal)) return { run, host };
        await run.destroy();
        return { run: undefined, host };
      } catch (error) {
        await run.destroy();
        throw cannotStart(name, error, "");
      }
    } finally {
      this.#hosts.settle(host, values);
    }
  }

  #make(file: ContainerFile, host: DenseProcess): DenseRun {
    const { state } = this.#components;
    mkdirSync(dirname(file.logPath), { recursive: true });
    state.writeContainer(file);
    createLog(file);
    const end = openSync(state.endPath(file.uid, file.id), "w", 0o600);
    if (file.identity !== undefined) fchownSync(end, file.identity.uid, file.identity.gid);
    closeSync(end);
    return new DenseRun(this.#components, file, host);
  }
}
