/** Makes a container from a pod: checks everything first, then writes its state folder, then starts it. */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import type { CgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Millis } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { Action, ContainerLaunch, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { ContainerCgroups } from "./containers/container-cgroup.ts";
import { containerSpec, leastMemory, memoryLimitOf } from "./containers/container-launch.ts";
import {
  ContainerPreparation,
  type ContainerPreparationComponents,
  type ContainerPreparationInit,
  type Prepared,
} from "./containers/container-preparation.ts";
import { ContainerRun, type ContainerRunComponents } from "./containers/container-run.ts";
import { cannotStart, killedAtStart } from "./containers/start-errors.ts";
import type { DenseStarts } from "./dense/dense-starts.ts";
import type { Isolation } from "./isolation/isolation.ts";
import type { SparePool } from "./runners/spare-pool.ts";
import type { SpareRunner } from "./runners/spare-runner.ts";
import { createLog } from "./state/container-log.ts";
import type { ContainerFile, SandboxFile } from "./state/state-files.ts";
import type { StateFolder } from "./state/state-folder.ts";

export interface ContainerStarterComponents extends ContainerRunComponents, ContainerPreparationComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly isolation: Isolation;
  readonly state: StateFolder;
  readonly spares: SparePool;
  /** Containers that share a process; loaded with the first of them. */
  readonly dense: () => Promise<DenseStarts>;
}

export interface ContainerStarterInit extends ContainerPreparationInit {
  readonly cgroupSettings: CgroupSettings;
  readonly startTimeout: Millis;
}

export type SandboxRecord = Omit<SandboxFile, "desired"> & { stopped: boolean };

type Update = Pick<Extract<Action, { kind: "updateContainer" }>, "resources" | "cpuset">;

export class ContainerStarter {
  readonly #components: ContainerStarterComponents;
  readonly #init: ContainerStarterInit;
  readonly #preparation: ContainerPreparation;
  readonly #cgroups: ContainerCgroups;
  #oomScoreRefused = false;

  constructor(components: ContainerStarterComponents, init: ContainerStarterInit) {
    this.#components = components;
    this.#init = init;
    this.#preparation = new ContainerPreparation(components, init);
    this.#cgroups = new ContainerCgroups(components.cgroups, init.cgroupSettings);
  }

  /**
   * @param onMade is given the container as soon as it stands, before it runs.
   * @throws with the reasons that a kubelet gives; nothing is left of the container then.
   */
  async start(
    pod: DesiredPod,
    sandbox: SandboxRecord,
    launch: ContainerLaunch,
    onMade: (run: ContainerRun) => void,
    signal: AbortSignal,
  ): Promise<ContainerRun> {
    const prepared = await this.#preparation.prepare(pod, launch, signal);
    if (prepared.dense) {
      const newFile = (): ContainerFile => this.#newFile(pod, sandbox, launch, prepared);
      return (await this.#components.dense()).start(newFile, prepared, onMade, signal);
    }
    const attempt = async (spare?: SpareRunner): Promise<ContainerRun | undefined> => {
      const run = this.#make(pod, sandbox, launch, prepared);
      onMade(run);
      try {
        if (await this.#run(run, prepared, spare, signal)) return run;
        await run.destroy();
        return undefined;
      } catch (error) {
        // Node's or the shell's error output is removed with the folder, and the kernel's count with the cgroup.
        const complaint = this.#components.state.fatal(pod.uid, run.file.id);
        const isKilled = (await run.oomKills()) > 0;
        await run.destroy();
        if (isKilled && !isCancelled(error)) throw killedAtStart(launch.name, prepared.runner);
        throw cannotStart(launch.name, error, complaint);
      }
    };
    // A first start may take its time; what has ended is to run again.
    const spare = launch.attempt > 0 ? await this.#spare(prepared) : undefined;
    // Only this call knows the spare, and nothing that is sent to it reaches one that runs.
    const warm = spare && (await attempt(spare).finally(() => spare.giveUp()));
    const run = warm ?? (await attempt());
    if (run === undefined) throw new PicoletError("internal", "a runner of its own cannot be the wrong one");
    this.#components.spares.refill(prepared.network);
    return run;
  }

  async #spare({ runner, network }: Prepared): Promise<SpareRunner | undefined> {
    const { isolation, spares } = this.#components;
    return (await isolation.canBeSpare(runner.identity)) ? spares.take(network) : undefined;
  }

  /** Does all checks of a start before anything of the container is made. @throws as `start` would */
  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await this.#preparation.prepare(pod, launch, signal);
  }

  /** One that an agent before this one made; `adopt` tells what became of it. */
  async adopted(file: ContainerFile): Promise<ContainerRun> {
    return file.dense === undefined
      ? new ContainerRun(this.#components, file)
      : (await this.#components.dense()).adopted(file, file.dense.host);
  }

  /**
   * In place are CPU and the memory of the whole process. What a component has of its own, its linear memory, keeps the
   * limit that it was started with: more of that takes a restart, which is what `resizePolicy` is for.
   * @throws `not_found` when it does not run, `invalid` for less memory than a runner needs
   */
  async update(run: ContainerRun, { pod }: DesiredPod, { resources, cpuset }: Update): Promise<void> {
    const { file } = run;
    if (run.reaper === undefined) {
      throw new PicoletError("not_found", `cannot update container ${file.id}: it does not run`);
    }
    if (resources === undefined) {
      await this.#cgroups.place(file, cpuset);
      return;
    }
    const spec = { ...containerSpec(pod, file.name), resources };
    memoryLimitOf(pod, spec, leastMemory(file.dense !== undefined));
    if (file.dense === undefined) {
      await this.#cgroups.make(file, { spec, pod, cpuset });
      run.keep({ resources });
    } else {
      const dense = { host: file.dense.host, values: this.#cgroups.values({ spec, pod }) };
      run.keep({ resources, dense });
      await (await this.#components.dense()).update(dense.host);
    }
  }

  #make(pod: DesiredPod, sandbox: SandboxRecord, launch: ContainerLaunch, prepared: Prepared): ContainerRun {
    const file = this.#newFile(pod, sandbox, launch, prepared);
    mkdirSync(dirname(file.logPath), { recursive: true });
    this.#components.state.writeContainer(file);
    return new ContainerRun(this.#components, file);
  }

  /** With an id of its own each time. */
  #newFile(pod: DesiredPod, sandbox: SandboxRecord, launch: ContainerLaunch, prepared: Prepared): ContainerFile {
    const { clock } = this.#components;
    const createdAtMs = clock.wall().getTime();
    const id = containerId(sandbox.id, launch, createdAtMs);
    const logPath = `${sandbox.logDirectory}/${launch.logPath}`;
    return {
      id,
      uid: pod.uid,
      name: launch.name,
      attempt: launch.attempt,
      sandboxId: sandbox.id,
      createdAtMs,
      hash: launch.hash,
      backoff: launch.backoff,
      image: launch.image.requested,
      imageId: launch.image.id,
      logPath,
      identity: prepared.runner.identity,
      cgroupPath: sandbox.cgroupParent === "" ? undefined : `${sandbox.cgroupParent}/${id}`,
      resources: prepared.spec.resources,
      services: servicesOf(id, prepared),
      port: prepared.runner.serve?.port,
    };
  }

  /** @returns false when the spare could not become its runner */
  async #run(
    run: ContainerRun,
    prepared: Prepared,
    spare: SpareRunner | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { state, clock, isolation } = this.#components;
    const { uid, id } = run.file;
    const { startTimeout: timeout } = this.#init;
    createLog(run.file);
    const folder = state.container(uid, id);
    const whole = { ...prepared.runner, logPath: run.file.logPath, endPath: state.endPath(uid, id) };
    const place = { directory: folder, exitPath: state.exitPath(id), oomScoreAdj: prepared.oomScoreAdj };
    const reaper = async () => ({ ...place, procsFiles: await this.#cgroups.make(run.file, prepared) });
    const onReaperEnd = (): void => void run.reaperEnded();
    if (spare === undefined) {
      const { command, launch } = await isolation.runner(whole, { folder, network: prepared.network });
      state.writeLaunch(uid, id, launch);
      // With Node's child processes: 0.7 MiB that an agent without components does not need.
      const { startRunner } = await import("./runners/start-runner.ts");
      const start = {
        reaper: { ...(await reaper()), command },
        fatalFd: state.openFatal(uid, id),
        timeout,
        onReaperEnd,
      };
      await startRunner(clock, start, signal);
    } else {
      const { fstab, launch } = await isolation.furnish(whole, folder);
      state.writeLaunch(uid, id, launch);
      const given = { reaper, fstab, fatalPath: state.fatalPath(uid, id), timeout, onReaperEnd };
      if (!(await spare.become(clock, given, signal).finally(() => spare.giveUp()))) return false;
    }
    if (!run.markRunning()) throw new PicoletError("internal", "the runner started without its reaper");
    this.#checkOomScore(run, prepared.oomScoreAdj);
    await run.takeExit();
    return true;
  }

  /** Without CAP_SYS_RESOURCE it cannot be lowered, which is worth one word and no failure. */
  #checkOomScore(run: ContainerRun, wanted: number): void {
    if (this.#oomScoreRefused || run.reaper === undefined) return;
    const actual = oomScoreOf(run.reaper.pid);
    if (actual === undefined || actual === wanted) return;
    this.#oomScoreRefused = true;
    this.#components.log.warn("oom_score_adj cannot be set: the kernel chooses for itself whom it kills first", {
      wanted,
      actual,
    });
  }
}

function servicesOf(containerId: string, { runner, peer }: Prepared): ContainerFile["services"] {
  const token = runner.board?.token;
  return token === undefined ? undefined : { token, peer: { ...peer, containerId } };
}

/** Identifies one attempt, also when its number occurs again after a reboot. */
function containerId(sandboxId: string, launch: ContainerLaunch, createdAtMs: number): string {
  const identity = [sandboxId, launch.name, launch.attempt, createdAtMs].join("\n");
  return createHash("sha256").update(identity).digest("hex");
}

function oomScoreOf(pid: number): number | undefined {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
  } catch {
    return undefined;
  }
}
